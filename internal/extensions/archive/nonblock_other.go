//go:build !unix

package archive

const nonblock = 0
