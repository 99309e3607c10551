//go:build !(linux && amd64)

package nsexec

// nsbox has been built and tested on linux/amd64 only; the interpreter is
// assembly and the filter names its architecture. This line stops the build.
var _ = nsbox_supports_only_linux_amd64
