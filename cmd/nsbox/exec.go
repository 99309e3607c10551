package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"nsbox/exporter"
	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// execute is `nsbox exec`: check, run, publish, print. It always leaves the
// result where it was asked for, whatever happened.
func execute(args []string, inv *invocation, c *console, run runner) int {
	req, err := inv.request()
	if err == nil && req.ResultFile != "" {
		// Found before the run: a result that can go nowhere is not worth one.
		err = publishable(reason.ResultFile, req.ResultFile)
	}
	if err != nil {
		return refuse(args, c, err)
	}

	var tty *terminal
	if inv.Exec.Terminal {
		if tty, err = takeTerminal(c); err != nil {
			return refuse(args, c, err)
		}
		defer tty.giveBack()
		req.Terminal = tty.request()
	}

	tells := &progress{c: c, policy: req.PolicyArg, named: inv.Exec.AllowDegraded, raw: tty != nil}
	tells.ask(&req, inv.Exec.Quiet)
	orphans := launcher.Orphans(req.StateDir)
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := watchSignals(cancel, c, inv.Exec.Quiet || tty != nil)
	out := c.out
	if inv.Exec.JSON {
		out = c.err
	}
	stdout, finishOut := out.guarded()
	stderr, finishErr := c.err.guarded()
	streams := launcher.Streams{Stdin: c.in, Stdout: stdout, Stderr: stderr}
	if tty != nil {
		streams.Stdin, streams.Stdout = tty, telling{c.out}
	}
	res := run(ctx, req, streams)
	tty.giveBack()
	finishOut()
	finishErr()
	stop()
	// The launcher was told that every byte was taken, so that a reader that went away ends nothing.
	res.Untrusted.Stdout.LiveLost = res.Untrusted.Stdout.LiveLost || out.failed() != nil
	cancel(nil)

	if res.Version == "" {
		res.Version = version
	}
	if !inv.Exec.Quiet {
		c.tellOrphans(req.StateDir, orphans)
	}
	return report(res, c, outputs{file: req.ResultFile, json: inv.Exec.JSON, quiet: inv.Exec.Quiet, deliver: req.Deliver != "", policy: req.PolicyArg, limits: req.Limits,
		told: tells.told, argv: req.Argv, shown: append(req.Live, req.RootAdd...)})
}

// outputs says where a result goes.
type outputs struct {
	file    string // --result
	json    bool
	quiet   bool
	deliver bool   // --deliver was given
	policy  string // whose faults to list if the policy was refused
	limits  []string
	told    []string // dimensions that were named before the program started
	argv    []string
	shown   []launcher.Bind
}

// report publishes and prints a result, and returns the exit status.
func report(res launcher.Result, c *console, o outputs) int {
	if err := publishResult(res, o.file); err != nil {
		res = failed(res, err)
	}
	if o.json {
		if err := c.document(res); err != nil {
			res = failed(res, reason.Wrap(reason.OutputClosed, "standard output", "the JSON result could not be written", "use --result FILE as well", c.out.failed()))
		}
	} else {
		c.tell(res, o)
	}
	if res.Reason != nil {
		var source string
		var list policy.Faults
		if res.Workload.Outcome == launcher.RefusedPolicy {
			source, list = o.faults()
		}
		c.refusal(*res.Reason, source, list)
		if neverStarted(res) && res.Attempt != "" && !o.json && !o.quiet {
			c.note("the program was not started; attempt %s", res.Attempt)
		}
	}
	return res.ExitStatus
}

// faults lists what is wrong with the policy or the limits: the result carries
// the first fault only, and a person wants them all.
func (o outputs) faults() (source string, list policy.Faults) {
	p, _, err := policy.Load(o.policy)
	if err != nil {
		return o.policy, faultsOf(err)
	}
	_, err = p.Tighten(o.limits)
	return "", faultsOf(err) // each names --limit itself
}

