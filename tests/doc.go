// Package tests holds what no single package can test: the direction of the
// imports, what our code may not do, and what the repository may not name.
package tests
