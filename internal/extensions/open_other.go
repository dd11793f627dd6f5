//go:build !unix

package extensions

import "io/fs"

const nonBlocking = 0

// linked reports false: the number of hard links is not available on this system.
func linked(fs.FileInfo) bool { return false }
