package policy

import (
	"strconv"

	"nsbox/launcher/reason"
)

// Retention is how many days records are kept after an attempt has ended: its
// directory, and its lines of the audit log. The spec's own document does not
// have it; DefaultRetention is its proposal. Quarantined attempts stay in any case.
type Retention struct {
	ResultsDays int `json:"results_days"`
	AuditDays   int `json:"audit_days"`
}

// DefaultRetention holds where a policy says nothing.
var DefaultRetention = Retention{ResultsDays: 14, AuditDays: 90}

// maxDays is ten years.
const maxDays = 3653

// Retention returns what the policy says, or the default.
func (p *Policy) Retention() Retention {
	if p.Lifecycle.Retention == nil {
		return DefaultRetention
	}
	return *p.Lifecycle.Retention
}

func (d *decoder) retention(p *Policy) {
	if p.Lifecycle.Retention == nil {
		return
	}
	for key, days := range map[string]int{"results_days": p.Lifecycle.Retention.ResultsDays, "audit_days": p.Lifecycle.Retention.AuditDays} {
		if days < 1 || days > maxDays {
			d.tell(reason.PolicyInvalid, "lifecycle.retention."+key, strconv.Itoa(days)+" days cannot be kept: want 1 to "+strconv.Itoa(maxDays), "leave lifecycle.retention out for 14 days of results and 90 of the audit log")
		}
	}
}
