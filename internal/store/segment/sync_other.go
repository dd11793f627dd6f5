//go:build !linux

package segment

import "os"

// datasync is a full flush where the system has no lesser one.
func datasync(f *os.File) error { return f.Sync() }

// syncDir does nothing: not every system can flush a directory.
func syncDir(string) error { return nil }

// lockFile only marks the directory; the server's own lock keeps others out.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
}
