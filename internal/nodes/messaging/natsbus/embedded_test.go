package natsbus

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheDirectoryMayBeLostOrDamaged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "nats")
	write := func() {
		t.Helper()
		b, err := Embed(t.Context(), dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		k, err := b.Bucket(t.Context(), messaging.BucketOptions{Name: "nodes"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Put(t.Context(), "a", []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		b, err := Embed(t.Context(), dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		k, err := b.Bucket(t.Context(), messaging.BucketOptions{Name: "nodes"})
		if err != nil {
			t.Fatal(err)
		}
		e, err := k.Get(t.Context(), "a")
		if err != nil && capability.CodeOf(err) != capability.CodeNotFound {
			t.Fatalf("%v; want not (err != nil && capability.CodeOf(err) != capability.CodeNotFound)", err)
		}
		return string(e.Value)
	}
	write()
	if got := read(); got != "1" {
		t.Errorf(`after a restart there is %q; want got = "1"`, got)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.WriteFile(path, []byte("damaged"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	read() // whatever is there: it starts
	write()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, []byte("a file where the directory was"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "" {
		t.Errorf(`in an empty directory there is %q; want got = ""`, got)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v; want no error, info.Mode().Perm() = 0o700", info.Mode(), err)
	}
}

// TestAStrangerWithItsOwnClient tries what our client does not let a node do.
func TestAStrangerWithItsOwnClient(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	errs := make(chan string, 1000)
	refused := func(what string) string {
		t.Helper()
		select {
		case text := <-errs:
			return text
		case <-time.After(time.Minute):
			t.Errorf("%s was not refused", what)
			return what
		}
	}
	nc, err := nats.Connect(strings.Replace(serveWeb(t, b), "http", "ws", 1)+natsdial.ConnectPath, nats.Token("token"), nats.Name("n1"),
		nats.CustomInboxPrefix("_INBOX.n1"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { errs <- err.Error() }))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, subject := range []string{
		"$JS.API.INFO", "$JS.API.STREAM.CREATE.mine", "$JS.API.STREAM.DELETE.KV_nodes", "$KV.nodes.n2", "$SYS.REQ.SERVER.PING",
		"$SYS.REQ.USER.AUTH", "_INBOX.gw.x", "_INBOX.n2.x", "v1.gw.n2.beat",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		if text := refused(subject); !strings.Contains(text, subject) {
			t.Errorf("publishing to %s: %s; want text with %v", subject, text, subject)
		}
	}
	for _, subject := range []string{"$SYS.>", "$SYS.REQ.USER.AUTH", "$KV.>", "$JS.>", "_INBOX.gw.>", ">", "_R_.>"} {
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if text := refused(subject); !strings.Contains(text, subject) {
			t.Errorf("subscribing to %s: %s; want text with %v", subject, text, subject)
		}
	}
	for i := range messaging.MaxSubscriptions + 2 {
		if _, err := nc.SubscribeSync(fmt.Sprintf("v1.host.n1.%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if text := refused("maximum subscriptions"); !strings.Contains(text, "maximum subscriptions") {
		t.Errorf(`more subscriptions than there may be: %s; want text with "maximum subscriptions"`, text)
	}
	if n := nc.MaxPayload(); n != maxWire {
		t.Errorf("the server takes %d bytes; want n = %v", n, maxWire)
	}
}

// rawSession speaks WebSocket by hand up to the first message of the server.
func rawSession(t *testing.T, url string, header string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n%s\r\n", natsdial.ConnectPath, c.RemoteAddr(), header)
	r := bufio.NewReader(c)
	status, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return c, r, strings.TrimSpace(status)
}

func TestTheDoorDecidesBeforeTheBus(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	door := func(r *http.Request) error {
		if r.Header.Get("Authorization") == "" {
			return capability.Errorf(capability.CodeUnauthenticated, "nodes.connect", "a node token is needed")
		}
		return nil
	}
	web := httptest.NewServer(b.Handler(door))
	t.Cleanup(web.Close)
	if _, _, status := rawSession(t, web.URL, ""); !strings.Contains(status, "401") {
		t.Errorf(`without a token: %s; want status with "401"`, status)
	}
	if _, _, status := rawSession(t, web.URL, "Authorization: Bearer x\r\nOrigin: http://elsewhere.example\r\n"); !strings.Contains(status,
		"403") {
		t.Errorf(`from another origin: %s; want status with "403"`, status)
	}
	if _, _, status := rawSession(t, web.URL, "Authorization: Bearer x\r\n"); !strings.Contains(status, "101") {
		t.Errorf(`with a token: %s; want status with "101"`, status)
	}
	// The node is told why.
	refusing := httptest.NewServer(b.Handler(func(*http.Request) error {
		return capability.Errorf(capability.CodeUnauthenticated, "nodes.connect", "this token was revoked")
	}))
	t.Cleanup(refusing.Close)
	c, err := dialer(t, refusing.URL)(t.Context(), options("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for e, err := range c.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if messaging.Is(e.Err, messaging.ReasonRefused) {
			break
		}
	}
}

// TestASessionThatTakesNothingIsClosed: 27.2, pending bytes.
func TestASessionThatTakesNothingIsClosed(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	sessions := b.Sessions(ctx)
	url := serveWeb(t, b)
	c, r, _ := rawSession(t, url, "")
	// One masked frame: CONNECT and SUB. Then nothing is read any more.
	text := `CONNECT {"auth_token":"token","name":"n1","verbose":false}` + "\r\nSUB v1.host.n1.> 1\r\nPING\r\n"
	frame := append([]byte{0x82, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
	if len(text) > 125 {
		t.Fatalf("the frame needs a longer form; got len(text) = %v; want len(text) at most 125", len(text))
	}
	if _, err := c.Write(frame); err != nil {
		t.Fatal(err)
	}
	seen := ""
	for !strings.Contains(seen, "PONG") {
		buf := make([]byte, 1000)
		n, err := r.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(buf[:n])
	}
	data := make([]byte, messaging.MaxInline)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if b.own.Publish(ctx, messaging.Message{Subject: "v1.host.n1.bulk", Data: data}) != nil {
				return
			}
			_ = b.own.Flush(ctx)
		}
	}()
	closed := false
	for e, err := range sessions {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == messaging.SessionClosed && e.Session.Identity == "n1" {
			closed = true
			break
		}
	}
	close(stop)
	<-done
	if !closed {
		t.Error("the session is still there")
	}
	// The others never noticed.
	if err := b.own.Flush(ctx); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, c)
}

func TestASeedIsReadBack(t *testing.T) {
	t.Parallel()
	seed, key, err := natsdial.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := natsdial.ParseKey(seed)
	if err != nil || again.Public != key.Public || !strings.HasPrefix(key.Public, "U") {
		t.Errorf(`%s became %s, %v; want no error, again.Public = %v, key.Public beginning with "U"`,
			key.Public, again.Public, err, key.Public)
	}
	if _, err := natsdial.ParseKey(secret.New("SUAnonsense")); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a seed that is none: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestWhatServersAreToldHoldsNoSecret(t *testing.T) {
	t.Parallel()
	text, err := ServerConfig(shared())
	if err != nil {
		t.Fatal(err)
	}
	again, _ := ServerConfig(shared())
	other, _ := ServerConfig(secret.New(strings.Repeat("y", 40)))
	if text != again || text == other || strings.Contains(text, shared().Reveal()) || strings.Contains(text, "SU") ||
		strings.Contains(text, "SA") {
		t.Errorf("the servers are told:\n%s\nwant text = %v, text other than %v, text without shared().Reveal(), text without "+
			`"SU", text without "SA"`, text, again, other)
	}
}

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "host", "ftp://host", "https://", "https://user:password@host", "://", "http://gateway.example",
		"nats://10.0.0.1:4222",
	} {
		if _, err := natsdial.Dialer(address, nil); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", address, err)
		} else if strings.Contains(err.Error(), "password@") {
			t.Errorf(`the refusal repeats the password: %v; want err.Error() without "password@"`, err)
		}
	}
}

func TestAnEncryptedGatewayIsReachedAndAForeignCertificateIsNot(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, b.Handler(func(*http.Request) error { return nil }))
	web := httptest.NewUnstartedServer(mux)
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	web.StartTLS()
	t.Cleanup(web.Close)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	dial, err := natsdial.Dialer(web.URL, &tls.Config{RootCAs: roots})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context(), options("n1"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	await(t, eventsOf(t, c), messaging.Connected)
	if err := c.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	foreign, err := dialer(t, web.URL)(t.Context(), options("n2"))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	for e, err := range foreign.Events(t.Context()) {
		if err != nil || e.Kind == messaging.Connected {
			t.Fatalf("a certificate that nobody vouches for was taken: %v; want no error, e.Kind other than messaging.Connected", err)
		}
		if e.Err != nil && strings.Contains(e.Err.Error(), "certificate") {
			break
		}
	}
}

func TestASessionHoldsItsTurnOnlyUntilItIsLetIn(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	dial := dialer(t, serveWeb(t, b))
	come := func(name string) messaging.Conn {
		t.Helper()
		c, err := dial(t.Context(), options(name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	connected := func(c messaging.Conn) {
		t.Helper()
		for e, err := range c.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == messaging.Connected {
				return
			}
		}
	}
	connected(come("n1"))
	for range opening { // also that of the session, which goes on
		select {
		case b.opening <- struct{}{}:
		case <-time.After(time.Minute):
			t.Fatal("a session that was let in holds its turn")
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.turn(ctx); err == nil {
		t.Error("there was a turn more than there are; want an error")
	}
	late := come("n2")
	<-b.opening
	connected(late)
}

// TestAFloodOfOneSessionIsSlowed holds that a session cannot send messages faster than the gateway's queues,
// which all nodes share, are read.
func TestAFloodOfOneSessionIsSlowed(t *testing.T) {
	t.Parallel()
	b := embed(t, anybody)
	dial := dialer(t, serveWeb(t, b))
	const burst, perSecond = 4000, 80_000
	const messages, minDelay = burst + perSecond/2, 450 * time.Millisecond
	conn, err := dial(t.Context(), options("flood"))
	if err != nil {
		t.Fatalf("dialing: got %v, want no error", err)
	}
	defer conn.Close()
	await(t, eventsOf(t, conn), messaging.Connected)
	began := time.Now()
	for range messages {
		if err := conn.Publish(t.Context(), messaging.Message{Subject: "v1.gw.flood.beat", Data: []byte("{}")}); err != nil {
			t.Fatalf("publishing a heartbeat: got %v, want no error", err)
		}
	}
	if err := conn.Flush(t.Context()); err != nil {
		t.Fatalf("flushing: got %v, want no error", err)
	}
	if took := time.Since(began); took < minDelay {
		t.Errorf("%d messages took %v, want at least %v", messages, took, minDelay)
	}
}