func publishResult(res launcher.Result, path string) error {
	if path == "" {
		return nil
	}
	data, err := encode(res)
	if err != nil {
		return err
	}
	return publish(reason.ResultFile, path, data)
}

// failed turns a result into a failure of nsbox without touching what the
// program did. The first reason stays the reported one.
func failed(res launcher.Result, err error) launcher.Result {
	if res.Reason == nil {
		r := reasonOf(err)
		res.Reason = &r
	}
	res.ExitStatus = launcher.ExitRefused
	return res
}

// refuse reports an error from before any run in the forms asked for.
func refuse(args []string, c *console, err error) int {
	return reportTo(args, c, refusal(reasonOf(err)))
}

// crash reports a panic: how far the run had come is not known, so nothing is
// claimed about the program or about what is left.
func crash(args []string, c *console, err error) int {
	res := refusal(reasonOf(err))
	res.Workload = launcher.WorkloadResult{Outcome: launcher.InternalError}
	res.Cleanup.Outcome = launcher.CleanupQuarantined
	res.Delivery.Outcome = launcher.DeliveryBlocked
	return reportTo(args, c, res)
}

// reportTo reports a result made here to where unparsed arguments ask for it.
func reportTo(args []string, c *console, res launcher.Result) int {
	if len(args) == 0 || args[0] != "exec" {
		c.problem(*res.Reason)
		return launcher.ExitRefused
	}
	file, asJSON := peek(args)
	if res.Reason.ID == reason.ResultFile {
		file = "" // the file is what is wrong
	}
	return report(res, c, outputs{file: file, json: asJSON, quiet: true})
}

// refusal is the result of a run that never began: nothing was made, so
// nothing is left, and no attempt has an id.
func refusal(r launcher.Reason) launcher.Result {
	return launcher.Result{
		Schema: launcher.ResultSchema, Backend: launcher.BackendName, Version: version, Started: time.Now().UTC(),
		Workload: launcher.WorkloadResult{Outcome: launcher.SetupFailure, Detail: "refused before anything was started"},
		Artifact: launcher.ArtifactResult{Outcome: launcher.ArtifactNotExamined, Reasons: []string{}},
		Cleanup:  launcher.CleanupResult{Outcome: launcher.CleanupVerified, Leftover: []string{}},
		Delivery: launcher.DeliveryResult{Outcome: launcher.DeliveryNoArtifact},
		Reason:   &r, ExitStatus: launcher.ExitRefused,
		Degraded: []launcher.Degradation{}, Digests: launcher.Digests{Inputs: []launcher.InputDigest{}},
		DurationsMS: map[string]float64{}, Attestation: []attest.Row{}, Untrusted: launcher.Untrusted{Findings: []exporter.Finding{}},
	}
}

// watchSignals cancels the run at the first of SIGHUP, SIGINT, SIGQUIT and
// SIGTERM and absorbs the rest: a second Ctrl-C must not leave a box behind. A
// signal that was ignored when nsbox started (nohup, a background job) stays
// ignored. A closed pipe must not end the run either, so SIGPIPE becomes a write
// error. Nor may the terminal stop nsbox: a stopped launcher holds no limit.
func watchSignals(cancel context.CancelCauseFunc, c *console, quiet bool) (stop func()) {
	caught := make(chan os.Signal, 8)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(caught, s)
		}
	}
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	// Ignored and not caught: a caught SIGTTOU would make the write start over for
	// ever. It stays so, since nsbox has nothing left to do after the run.
	signal.Ignore(syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-caught:
				cause := launcher.CancelCause{Signal: s.(syscall.Signal)}
				if first {
					cancel(cause)
				}
				switch {
				case first && !quiet:
					c.note("%s; stopping the box", cause)
				case !first:
					c.note("%s; the box is being stopped already, waiting for the proof that it is gone", cause)
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
		// What the run came to stands, so a late signal must not turn it into another
		// end. It is absorbed once; the next one finds the default again, for a caller
		// whose output nobody takes.
		go func() {
			<-caught
			signal.Stop(caught)
		}()
	}
}
