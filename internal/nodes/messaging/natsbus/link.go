package natsbus

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// dialServer opens a connection to a server on behalf of a session that is passed
// on. Encryption to the server is this side's affair, and so are the addresses of
// other servers: both are taken out of what the server says first.
func dialServer(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, errors.New("there is no server to pass sessions on to")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, err
	}
	linked, err := greet(ctx, conn, u, config)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return linked, nil
}

// greet reads what the server says first and encrypts where the server or the
// address asks for it.
func greet(ctx context.Context, conn net.Conn, u *url.URL, config *tls.Config) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	// The server sends nothing more before it has received something, so nothing is
	// left in the reader.
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxInfo), 4<<10).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the server's first line cannot be read: %w", err)
	}
	text, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("INFO "))
	var info map[string]json.RawMessage
	if !ok || json.Unmarshal(text, &info) != nil {
		return nil, errors.New("it is not a NATS server")
	}
	if string(info["tls_required"]) == "true" || u.Scheme == "tls" {
		secured := &tls.Config{MinVersion: tls.VersionTLS12}
		if config != nil {
			secured = config.Clone()
		}
		if secured.ServerName == "" {
			secured.ServerName = u.Hostname()
		}
		over := tls.Client(conn, secured)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = over
	}
	for _, name := range []string{"tls_required", "tls_available", "tls_verify", "connect_urls", "ws_connect_urls"} {
		delete(info, name)
	}
	told, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	return &greeted{Conn: conn, first: fmt.Appendf(nil, "INFO %s\r\n", told)}, nil
}

// greeted is a connection whose first line has been read and changed.
type greeted struct {
	net.Conn
	first []byte
}

func (g *greeted) Read(p []byte) (int, error) {
	if len(g.first) > 0 {
		n := copy(p, g.first)
		g.first = g.first[n:]
		return n, nil
	}
	return g.Conn.Read(p)
}
