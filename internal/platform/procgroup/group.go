// Package procgroup starts programs in a process group of their own and ends the whole group.
// It is apart from package process so that programs that need no pseudo-terminal do not
// link the library for it.
package procgroup
