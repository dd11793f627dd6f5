//go:build unix && !linux

package procgroup

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {} // these systems cannot do it
