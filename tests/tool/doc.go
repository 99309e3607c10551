// Package tool holds the tests of the everyday box: the preset tool, its twelve
// workloads with their real programs, the shell and its terminal (driven by
// tmux), live binds, and programs that use nsbox.
package tool
