//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// survive ignores SIGXFSZ, so that a limit on file sizes causes a failed write instead of the end
// of the process.
func survive() { signal.Ignore(syscall.SIGXFSZ) }

// onResize notifies c when the size of the terminal changes.
func onResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

// ownSession makes a process outlive the terminal. ownGroup prevents that Ctrl-C reaches a process
// directly.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
func ownGroup() *syscall.SysProcAttr   { return &syscall.SysProcAttr{Setpgid: true} }
