package webpush

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got %v, want no error", what, err)
	}
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

// world is the policy and the audit log of a test. Token tok_NAME belongs to operator:NAME.
type world struct {
	mu        sync.Mutex
	revoked   map[string]bool
	roles     map[string]capability.Role
	approvals map[string]policy.Approval
	records   []string // event, principal, cause
}

func (w *world) StandingToken(id string) (policy.Token, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := policy.Token{ID: id, Name: strings.TrimPrefix(id, "tok_"), Role: capability.RoleOperator}
	if r, ok := w.roles[id]; ok {
		t.Role = r
	}
	return t, !w.revoked[id]
}

func (w *world) Approval(_ context.Context, id string) (policy.Approval, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a, ok := w.approvals[id]
	if !ok {
		return a, errors.New("not found")
	}
	return a, nil
}

func (w *world) Approvals(context.Context, policy.ApprovalState, string, int) (list []policy.Approval, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.approvals {
		list = append(list, a)
	}
	return list, nil
}

func (w *world) Append(_ context.Context, r audit.Record, _ audit.Durability) (audit.Receipt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := string(r.Event) + " " + r.Metadata.Principal.ID
	for _, a := range r.Metadata.Attrs {
		if a.Key == "cause" {
			line += ": " + a.Value
		}
	}
	w.records = append(w.records, line)
	return audit.Receipt{}, nil
}

func (w *world) recorded() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records)
}

// set stores an approval.
func (w *world) set(a policy.Approval) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.approvals[a.ID] = a
}

func pending(id string) policy.Approval {
	a := policy.Approval{ID: id, Kind: "call", State: policy.ApprovalPending, Channel: policy.ChannelOperator, Effect: capability.EffectWrite, Asked: time.Now()}
	a.Principal, a.Capability = "agent:codex", "mcp.files/write_file#ext.mcp.files.write_file@default"
	a.Summary, a.Input = "writes very-secret", []byte(`{"text":"very-secret"}`)
	return a
}

// service is a push service on loopback. Each request is answered by the next of its answers,
// or with 201.
type service struct {
	*httptest.Server
	t       *testing.T
	got     chan *http.Request // with the body in memory
	answers chan http.HandlerFunc
}

func newService(t *testing.T) *service {
	t.Helper()
	v := &service{t: t, got: make(chan *http.Request, 64), answers: make(chan http.HandlerFunc, 64)}
	v.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the body of a push: %v", err)
		}
		kept := r.Clone(context.WithoutCancel(r.Context()))
		kept.Body = io.NopCloser(strings.NewReader(string(body)))
		v.got <- kept
		select {
		case answer := <-v.answers:
			answer(w, r)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	v.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	v.StartTLS()
	t.Cleanup(v.Close)
	return v
}

// answer sets the next answer.
func (v *service) answer(status int, header ...string) {
	v.answers <- func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
	}
}

func (v *service) next() *http.Request {
	v.t.Helper()
	select {
	case r := <-v.got:
		return r
	case <-time.After(time.Minute):
		v.t.Fatalf("got no push, want one")
		return nil
	}
}

// browser is a subscription with its private key.
type browser struct {
	Subscription
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(t *testing.T, endpoint, name string) browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	must(t, "GenerateKey", err)
	auth := make([]byte, 16)
	_, _ = rand.Read(auth)
	return browser{Subscription{
		Principal: "operator:" + name, Token: "tok_" + name, Name: "Firefox", Endpoint: endpoint, P256dh: encode(key.PublicKey().Bytes()),
		Auth: encode(auth),
	}, key, auth}
}

