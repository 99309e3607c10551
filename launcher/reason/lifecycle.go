package reason

// What stands between attempts: what a dead launcher left, who holds what, and
// what the operator's own commands about attempts meet.
const (
	// QuarantinedLeftover means that an earlier attempt of a dead launcher may still be running, so nothing new is started beside it.
	QuarantinedLeftover ID = "quarantined_leftover"
	// LeftoverUnreadable means that what an earlier attempt left could not be looked at, so nothing about it is known.
	LeftoverUnreadable ID = "leftover_unreadable"
	// SlotPlace means that there is no safe directory of the caller's account in which the use of its subordinate ids can be locked.
	SlotPlace ID = "slot_place"
	// AttemptUnknown means that no attempt of this id is recorded in the state directory.
	AttemptUnknown ID = "attempt_unknown"
	// AttemptRunning means that the launcher of the attempt is alive, so its record is not touched.
	AttemptRunning ID = "attempt_running"
	// AttemptForeign means that the directory found under the attempt's name is not the one that was made for it.
	AttemptForeign ID = "attempt_foreign"
	// ReconcileIncomplete means that something of a quarantined attempt could not be removed, or is still there.
	ReconcileIncomplete ID = "reconcile_incomplete"
	// AuditWrite means that a line of the audit log could not be written.
	AuditWrite ID = "audit_write"
	// CollectFailed means that an old record could not be removed by gc.
	CollectFailed ID = "collect_failed"
)
