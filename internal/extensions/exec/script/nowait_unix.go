//go:build unix

package script

import "golang.org/x/sys/unix"

// noWait makes an open return at once for a pipe and fail for a link.
const noWait = unix.O_NONBLOCK | unix.O_NOFOLLOW
