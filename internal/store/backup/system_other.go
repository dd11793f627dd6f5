//go:build !unix

package backup

import (
	"io/fs"
	"os"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

func owner(string, fs.FileInfo) int { return 0 }

// openBeneath always fails: a system that cannot run a server does not have homes.
func openBeneath(*os.File, string) (*os.File, error) { return nil, hostfs.Supported() }
