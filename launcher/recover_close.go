package launcher

import (
	"slices"

	"nsbox/launcher/journal"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// auditEnd writes the audit line of an attempt that exists. Failing to is
// reported, and changes nothing about what the attempt came to.
func (r *run) auditEnd() {
	if r.att == nil {
		return
	}
	if err := r.state.auditResult(r.res, r.plan.Limits.Log.Runtime, r.plan.Lifecycle.Retention.AuditDays); err != nil && r.res.Reason == nil {
		r.res.Reason = asReason(reason.Of(err))
	}
}

// closeMark takes the attempt out of open/, unless a part of its end is not on
// record: then the next command has to look.
func (r *run) closeMark() {
	if r.att == nil || r.mark == nil {
		return
	}
	st := r.att.journal.State()
	stopped := st.Has(journal.StopProved) && (!st.Has(journal.ExporterIntent) || st.Has(journal.ExporterStopped))
	verified := r.res.Cleanup.Outcome == CleanupVerified && st.Has(journal.CleanupVerified)
	delivering := slices.Contains(st.Open(), journal.DeliverIntent)
	if !st.Has(journal.Outcome) || !stopped || delivering || !verified && !st.Has(journal.Quarantined) {
		r.mark.keep()
		return
	}
	if err := r.mark.end(r.att.dir, verified); err != nil && r.res.Reason == nil {
		r.res.Reason = asReason(reason.Of(err))
	}
}

// slotClean: no process of the attempt can be left under the slot's ids.
func (r *run) slotClean() bool { return r.att == nil || r.res.Cleanup.Outcome == CleanupVerified }

// ids are the host ids that this attempt alone has.
func (r *run) ids() *probe.Slot {
	s, err := r.gathered.facts.Identity.Map(r.slot.n)
	if err != nil {
		return nil
	}
	return &s
}
