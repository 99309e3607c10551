package probe

// Answer is what a probe found.
type Answer int

const (
	Unknown Answer = iota // the probe could not run; never counts as Yes
	Yes
	No
)

func (a Answer) String() string {
	switch a {
	case Yes:
		return "yes"
	case No:
		return "no"
	}
	return "unknown"
}

// MarshalText makes the answer a word in JSON.
func (a Answer) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

func answer(b bool) Answer {
	if b {
		return Yes
	}
	return No
}

// UnmarshalText reads what MarshalText wrote; any other word is Unknown.
func (a *Answer) UnmarshalText(text []byte) error {
	switch string(text) {
	case "yes":
		*a = Yes
	case "no":
		*a = No
	default:
		*a = Unknown
	}
	return nil
}
