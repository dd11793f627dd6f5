//go:build !unix

package script

const noWait = 0
