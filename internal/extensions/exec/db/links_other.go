//go:build !unix

package db

import "io/fs"

// linked reports false: the number of hard links is not available on this system.
func linked(fs.FileInfo) bool { return false }
