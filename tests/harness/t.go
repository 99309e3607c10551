package harness

// T is what the harness needs of a test: a *testing.T has it, and so has a
// fixture that nsbox verify runs outside any Go test. Fatal and Fatalf end the
// calling goroutine.
type T interface {
	Helper()
	Log(args ...any)
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}
