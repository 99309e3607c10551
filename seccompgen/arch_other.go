//go:build !amd64

package seccompgen

// The rules are written and tested for the x86-64 call table only; on another
// architecture the same list would mean something nobody has looked at.
const _ = nsbox_supports_only_amd64_see_seccompgen_doc_go
