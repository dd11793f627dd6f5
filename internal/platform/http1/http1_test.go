package http1_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/platform/http1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client, and how often it dialled.
type rig struct {
	*http.Client
	dials atomic.Int32
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := new(rig)
	transport := &http1.Transport{Rest: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			r.dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
		MaxResponseHeaderBytes: 4 << 10, IdleConnTimeout: time.Minute,
	}}
	r.Client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	return r
}

func (r *rig) post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := r.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, data)
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// raw is a server that does with its connections what it is told.
func raw(t *testing.T, each func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				each(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return "http://" + l.Addr().String()
}

// readRequest reads one request to its end.
func readRequest(in *bufio.Reader) bool {
	req, err := http.ReadRequest(in)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	return err == nil
}

func TestAnswersComeOverOneConnection(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		switch string(data) {
		case "nothing":
			w.WriteHeader(http.StatusNoContent)
		case "pieces":
			for range 3 {
				fmt.Fprint(w, "piece ")
				_ = http.NewResponseController(w).Flush()
			}
		case "hints":
			w.WriteHeader(http.StatusEarlyHints)
			fmt.Fprint(w, "after them")
		default:
			fmt.Fprintf(w, "%s %s %q", r.Method, r.Host, data)
		}
	})
	r := newRig(t)
	for _, tt := range []struct{ send, want string }{
		{"hello", `200 POST ` + strings.TrimPrefix(url, "http://") + ` "hello"`},
		{"nothing", "204 "},
		{"pieces", "200 piece piece piece "},
		{"hints", "200 after them"},
	} {
		if got := r.post(t, url, tt.send); got != tt.want {
			t.Errorf("%s: %s, not %s; want got = %v", tt.send, got, tt.want, tt.want)
		}
	}
	if n := r.dials.Load(); n != 1 {
		t.Errorf("it dialled %d times; want n = 1", n)
	}
}

func TestWhatItDoesNotCarryGoesToTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	echo := func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		_, _ = w.Write(data)
	}
	large := strings.Repeat("x", 1<<20)
	if got := r.post(t, serve(t, echo), large); got != "200 "+large {
		t.Errorf(`a large body: %d bytes; want got = "200 " + large`, len(got))
	}
	s := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer s.Close()
	over := &http.Client{Transport: &http1.Transport{Rest: s.Client().Transport.(*http.Transport)}}
	defer over.CloseIdleConnections()
	resp, err := over.Post(s.URL, "text/plain", strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if data, err := io.ReadAll(resp.Body); string(data) != "secret" || err != nil {
		t.Errorf(`over TLS: %q, %v; want string(data) = "secret", no error`, data, err)
	}
}

func TestAConnectionThatIsNoLongerQuietIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{"closed": "", "out of step": "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlie!"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{}, 2)
			url := raw(t, func(c net.Conn, in *bufio.Reader) {
				if readRequest(in) {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntruth")
					if after == "" {
						c.Close()
					} else {
						_, _ = io.WriteString(c, after)
					}
					done <- struct{}{}
					_, _ = in.ReadByte()
				}
			})
			r := newRig(t)
			for range 2 {
				if got := r.post(t, url, "?"); got != "200 truth" {
					t.Errorf(`answered %s; want got = "200 truth"`, got)
				}
				<-done
			}
			if n := r.dials.Load(); n != 2 {
				t.Errorf("it dialled %d times; want n = 2", n)
			}
		})
	}
}

func TestAServerMayCloseAfterItsAnswer(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		fmt.Fprint(w, "good bye")
	})
	r := newRig(t)
	for range 2 {
		if got := r.post(t, url, "?"); got != "200 good bye" {
			t.Errorf(`answered %s; want got = "200 good bye"`, got)
		}
	}
	if n := r.dials.Load(); n != 2 {
		t.Errorf("it dialled %d times; want n = 2", n)
	}
}

func TestAServerThatMisbehavesIsLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ answer, want string }{
		"nothing":          {"", "ended before the answer"},
		"half a head":      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", "ended before the answer"},
		"no HTTP":          {"220 mail.example ESMTP\r\n", "malformed HTTP"},
		"an endless head":  {"HTTP/1.1 200 OK\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("y", 80)+"\r\n", 80), "too large"},
		"only to come":     {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 20), "still to come"},
		"half a body":      {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "unexpected EOF"},
		"a wrong length":   {"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n", "bad Content-Length"},
		"a broken chunk":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid byte in chunk length"},
		"two of the sizes": {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy", "Content-Length"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := raw(t, func(c net.Conn, in *bufio.Reader) {
				if readRequest(in) {
					_, _ = io.WriteString(c, tt.answer)
				}
			})
			r := newRig(t)
			resp, err := r.Post(url, "text/plain", strings.NewReader("?"))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, not %q; want an error, err.Error() with %v", err, tt.want, tt.want)
			}
		})
	}
}

// TestARefusalIsHeardThatComesTooEarly: who will not read a request says so and closes.
func TestARefusalIsHeardThatComesTooEarly(t *testing.T) {
	t.Parallel()
	url := raw(t, func(c net.Conn, in *bufio.Reader) {
		_, _ = in.ReadString('\n')
		_, _ = io.WriteString(c, "HTTP/1.1 401 Unauthorized\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")
		_, _ = io.Copy(io.Discard, in)
	})
	if got := newRig(t).post(t, url, strings.Repeat("x", 30<<10)); got != "401 no\n" {
		t.Errorf(`answered %s; want got = "401 no\n"`, got)
	}
}

