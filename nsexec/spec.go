package nsexec

// NodeKind says how one entry of the new root comes to be.
type NodeKind string

const (
	Dir      NodeKind = "dir"       // an empty directory of the root tmpfs
	File     NodeKind = "file"      // a small generated file with Data, read-only
	Symlink  NodeKind = "symlink"   // Source is the link's target, as text
	BindDir  NodeKind = "bind-dir"  // Source directory, recursively, read-only
	BindFile NodeKind = "bind-file" // Source file, read-only
	Device   NodeKind = "device"    // Source device node (null, zero, urandom)
	Tmpfs    NodeKind = "tmpfs"     // its own bounded tmpfs, nosuid nodev noexec
	Proc     NodeKind = "proc"      // a fresh proc of the box's pid namespace
)

// Access is what Landlock grants the workload below a node.
type Access uint8

const (
	Read    Access = 1 << iota // read files
	List                       // list directories
	Execute                    // execve of files
	Write                      // write, create, remove, rename within
)

// Node is one entry of the box's root. Nodes are created in order; a parent
// stands before its children. Path is absolute, clean and inside the box.
type Node struct {
	Path   string   `json:"path"`
	Kind   NodeKind `json:"kind"`
	Source string   `json:"source,omitempty"`
	Data   []byte   `json:"data,omitempty"`
	Mode   uint32   `json:"mode,omitempty"`   // permission bits of Dir, File and Tmpfs
	Bytes  int64    `json:"bytes,omitempty"`  // Tmpfs: size=
	Inodes int64    `json:"inodes,omitempty"` // Tmpfs: nr_inodes=
	UID    int      `json:"uid"`              // Tmpfs: owner of its root, inside
	GID    int      `json:"gid"`
	Access Access   `json:"access"`
}
