// Package hostfs is the little about files that each system does in its own way, and
// that more than one package needs: the lock that makes one home one process, whose a
// file is, and the room that is left on a disk. Where a system has no such lock, no
// server and no node runs there, and it is said in one place: the command line alone
// works against a server elsewhere.
package hostfs

import "errors"

// ErrHeld is what TryLock returns for a file that another process has locked.
var ErrHeld = errors.New("another process holds the lock")
