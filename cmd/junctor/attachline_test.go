package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// TestLinesForASessionWithoutATerminal: keys become a line that can be repaired, and Enter
// sends it as one message.
func TestLinesForASessionWithoutATerminal(t *testing.T) {
	heard := make(chan string, 4)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		for {
			_, data, err := conn.Read(r.Context())
			if err != nil {
				return
			}
			heard <- string(data)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	a := &attached{conn: conn, session: "pty-1-a"}
	if echo := a.compose(ctx, []byte("\r\x1b")) + a.compose(ctx, []byte("grüßx")) + a.compose(ctx, []byte("\x7f\x7f")); echo != "\r\x1b[K"+
		"grüßx"+"\r\x1b[Kgrüß"+"\r\x1b[Kgrü" {
		t.Errorf(`it shows %q; want echo = "\r\x1b[K" + "grüßx" + "\r\x1b[Kgrüß" + "\r\x1b[Kgrü"`, echo)
	}
	if echo := a.compose(ctx, []byte("n\rnext")); echo != "n\r\x1b[Knext" {
		t.Errorf(`it shows %q; want echo = "n\r\x1b[Knext"`, echo)
	}
	var m struct{ Type, Text, SessionID string }
	if err := json.Unmarshal([]byte(<-heard), &m); err != nil || m.Type != "message" || m.Text != "grün" || m.SessionID != "pty-1-a" {
		t.Errorf(`it sends %+v %v; want no error, m.Type = "message", m.Text = "grün", m.SessionID = "pty-1-a"`, m, err)
	}
}