// decrypt returns the message in a body, as RFC 8291 and RFC 8188 define it.
func (b browser) decrypt(t *testing.T, body []byte) []byte {
	t.Helper()
	if len(body) < 86 || body[20] != 65 || int(binary.BigEndian.Uint32(body[16:20])) < len(body)-86 {
		t.Fatalf("the body has %d bytes and the head % x, want one record with a key of 65 bytes", len(body), body[:min(len(body), 21)])
	}
	salt, sender, sealed := body[:16], body[21:86], body[86:]
	public, err := ecdh.P256().NewPublicKey(sender)
	must(t, "the key of the sender", err)
	shared, err := b.key.ECDH(public)
	must(t, "ECDH", err)
	derive := func(key, salt []byte, info string, n int) []byte {
		out, err := hkdf.Key(sha256.New, key, salt, info, n)
		must(t, "HKDF", err)
		return out
	}
	ikm := derive(shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(sender), 32)
	block, err := aes.NewCipher(derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	must(t, "the key of the content", err)
	gcm, err := cipher.NewGCM(block)
	must(t, "GCM", err)
	plain, err := gcm.Open(nil, derive(ikm, salt, "Content-Encoding: nonce\x00", 12), sealed, nil)
	must(t, "decrypt", err)
	plain = []byte(strings.TrimRight(string(plain), "\x00"))
	if len(plain) == 0 || plain[len(plain)-1] != 2 {
		t.Fatalf("the record ends in % x, want the delimiter 02 of the last one", plain[max(0, len(plain)-4):])
	}
	return plain[:len(plain)-1]
}

type shown struct{ Kind, ID, Title, Text string }

// read returns the notice in a request.
func (b browser) read(t *testing.T, r *http.Request) (n shown) {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	must(t, "the body", err)
	plain := b.decrypt(t, body)
	if strings.Contains(string(plain), "very-secret") {
		t.Errorf("the notice %s has a value of the call", plain)
	}
	must(t, "the notice", json.Unmarshal(plain, &n))
	return n
}

// rig is a service that runs until the test ends.
type rig struct {
	*Service
	t     *testing.T
	world *world
	bus   *bus.Bus
	mu    sync.Mutex
	waits []time.Duration // pauses between attempts
	ctx   context.Context // ends with stop
	stop  func()
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

func newRig(t *testing.T, addresses []netip.Prefix) *rig {
	t.Helper()
	r := &rig{t: t, bus: bus.New(bus.Config{}), world: &world{
		revoked: map[string]bool{}, roles: map[string]capability.Role{}, approvals: map[string]policy.Approval{},
	}}
	r.open(t.TempDir(), addresses)
	return r
}

// open opens the service in dir and runs it.
func (r *rig) open(dir string, addresses []netip.Prefix) {
	r.t.Helper()
	s, err := New(Config{
		Dir: dir, Contact: "https://gate.example.org", Policy: r.world, Bus: r.bus, Log: r.world, Logger: slog.New(slog.DiscardHandler),
		Addresses: addresses,
	})
	must(r.t, "New", err)
	r.Service = s
	s.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the service has a certificate of its own
	s.pause = func(ctx context.Context, d time.Duration) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waits = append(r.waits, d)
		return ctx.Err() == nil
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	r.ctx = ctx
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(r.stop)
}

func (r *rig) add(b browser) Subscription {
	r.t.Helper()
	one, err := r.Add(r.t.Context(), b.Subscription)
	must(r.t, "Add", err)
	return one
}

// asks stores an approval and notifies about it. It does not go over the bus, so that nothing is
// missed before Run subscribes.
func (r *rig) asks(a policy.Approval) {
	r.world.set(a)
	r.approval(r.ctx, a)
}

// settled waits until every queue is empty and returns the fault.
func (r *rig) settled() string {
	r.t.Helper()
	r.work.Wait()
	r.Service.mu.Lock()
	defer r.Service.mu.Unlock()
	return r.fault
}

type claims struct {
	Aud, Sub string
	Exp      int64
}

// verifyVAPID returns the claims of a header as RFC 8292 defines it, signed with the key.
func verifyVAPID(t *testing.T, header, key string) (c claims) {
	t.Helper()
	token, k, ok := strings.Cut(strings.TrimPrefix(header, "vapid t="), ", k=")
	parts := strings.Split(token, ".")
	if !ok || len(parts) != 3 || k != key {
		t.Fatalf("authorization %q, want a token and the key %s", header, key)
	}
	point, err := decode(k)
	must(t, "the key", err)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	must(t, "the key", err)
	sig, err := decode(parts[2])
	must(t, "the signature", err)
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(sig) != 64 || !ecdsa.Verify(public, sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		t.Errorf("the signature % x does not verify with the key", sig)
	}
	head, err := decode(parts[0])
	must(t, "the head", err)
	if !strings.Contains(string(head), `"alg":"ES256"`) {
		t.Errorf("head %s, want ES256", head)
	}
	body, err := decode(parts[1])
	must(t, "the claims", err)
	must(t, "the claims", json.Unmarshal(body, &c))
	return c
}
