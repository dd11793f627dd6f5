package device_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "node-token-of-the-operator"

// site is a gateway with its HTTP doors: enrolment, assets, and the bus.
type site struct {
	*gateway.Gateway
	url string

	mu     sync.Mutex
	keys   map[string]string // public key → node
	assets map[string][]byte
	asked  int
	down   int                 // requests to enrol that fail first
	spoil  func(digest string) // called after the gateway stored arguments; nil: nothing
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{keys: make(map[string]string), assets: make(map[string][]byte)}
	broker, err := natsbus.Embed(t.Context(), t.TempDir(), natsbus.Config{Authorize: s.authorize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, broker.Handler(func(*http.Request) error { return nil }))
	mux.HandleFunc("POST "+wire.EnrolPath, s.enrol)
	mux.HandleFunc(wire.AssetsPath+"{digest}", s.asset)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	s.url = web.URL
	s.Gateway = gateway.New(gateway.Config{
		Broker: broker, Granted: func(string) ([]string, error) { return []string{"user:ann"}, nil },
		PutAsset: func(_ context.Context, _ string, data []byte) (cmp.Asset, error) {
			sum := sha256.Sum256(data)
			digest := hex.EncodeToString(sum[:])
			s.mu.Lock()
			defer s.mu.Unlock()
			s.assets[digest] = data
			if s.spoil != nil {
				s.spoil(digest)
			}
			return cmp.Asset{Digest: "sha256:" + digest, Size: int64(len(data)), MediaType: "application/json"}, nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *site) authorize(_ context.Context, c messaging.Credential) (messaging.Identity, error) {
	s.mu.Lock()
	id := s.keys[c.Key]
	s.mu.Unlock()
	if c.Token.Reveal() == token {
		id = c.Name
	}
	if id == "" {
		return messaging.Identity{}, capability.Errorf(capability.CodeUnauthenticated, "bus", "who is that")
	}
	subscribe, publish := wire.Permissions(id)
	return messaging.Identity{ID: id, Subscribe: subscribe, Publish: publish}, nil
}

func fail(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":"x","message":%q}}`, message)
}

func (s *site) enrol(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	body, _ := io.ReadAll(r.Body)
	e, err := wire.Decode[wire.Enrol](body)
	switch {
	case s.down > 0:
		s.down--
		fail(w, http.StatusServiceUnavailable, "not yet")
	case r.Header.Get("Authorization") != "Bearer "+token:
		fail(w, http.StatusUnauthorized, "this token is not known")
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	case e.NodeID == "taken":
		fail(w, http.StatusConflict, "the node taken is another's")
	default:
		s.keys[e.PublicKey] = e.NodeID
		_ = json.NewEncoder(w).Encode(wire.EnrolReply{NodeID: e.NodeID, Labels: []string{"user:ann"}})
	}
}

func (s *site) asset(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := wire.ReadProof(r.Header.Get("Authorization"))
	if r.Header.Get("Authorization") == "Bearer "+token && r.Header.Get("Junctor-Node") == "simple" {
		err = nil
	} else if err == nil {
		err = errors.New("there is no such node")
		for text, node := range s.keys {
			if key, _ := wire.PublicKey(text); node == p.Node {
				err = p.Verify(key, r.Method, r.URL.EscapedPath(), time.Now())
			}
		}
	}
	digest := r.PathValue("digest")
	data, found := s.assets[digest]
	switch {
	case err != nil:
		fail(w, http.StatusUnauthorized, err.Error())
	case r.Method == http.MethodPut:
		if data, err = io.ReadAll(r.Body); err == nil {
			s.assets[digest] = data
			w.WriteHeader(http.StatusCreated)
		}
	case !found:
		fail(w, http.StatusNotFound, "the asset is missing")
	default:
		_, _ = w.Write(data)
	}
}

// running is a device that runs until the end of the test.
type running struct {
	*device.Device
	stop context.CancelFunc
	done chan error
}

func (s *site) run(t *testing.T, cfg device.Config) *running {
	t.Helper()
	if cfg.Gateway == "" {
		cfg.Gateway = s.url
	}
	joined := make(chan struct{})
	once := sync.OnceFunc(func() { close(joined) })
	cfg.Changed = func(st device.Status) {
		if st.State == device.Connected {
			once()
		}
	}
	d, err := device.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Device: d, stop: cancel, done: make(chan error, 1)}
	go func() {
		err := d.Run(ctx)
		d.Close()
		r.done <- err
	}()
	t.Cleanup(func() { cancel(); <-r.done })
	select {
	case <-joined:
	case err := <-r.done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatalf("it has not joined: %+v", d.Status())
	}
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	r.done <- nil
}

func (s *site) ask(t *testing.T, node, function, kwargs string) (json.RawMessage, error) {
	t.Helper()
	args, err := cmp.ParseArguments(json.RawMessage(kwargs))
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Call(t.Context(), gateway.Request{
		Node: node, Function: function, Arguments: args,
		Caller: wire.Caller{Kind: "agent", ID: "agent:a"},
	})
	return out.Value, err
}

type greeting struct {
	Name string `json:"name"`
}

func hello() device.Function {
	return device.Func("demo.hello", func(_ context.Context, in greeting) (string, error) { return "hello " + in.Name, nil })
}

func TestItEnrolsOnceAndComesBackByItsKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.down = 1
	dir := filepath.Join(t.TempDir(), "node")
	cfg := device.Config{Token: secret.New(token), Dir: dir, ID: "laptop.1", Labels: []string{"gpu"}, Functions: []device.Function{hello()}}
	d := s.run(t, cfg)
	for _, args := range []string{`{"name":"ann"}`, `[{"name":"ann"}]`} {
		if out, err := s.ask(t, "laptop.1", "demo.hello", args); err != nil || string(out) != `"hello ann"` {
			t.Errorf(`%s %v; want no error, string(out) = "\"hello ann\""`, out, err)
		}
	}
	if n, _ := s.Fleet().Get("laptop.1"); strings.Join(n.Labels, " ") != "gpu user:ann" {
		t.Errorf(`%+v; want strings.Join(n.Labels, " ") = "gpu user:ann"`, n.Labels)
	}
	for name, mode := range map[string]os.FileMode{"key": 0o600, "state.json": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("Stat(%s) = %v, error %v, want mode %v", name, info, err, mode)
		}
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "state.json")); strings.Contains(string(data), token) {
		t.Errorf("the token is kept; want string(data) without %v", token)
	}
	// Beside it, no other.
	cfg.Gateway = s.url
	if _, err := device.New(t.Context(), cfg); capability.CodeOf(err) != capability.CodeConflict ||
		!strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict, err.Error() with fmt.Sprint(os.Getpid())", err)
	}
	// While it runs, functions come and go.
	if err := d.Register(device.Function{Name: "demo.count", Stream: func(_ context.Context, _ device.Args, emit func(any) error) error {
		return errors.Join(emit(1), emit(map[string]int{"a": 2}))
	}}); err != nil {
		t.Fatal(err)
	}
	if err := d.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := s.ask(t, "laptop.1", "demo.count", `null`); err != nil || string(out) != `[1,{"a":2}]` {
		t.Errorf(`%s %v; want no error, string(out) = "[1,{\"a\":2}]"`, out, err)
	}
	if ok, err := d.Unregister("demo.hello"); !ok || err != nil {
		t.Errorf("Unregister = %v, error %v, want true", ok, err)
	}
	if _, err := s.ask(t, "laptop.1", "demo.hello", `null`); capability.AsError(err).Reason != cmp.ReasonFunctionNotFound {
		t.Errorf("%v; want capability.AsError(err).Reason = cmp.ReasonFunctionNotFound", err)
	}
	d.end(t)
	// The second time neither a token nor a name is needed.
	asked := s.asked
	cfg.Token, cfg.ID = secret.Value{}, ""
	d = s.run(t, cfg)
	if d.ID() != "laptop.1" || s.asked != asked || s.asked != 2 {
		t.Errorf("id = %q after %d enrolments, want laptop.1 after 2", d.ID(), s.asked)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLargeValuesTravelAsAssets(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	large := strings.Repeat("x", 2<<20)
	s.run(t, device.Config{Token: secret.New(token), Dir: t.TempDir(), ID: "a", Functions: []device.Function{
		device.Func("large", func(context.Context, struct{}) (string, error) { return large, nil }),
		device.Func("length", func(_ context.Context, in string) (int, error) { return len(in), nil }),
	}})
	out, err := s.ask(t, "a", "large", `null`)
	a, ok, _ := cmp.ReadAsset(out)
	if err != nil || !ok || string(s.assets[strings.TrimPrefix(a.Digest, "sha256:")]) != `"`+large+`"` {
		t.Fatalf("%.200s %v; want no error, ok = true, string(s.assets[strings.TrimPrefix(a.Digest, \"sha256:\")]) = `\"` + large + `\"`",
			out, err)
	}
	input := `["` + large + `"]`
	if out, err := s.ask(t, "a", "length", input); err != nil || string(out) != fmt.Sprint(len(large)) {
		t.Errorf("%.200s %v; want no error, string(out) = fmt.Sprint(len(large))", out, err)
	}
	// Only the gateway refers to an asset: to a function, a reference is a value like any other.
	if out, err := s.ask(t, "a", "length", "["+string(cmp.AssetValue(a))+"]"); err == nil {
		t.Errorf("length(a reference) = %.200s, want an error, because it is not a string", out)
	}
	s.spoil = func(digest string) { s.assets[digest][15] = 'y' } // another process changed it
	if _, err := s.ask(t, "a", "length", input); capability.AsError(err).Reason != cmp.ReasonDigest {
		t.Errorf("%v; want capability.AsError(err).Reason = cmp.ReasonDigest", err)
	}
	s.spoil = func(digest string) { delete(s.assets, digest) }
	if _, err := s.ask(t, "a", "length", input); err == nil || !strings.Contains(err.Error(), "the asset is missing") {
		t.Errorf(`%v; want an error, err.Error() with "the asset is missing"`, err)
	}
}

func TestASkillIsInstalledAndThereAfterARestart(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := device.Config{Token: secret.New(token), Dir: t.TempDir(), ID: "a", Actions: []device.Function{
		{Name: "camera.snap", Handle: func(context.Context, device.Args) (any, error) { return "a photo", nil }},
	}}
	d := s.run(t, cfg)
	payload := `{"schema":"easyremote.remote-skill-pipeline","version":"1.0","name":"photos","capabilities":[{"alias":"photo","function_name":"device.camera.take_photo","metadata":{"device_action":"camera.snap"}}]}`
	out, err := s.ask(t, "a", cmp.InstallSkill, `{"skill_payload":`+payload+`}`)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), `"changed":true`) {
		t.Errorf(`%s; want string(out) with "\"changed\":true"`, out)
	}
	d.end(t)
	s.run(t, cfg)
	if out, err := s.ask(t, "a", "device.camera.take_photo", `null`); err != nil || string(out) != `"a photo"` {
		t.Errorf(`%s %v; want no error, string(out) = "\"a photo\""`, out, err)
	}
}

func TestWithoutAFolderTheTokenIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.run(t, device.Config{Token: secret.New(token), ID: "simple", Functions: []device.Function{hello()}})
	if _, err := s.ask(t, "simple", "demo.hello", `{"name":"b"}`); err != nil {
		t.Error(err)
	}
	if err := d.Register(device.Func("large", func(context.Context, struct{}) (string, error) {
		return strings.Repeat("x", 1<<20),
			nil
	})); err != nil {
		t.Fatal(err)
	}
	if out, err := s.ask(t, "simple", "large", `null`); err != nil || len(s.assets) != 1 {
		t.Errorf("%.200s %v; want no error, len(s.assets) = 1", out, err)
	}
	if _, ok := d.HostStatus(); ok || s.asked != 0 {
		t.Errorf("it has skills, or has enrolled; got s.asked = %v; want ok = false, s.asked = 0", s.asked)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, tt := range map[string]struct {
		change func(*device.Config)
		code   capability.Code
		hint   string
	}{
		"another's id":  {func(c *device.Config) { c.ID = "taken" }, capability.CodeConflict, "junctor nodes remove taken"},
		"a wrong token": {func(c *device.Config) { c.Token = secret.New("wrong") }, capability.CodeUnauthenticated, "node token"},
		"no token":      {func(c *device.Config) { c.Token = secret.Value{} }, capability.CodeInvalidInput, "--node-token-file"},
		"an id":         {func(c *device.Config) { c.ID = "a b" }, capability.CodeInvalidInput, ""},
		"plain http":    {func(c *device.Config) { c.Gateway = "http://gateway.example" }, capability.CodeInvalidInput, ""},
		"no handler":    {func(c *device.Config) { c.Functions = []device.Function{{Name: "x"}} }, capability.CodeInvalidInput, ""},
		"a reserved name": {
			func(c *device.Config) { f := hello(); f.Name = cmp.HostStatus; c.Functions = []device.Function{f} },
			capability.CodeDenied, "",
		},
		"one name twice":   {func(c *device.Config) { c.Functions = []device.Function{hello(), hello()} }, capability.CodeConflict, ""},
		"no folder, token": {func(c *device.Config) { c.Dir, c.Token = "", secret.Value{} }, capability.CodeInvalidInput, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := device.Config{Gateway: s.url, Token: secret.New(token), Dir: t.TempDir(), ID: "a"}
			tt.change(&cfg)
			err := device.Run(t.Context(), cfg)
			if e := capability.AsError(err); e == nil || e.Code != tt.code || !strings.Contains(e.Hint, tt.hint) ||
				strings.Contains(fmt.Sprint(e), token) {
				t.Errorf("%v; want e not nil, e.Code = %v, e.Hint with %v, fmt.Sprint(e) without %v", err, tt.code, tt.hint, token)
			}
		})
	}
	// A key that other users may read is refused.
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := device.New(t.Context(), device.Config{
		Gateway: s.url, Token: secret.New(token),
		Dir: dir,
	}); capability.AsError(err).Reason != "key_exposed" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "key_exposed"`, err)
	}
}

func TestAGatewayThatForgotIsShownTheTokenOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	cfg := device.Config{
		Token: secret.New(token), Dir: t.TempDir(), ID: "a", ReconnectWait: 20 * time.Millisecond,
		ReconnectMax: 50 * time.Millisecond,
	}
	s.run(t, cfg).end(t)
	s.mu.Lock()
	clear(s.keys)
	s.mu.Unlock()
	s.run(t, cfg).end(t)
	if s.asked != 2 {
		t.Errorf("enrolments = %d, want 2", s.asked)
	}
}

func TestTheDefaultIDIsOne(t *testing.T) {
	t.Parallel()
	if err := cmp.CheckNode(device.DefaultID()); err != nil {
		t.Error(err)
	}
}

func TestArgumentsAreRead(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for name, tt := range map[string]struct {
		args   cmp.Arguments
		places []string
		want   string
	}{
		"none":     {cmp.Arguments{}, nil, ""},
		"by name":  {cmp.Arguments{Kwargs: map[string]json.RawMessage{"name": raw(`"x"`)}}, nil, "x"},
		"by place": {cmp.Arguments{Args: []json.RawMessage{raw(`"x"`)}}, []string{"name"}, "x"},
		"twice": {
			cmp.Arguments{Args: []json.RawMessage{raw(`"x"`)}, Kwargs: map[string]json.RawMessage{"name": raw(`"y"`)}},
			[]string{"name"},
			"error",
		},
		"too many":     {cmp.Arguments{Args: []json.RawMessage{raw(`1`), raw(`2`)}}, []string{"name"}, "error"},
		"another type": {cmp.Arguments{Kwargs: map[string]json.RawMessage{"name": raw(`1`)}}, nil, "error"},
	} {
		var in greeting
		err := device.Args{Arguments: tt.args}.Decode(&in, tt.places...)
		if got := in.Name; err != nil && tt.want != "error" || err == nil && got != tt.want {
			t.Errorf(`%s: %q %v; want not (err != nil && tt.want != "error"), not (err == nil && got != tt.want)`, name, got, err)
		}
	}
}
