package provision

// The names of the profiles, which are also their files' below /etc/apparmor.d.
const (
	ProfileLauncher = "nsbox"
	ProfileWorkload = "nsbox-workload"
)

// launcherProfile confines nothing: nsbox is trusted and gives up its rights
// itself. It exists for its one rule.
func launcherProfile(binary string) string {
	return `# Made by nsbox provision; nsbox provision --undo removes it.
abi <abi/4.0>,
include <tunables/global>

profile ` + ProfileLauncher + ` ` + binary + ` flags=(unconfined) {
  userns,

  include if exists <local/` + ProfileLauncher + `>
}
`
}

// workloadProfile has no attachment: it holds where it is asked for at exec.
// What is not listed is denied: capabilities, mounts, new user namespaces,
// tracing, sockets other than AF_UNIX, and signals to others. Which files there
// are is the mount table's and Landlock's part.
const workloadProfile = `# Made by nsbox provision; nsbox provision --undo removes it.
abi <abi/4.0>,
include <tunables/global>

profile ` + ProfileWorkload + ` flags=(attach_disconnected) {
  file,
  network unix,
  unix peer=(label=` + ProfileWorkload + `),
  signal peer=` + ProfileWorkload + `,
  signal (receive) peer=` + ProfileLauncher + `,
  signal (receive) peer=unconfined,

  include if exists <local/` + ProfileWorkload + `>
}
`
