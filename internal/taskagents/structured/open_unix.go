//go:build unix

package structured

import "syscall"

const nonBlocking = syscall.O_NONBLOCK
