//go:build !unix

package runner

import "io/fs"

const nonblock = 0

func stampOf(info fs.FileInfo) stamp { return stamp{size: info.Size(), at: info.ModTime()} }

func links(fs.FileInfo) uint64 { return 1 }
