//go:build !linux

package segment

import "os"

// datasync flushes the whole file, because the system lacks fdatasync.
func datasync(f *os.File) error { return f.Sync() }

// syncDir does nothing, because not every system can flush a directory.
func syncDir(string) error { return nil }

// lockFile only creates the file; the server's own lock excludes other processes.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
}
