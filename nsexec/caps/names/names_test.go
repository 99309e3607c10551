package names

import "testing"

func TestOf(t *testing.T) {
	for n, want := range map[int]string{7: "setuid", 21: "sys_admin", 4096: "unknown"} {
		if got := Of(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
