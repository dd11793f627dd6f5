//go:build !unix

package main

import (
	"os"
	"syscall"
)

// What no server and no node needs, because none runs here, and no signal tells of a
// terminal's size.
func survive()                         {}
func onResize(chan<- os.Signal)        {}
func ownSession() *syscall.SysProcAttr { return nil }
func ownGroup() *syscall.SysProcAttr   { return nil }
