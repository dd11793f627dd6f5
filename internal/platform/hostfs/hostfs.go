// Package hostfs implements file operations that differ between systems: the lock by which
// only one process uses a home, the owner of a file, and the free space of a disk. On
// systems without such a lock, servers and nodes do not run; the command line works with a
// server on another machine.
package hostfs

import "errors"

// ErrHeld is the error of TryLock for a file that another process has locked.
var ErrHeld = errors.New("another process holds the lock")
