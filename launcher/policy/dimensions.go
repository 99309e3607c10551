package policy

import (
	"strconv"

	"nsbox/launcher/reason"
)

// The dimensions that the operator's word may weaken. Each run says what holds
// in a weakened one's place.
const (
	DimMemory           = "memory"            // memory and swap of the whole job
	DimCPURate          = "cpu_rate"          // share of a core
	DimCPUTotal         = "cpu_total"         // cumulative cpu time of the tree
	DimLauncherIdentity = "launcher_identity" // launcher is a dedicated unprivileged user
	DimOutStorage       = "out_storage"       // /out outlives the launcher
	DimIdentity         = "identity"          // workload ids are not the operator's
	DimLandlock         = "landlock"          // Landlock besides mounts
	DimSeccompNetwork   = "seccomp_network"   // the filter's rule on sockets besides the network namespace
)

// Dimensions lists the names --allow-degraded and degrade take.
func Dimensions() []string {
	return []string{DimMemory, DimCPURate, DimCPUTotal, DimLauncherIdentity, DimOutStorage, DimIdentity, DimLandlock, DimSeccompNetwork}
}

// CheckDimensions refuses a name that is none of Dimensions. A doubled one is
// harmless, and so is one that turns out to be enforced.
func CheckDimensions(names []string) error {
	for _, name := range names {
		if next := badDimension(name); next != "" {
			return reason.New(reason.DegradeUnknown, strconv.QuoteToASCII(name), "is no dimension that can be degraded", next)
		}
	}
	return nil
}

// badDimension returns the next step for an unknown name, or "".
func badDimension(name string) string {
	for _, d := range Dimensions() {
		if d == name {
			return ""
		}
	}
	return didYouMean(name, Dimensions())
}
