//go:build !unix

package extensions

import "io/fs"

const nonBlocking = 0

// linked reports whether a file has further names, where that can be told.
func linked(fs.FileInfo) bool { return false }
