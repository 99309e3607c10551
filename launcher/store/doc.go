// Package store keeps roots and prepared packages by the digest of their
// content, and says what such a digest is.
//
// # The digest of a tree
//
// A tree's manifest is text: the line "nsbox-tree 1", then one line for each
// entry, in the order of a walk that takes the names of a directory by their
// bytes and a directory before what is in it:
//
//	d MODE NAME                    a directory; the first is the root, "."
//	f MODE SIZE SHA256 NAME        a regular file
//	l TARGET NAME                  a symbolic link
//	s MODE NUMBER NAME             a device, which no box can open (nodev)
//
// MODE is four octal digits, set-id and sticky bits included; NAME is the path
// below the root and TARGET the link's text, both quoted as in Go with
// everything but printable ASCII escaped. Owners, times, extended attributes and
// which names are hard links of one file take no part: nothing in a box depends
// on them. A tree with a pipe or socket has no digest: a process
// of the host may be behind it. The tree's digest is the
// SHA-256 of the manifest.
//
// # On disk
//
//	entries/HEX/root        the tree, owned by an id of the operator's range
//	entries/HEX/manifest    its manifest; HEX is its SHA-256
//	entries/HEX/meta        what it is, sealed
//	images/HEX, names/NAME  which tree an image or a name stands for, sealed
//	quarantine/ID/          what was refused: material, log, reason
//	new/ID/                 being made; nobody's after its maker's end
//	trash/ID/               being removed
//
// A sealed file is one line with the SHA-256 of the rest, then JSON. It finds
// damage, not forgery: whoever can write here is the operator. A tree is never
// changed once it has its name. Everything but trees belongs to the operator,
// mode 0700; a tree is readable for all because the box's ids own none of it.
//
// The lock file serialises makers and removers. A run holds a shared lock on the
// meta file of each entry it uses, and what is locked is not removed.
package store
