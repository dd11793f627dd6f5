//go:build !unix

package http1

import "net"

const canLook = false

func quiet(net.Conn) bool { return false }