func TestTheEndOfAContextEndsTheRequest(t *testing.T) {
	t.Parallel()
	mine := errors.New("enough")
	for _, during := range []string{"the head", "the body"} {
		t.Run(during, func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{})
			begun := make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				if during == "the body" {
					_ = http.NewResponseController(w).Flush()
				}
				close(begun)
				<-r.Context().Done()
				close(left)
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() { <-begun; cancel(mine) }()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("?"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := newRig(t).Do(req)
			if err == nil {
				_, err = resp.Body.Read(make([]byte, 1))
				resp.Body.Close()
			}
			if !errors.Is(err, mine) {
				t.Errorf("%v; want err is %v", err, mine)
			}
			<-left // its connection is closed
		})
	}
}

func TestABodyThatIsNotReadToItsEndCostsTheConnection(t *testing.T) {
	t.Parallel()
	left := make(chan struct{}, 1)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "for ever")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- struct{}{}
	})
	r := newRig(t)
	resp, err := r.Post(url, "text/plain", strings.NewReader("?"))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := resp.Body.Read(make([]byte, 3)); n != 3 || err != nil {
		t.Errorf("resp.Body.Read(make([]byte, 3)) = %v, err = %v, want n == 3 && err == nil", n, err)
	}
	resp.Body.Close()
	<-left
	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a closed body was read; want an error")
	}
}

func TestConnectionsAreNotMixedUp(t *testing.T) {
	t.Parallel()
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Query", r.URL.RawQuery)
		_, _ = w.Write(data)
	})
	r := newRig(t)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				want := fmt.Sprintf("%d-%d", worker, i)
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/?"+want, strings.NewReader(strings.Repeat(want+" ", 1+i*7)))
				if err != nil {
					t.Error(err)
				}
				given := i%5 == 4
				if given {
					go cancel() // at any moment
				}
				resp, err := r.Do(req)
				if err == nil {
					var data []byte
					data, err = io.ReadAll(resp.Body)
					if err == nil && (string(data) != strings.Repeat(want+" ", 1+i*7) || resp.Header.Get("X-Query") != want) {
						t.Errorf("%s was answered as %s: %.80s", want, resp.Header.Get("X-Query"), data)
					}
					resp.Body.Close()
				}
				if err != nil && !given {
					t.Errorf("%s: %v; want not (err != nil && !given)", want, err)
				}
				cancel()
			}
		})
	}
	all.Wait()
}

// TestIdleConnectionsAreClosed: a pipe cannot be looked at, so it is not used again,
// but it is kept until its time is over.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan time.Duration, 1)
		began := time.Now()
		transport := &http1.Transport{Rest: &http.Transport{
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 10,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					in := bufio.NewReader(far)
					for readRequest(in) {
						_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
					closed <- time.Since(began)
				}()
				return near, nil
			},
		}}
		resp, err := (&http.Client{Transport: transport}).Post("http://far", "text/plain", bytes.NewReader([]byte("?")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if after := <-closed; after != time.Minute {
			t.Errorf("it was closed after %s; want after = time.Minute", after)
		}
	})
}

// lookable is a connection in a bubble that is as quiet as a real one.
type lookable struct {
	net.Conn
	as syscall.Conn
}

func (l lookable) SyscallConn() (syscall.RawConn, error) { return l.as.SyscallConn() }

// TestAConnectionThatItsServerMayCloseNowIsNotUsed holds that a connection is used again for four seconds only.
func TestAConnectionThatItsServerMayCloseNowIsNotUsed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	real, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatalf("dialling: %v", err)
	}
	t.Cleanup(func() { _ = real.Close() })
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		transport := &http1.Transport{Rest: &http.Transport{
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 10,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				dials++
				near, far := net.Pipe()
				go func() {
					in := bufio.NewReader(far)
					for readRequest(in) {
						_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}()
				return lookable{near, real.(syscall.Conn)}, nil
			},
		}}
		for _, c := range []struct {
			idle time.Duration
			want int // connections
		}{{0, 1}, {3 * time.Second, 1}, {3 * time.Second, 1}, {5 * time.Second, 2}} {
			time.Sleep(c.idle) // of the bubble
			resp, err := (&http.Client{Transport: transport}).Post("http://far", "text/plain", bytes.NewReader([]byte("?")))
			if err != nil {
				t.Fatalf("after %s: %v", c.idle, err)
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				t.Fatalf("after %s: %v", c.idle, err)
			}
			resp.Body.Close()
			if dials != c.want {
				t.Errorf("after %s: got %d connections, want %d", c.idle, dials, c.want)
			}
		}
		transport.CloseIdleConnections()
	})
}

func TestARequestIsNotSentForWhoIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1:1", strings.NewReader("?"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Do(req); !errors.Is(err, context.Canceled) || r.dials.Load() != 0 {
		t.Errorf("%v after %d dials; want err is context.Canceled, r.dials.Load() = 0", err, r.dials.Load())
	}
}
