// Package export shows, through the built nsbox, what may and what may not leave
// a box: each entry and each content that has to be refused, with the control
// that differs in that one thing and is delivered.
//
// A refusal counts only if the delivery folder is empty, no staged copy is left
// and the canary that was in the refused entry, or behind it, stands nowhere in
// what nsbox printed, wrote or kept.
//
// Two parts need programs that are no part of nsbox. The racer simulates a seal
// that failed: as root it reaches the launcher's descriptor of the sealed
// directory by /proc/PID/fd and swaps the name while the exporter, stopped and
// continued by signals, looks at it. The shim (folder shim) is put in the place
// of the stage image in a test's own state directory and so runs in the
// exporter's own box with the exporter's own filter: first to attempt what the
// exporter must not be able to do, then to lie to the launcher.
package export
