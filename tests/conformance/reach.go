package conformance

import (
	"fmt"
	"slices"
	"strings"

	"nsbox/tests/harness"
)

func reachFixtures() []Fixture {
	return []Fixture{
		{ID: "S12", Title: "addresses beside the box", Profile: "TP-PROD", Run: s12,
			Attempt: "12 connects: loopback, private, metadata and IPv6 mocks, proxy variables, raw addresses",
			Shows:   "no listener is reached; each listener counts, whatever the client was told", Cannot: "redirects and rebinding, which need an allowed destination: NOT_APPLICABLE here"},
	}
}

// mocks are the addresses a box must not reach: loopback, private, the metadata
// service's, and IPv6.
var mocks = []string{"127.0.0.1", "10.77.0.1", "192.168.77.1", "169.254.169.254", "fd00:77::1", "::1"}

// connect tries each address and says how it went; it never looks names up.
const connect = `import errno, os, socket, sys
for where in sys.argv[1:]:
    host, _, port = where.rpartition(':')
    host = host.strip('[]')
    try:
        s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(3)
        s.connect((host, int(port)))
        print(where, 'ok', s.recv(16).decode().strip())
    except OSError as e:
        print(where, errno.errorcode.get(e.errno, str(e)))
    except BaseException as e:
        print(where, type(e).__name__)
print('proxies', sorted(k for k in os.environ if 'proxy' in k.lower()))
`

func s12(c *Case) {
	n := c.ownNetwork("10.77.0.1", "192.168.77.1", "169.254.169.254", "fd00:77::1")
	var where []string
	for i, a := range mocks {
		where = append(where, n.listen(a, uint16(18080+i)).addr.String())
	}
	job := harness.Job{Code: connect, Args: where, Env: []string{"http_proxy=http://10.77.0.1:18081", "HTTPS_PROXY=http://10.77.0.1:18081"}}
	c.Control("outside the box the same program reaches every listener", func() {
		out := string(c.OnHost(job).Stdout)
		if strings.Count(out, " ok mock") != len(where) || slices.Contains(n.hits(), 0) {
			c.Errorf("hits %v, printed %s", n.hits(), out)
		}
	})
	before := n.hits()
	twice := job
	twice.Args = append(append([]string{}, where...), where...)
	run := c.Do(twice).WantOK()
	out := string(run.Stdout)
	c.Note("inside", strings.TrimSpace(out))
	if strings.Contains(out, " ok") || !strings.Contains(out, "proxies []") || strings.Count(out, "\n") != len(twice.Args)+1 {
		c.Errorf("printed %s", out)
	}
	if after := n.hits(); !slices.Equal(before, after) {
		c.Errorf("hits %v before, %v after", before, after)
	}
	c.Note("hits", fmt.Sprint(n.hits(), ", all of the control"))
}
