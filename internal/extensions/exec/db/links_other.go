//go:build !unix

package db

import "io/fs"

// linked reports whether a file has further names, where that can be told.
func linked(fs.FileInfo) bool { return false }
