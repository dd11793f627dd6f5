//go:build !unix

package main

import (
	"os"
	"syscall"
)

// These functions do nothing: servers and nodes do not run on this platform, and it has no signal
// for a changed terminal size.
func survive()                         {}
func onResize(chan<- os.Signal)        {}
func ownSession() *syscall.SysProcAttr { return nil }
func ownGroup() *syscall.SysProcAttr   { return nil }
