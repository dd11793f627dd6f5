//go:build !unix

package structured

const nonBlocking = 0
