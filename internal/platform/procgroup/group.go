// Package procgroup starts programs in their own process group and ends the whole group. It is
// separate from package process, so that programs without a pseudo-terminal do not link its
// library.
package procgroup
