// Package rootfs holds the tests of roots that are not the host's, of the store
// and of prepared packages, over the built binary.
//
// debian_test.go uses a whole Debian root, which root.sh makes once with
// mmdebstrap; layouts_test.go uses miniatures: a few files laid out as the
// distribution lays them out, around programs that are compiled here. Alpine and
// Ubuntu themselves cannot be fetched where these tests were written.
package rootfs
