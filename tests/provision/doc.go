// Package provision sets up a launcher's account and storage for /out with nsbox
// provision, runs boxes as that account, kills launchers, and takes everything
// back. The account's name is random and made by the command under test; what the
// host had before is compared byte for byte at the end.
package provision
