//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// survive makes a limit on file sizes a failed write, which the log survives, and not
// the end of the process.
func survive() { signal.Ignore(syscall.SIGXFSZ) }

// onResize sends to c whenever the terminal has another size.
func onResize(c chan<- os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

// A session of its own outlives the terminal; in a group of its own, Ctrl-C reaches a
// program through us alone.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
func ownGroup() *syscall.SysProcAttr   { return &syscall.SysProcAttr{Setpgid: true} }
