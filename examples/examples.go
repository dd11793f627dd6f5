// Package examples holds the sample extensions that the demo installs, so that a
// junctor anywhere can show them. The other folders are programs to read and to copy.
package examples

import (
	"embed"
	"io/fs"
)

//go:embed extensions/machine extensions/words
var files embed.FS

// Extensions are the packages of the demo, a folder each.
func Extensions() (fs.FS, error) { return fs.Sub(files, "extensions") }
