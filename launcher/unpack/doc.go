// Package unpack is the code that reads what strangers made: image layers and
// wheels. It never runs in the launcher. cmd/nsbox-unpack carries it into a box
// of its own, without capabilities, network or anything of the host but what it
// has to read (read-only) and an empty directory to write to, as an id that owns
// nothing else. What it says is a [request.Report] on standard output; the launcher
// believes none of it and computes the result's digest itself.
//
//	unpack  an image of an OCI layout at /image becomes a tree at /store/root
//	wheels  each wheel at /wheels is looked at before an installer may see it
//
// # From an image to a tree
//
// Manifest, configuration and layers are hashed while they are read and compared
// with the digests that lead to them; layers stream, memory does not grow with
// the image. Every entry's directory is opened with openat2(2) and
// RESOLVE_IN_ROOT, so that a link in the tree leads where it would if the tree
// were "/", and the last component is made new, never written through. ".." in a
// name is refused.
//
// The tree is meant to be read by an id that owns none of it. So modes become
// 0755 for directories and 0444 or 0555 for files, owners are not kept, device
// nodes, pipes and sockets are left out, and set-id bits and extended attributes
// (file capabilities among them) do not survive; the report counts each. Hard
// links stay links, modification times are kept because compiled Python modules
// name that of their source.
package unpack
