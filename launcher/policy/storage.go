package policy

import (
	"strconv"

	"nsbox/launcher/reason"
)

// The values of out_storage. Left out, the document asks for provisioned storage
// all the same, and the dimension out_storage may be degraded to held. Written as
// provisioned it may not. Written as held, nothing more is asked for, and
// filesystem.export_scope has to say so too.
const (
	OutProvisioned Word = "provisioned" // a slot that an operator made: it outlives nsbox
	OutHeld        Word = "held"        // made with the box, kept by a descriptor: it ends with nsbox
)

func (p *Policy) storageNote() string {
	switch p.OutStorage {
	case OutHeld:
		return "/out ends with nsbox: an artifact that is not exported yet when the launcher dies is lost"
	case OutProvisioned:
		return "/out is a slot made by nsbox provision, and a run without one is refused, whatever is allowed by name"
	}
	return "the document asks for a provisioned /out; where there is none, /out is held by the launcher, the dimension " + DimOutStorage + " is degraded and has to be allowed by name"
}

// storage holds out_storage to its two words.
func (d *decoder) storage(p *Policy) {
	switch p.OutStorage {
	case "", OutProvisioned, OutHeld:
	default:
		d.tell(reason.PolicyUnenforceable, "out_storage", strconv.QuoteToASCII(string(p.OutStorage))+" cannot be obeyed: /out is provisioned by an operator or held by the launcher", "write "+quoted([]string{string(OutProvisioned), string(OutHeld)}))
	}
}
