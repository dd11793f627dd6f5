//go:build unix

package script

import "golang.org/x/sys/unix"

// noWait opens no pipe and follows no link.
const noWait = unix.O_NONBLOCK | unix.O_NOFOLLOW
