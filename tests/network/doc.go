// Package network tries what a policy's endpoints open and what they do not.
//
// Each test makes two network namespaces and a cable between them: nsbox runs in
// the one, and everything that could be reached stands in the other, where every
// kind of hit is counted by who was hit. So nothing leaves the machine, and a denial
// is shown by a count of zero beside a control of one, not by the client's error.
package network
