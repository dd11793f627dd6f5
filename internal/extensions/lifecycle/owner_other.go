//go:build !unix

package lifecycle

import (
	"io/fs"
	"os"
)

func keepOwner(*os.Root, string, fs.FileInfo) error { return nil }
