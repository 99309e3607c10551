package nsexec

import "nsbox/seccompgen/filter"

// NodeKind says how one entry of the new root comes to be.
type NodeKind string

const (
	Dir      NodeKind = "dir"       // an empty directory of the root tmpfs
	File     NodeKind = "file"      // a small generated file with Data, read-only
	Symlink  NodeKind = "symlink"   // Source is the link's target, as text
	BindDir  NodeKind = "bind-dir"  // Source directory, recursively, read-only
	BindFile NodeKind = "bind-file" // Source file, read-only
	Device   NodeKind = "device"    // Source device node (null, zero, urandom)
	Tmpfs    NodeKind = "tmpfs"     // its own bounded tmpfs, nosuid nodev, noexec unless Exec
	Storage  NodeKind = "storage"   // Source, a bounded file system that outlives the box; writable, nosuid nodev noexec
	Proc     NodeKind = "proc"      // a fresh proc of the box's pid namespace
	Devpts   NodeKind = "devpts"    // an instance of its own, for terminals made inside
	Part     NodeKind = "part"      // a directory of the Tmpfs at path Source, and of its budget
)

// Access is what Landlock grants the workload below a node.
type Access uint8

const (
	Read    Access = 1 << iota // read files
	List                       // list directories
	Execute                    // execve of files
	Write                      // write, create, remove, rename within
	Control                    // ioctl of device files: terminals
)

// Node is one entry of the box's root. Nodes are created in order; a parent
// stands before its children. Path is absolute, clean and inside the box.
type Node struct {
	Path   string   `json:"path"`
	Kind   NodeKind `json:"kind"`
	Source string   `json:"source,omitempty"`
	Data   []byte   `json:"data,omitempty"`
	Mode   uint32   `json:"mode,omitempty"`   // permission bits of Dir, File, Tmpfs and Part
	Bytes  int64    `json:"bytes,omitempty"`  // Tmpfs: size=; Storage: what the source must show; 0: it is no file system of its own
	Inodes int64    `json:"inodes,omitempty"` // Tmpfs: nr_inodes=; Storage: what the source must show
	UID    int      `json:"uid"`              // Tmpfs: owner of its root, inside
	GID    int      `json:"gid"`
	NoExec bool     `json:"noexec,omitempty"` // BindDir, BindFile: no execve and no executable mapping
	Exec   bool     `json:"exec,omitempty"`   // Tmpfs: files in it and its Parts may be executed
	Access Access   `json:"access"`
}

// MapEntry is one line of uid_map or gid_map: Count ids from Inside on are
// Host.. on the host.
type MapEntry struct {
	Inside int `json:"inside"`
	Host   int `json:"host"`
	Count  int `json:"count"`
}

// Identity is the id maps and who writes them. With an empty helper path the
// launcher writes the map itself (it must hold CAP_SETUID in its user namespace).
type Identity struct {
	Kind      string     `json:"kind"`
	UIDs      []MapEntry `json:"uids"`
	GIDs      []MapEntry `json:"gids"`
	UIDHelper string     `json:"uid_helper,omitempty"` // newuidmap(1), checked absolute path
	GIDHelper string     `json:"gid_helper,omitempty"`
	Nested    bool       `json:"nested,omitempty"` // one id only: the maps are of 0 alone, and the program has a namespace inside; see nested.go
}

// Rlimit is one setrlimit(2) value for the workload; Soft and Hard in the
// resource's own unit.
type Rlimit struct {
	Name     string `json:"name"`
	Resource int    `json:"resource"`
	Soft     uint64 `json:"soft"`
	Hard     uint64 `json:"hard"`
}

// Command is what the child execs after "go". With Self it is nsbox's own
// descriptor (a stage named by Argv[0]) and Path is not used.
type Command struct {
	Path string   `json:"path,omitempty"`
	Self bool     `json:"self,omitempty"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// OpenBelow asks the set-up to open Name below descriptor Dir (a passed
// descriptor's number inside) for the child, as number To. A failure is data:
// To is then closed.
type OpenBelow struct {
	Dir  int    `json:"dir"`
	Name string `json:"name"`
	To   int    `json:"to"`
}

// Spec is everything the box needs to know: plain data, no policy.
type Spec struct {
	Hostname     string         `json:"hostname"`
	StagingPoint string         `json:"staging_point"` // an existing host directory; mounted over in the box's own mount namespace only
	Root         []Node         `json:"root"`
	MaskProc     []string       `json:"mask_proc"` // below /proc, covered by /dev/null where present
	MaskDirs     []string       `json:"mask_dirs"` // the same for directories, covered by an empty one
	UID          int            `json:"uid"`
	GID          int            `json:"gid"`
	Rlimits      []Rlimit       `json:"rlimits"`
	Umask        uint32         `json:"umask"`
	Affinity     int            `json:"affinity"`     // single cpu to pin to, or -1
	LandlockABI  int            `json:"landlock_abi"` // 0: no Landlock, by the operator's word
	Command      Command        `json:"command"`
	Stdin        bool           `json:"stdin"`              // a pipe instead of /dev/null
	Terminal     *Terminal      `json:"terminal,omitempty"` // instead of all three streams; Stdin is then false
	Hold         string         `json:"hold,omitempty"`     // directory whose descriptor is handed out before "go"
	Open         []OpenBelow    `json:"open,omitempty"`
	Listable     int            `json:"listable"`                // passed directory descriptor made 0555 and so sealed, or -1
	Listen       []Listen       `json:"listen,omitempty"`        // where the box listens for its endpoints; none: lo stays down
	AnySocket    bool           `json:"any_socket,omitempty"`    // the filter has no rule on sockets, by the operator's word: none is probed
	NoUnixPaths  bool           `json:"no_unix_paths,omitempty"` // the filter keeps the program from every socket that has a path: probed
	CapLast      int            `json:"cap_last"`                // highest capability the kernel knows
	Identity     Identity       `json:"identity"`
	InitFilter   filter.Program `json:"-"`
	Filter       filter.Program `json:"-"`
	SharedVM     bool           `json:"shared_vm"` // CLONE_VM: the set-up runs in the launcher's memory until it execs
}

// maxPass bounds the descriptors handed into a box.
const maxPass = 8
