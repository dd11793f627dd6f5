package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// memArguments stores arguments in memory.
type memArguments struct {
	docs  map[string][]byte
	swept []time.Time
}

func (m *memArguments) Put(name string, sealed []byte) error {
	m.docs[name] = bytes.Clone(sealed)
	return nil
}

func (m *memArguments) Get(name string) ([]byte, error) { return m.docs[name], nil }

func (m *memArguments) Remove(name string) error {
	delete(m.docs, name)
	return nil
}

func (m *memArguments) Sweep(before time.Time) error {
	m.swept = append(m.swept, before)
	return nil
}

func openKeeping(t *testing.T, mode ArgumentMode) (*Log, *memArguments) {
	t.Helper()
	store := &memArguments{docs: make(map[string][]byte)}
	l, err := Open(t.Context(), Config{
		Segments: &memSegments{}, Key: bytes.Repeat([]byte{7}, 32), Arguments: store, ArgumentMode: mode, RetainArguments: time.Hour,
	})
	if err != nil {
		t.Fatalf("opening the log: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, store
}

// called records a call with an input.
func called(t *testing.T, l *Log, run, input string) {
	t.Helper()
	digest := l.Digest([]byte(input))
	l.KeepArguments(digest, []byte(input))
	r := Record{Event: CapabilityExecuted, Metadata: Metadata{RunID: run, ArgsHash: digest}}
	if _, err := l.Append(t.Context(), r, Synced); err != nil {
		t.Fatalf("recording the call: %v", err)
	}
}

func TestArgumentsAreKeptAsTheModeSays(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("aB3", 12)
	input := `{"path":"/srv/a.txt","api_key":"hunter2hunter2","n":12345678901234567890,"text":"with ` + token + `","list":[{"password":"x"}]}`
	operator := capability.Principal{ID: "operator:ann", Role: capability.RoleOperator}
	for mode, want := range map[ArgumentMode]string{
		ArgumentDigest:   "",
		ArgumentRedacted: `{"api_key":"[redacted]","list":[{"password":"[redacted]"}],"n":12345678901234567890,"path":"/srv/a.txt","text":"with •••"}`,
		ArgumentFull:     `{"api_key":"hunter2hunter2","list":[{"password":"x"}],"n":12345678901234567890,"path":"/srv/a.txt","text":"with ` + token + `"}`,
	} {
		l, store := openKeeping(t, mode)
		called(t, l, "run_1", input)
		for name, sealed := range store.docs {
			if bytes.Contains(sealed, []byte("/srv/a.txt")) || len(name) != 64 {
				t.Errorf("%s: the document %q is not sealed; want no text of the input in it", mode, name)
			}
		}
		got, err := l.Arguments(t.Context(), operator, "run_1")
		if want == "" {
			if capability.AsError(err) == nil || capability.AsError(err).Reason != ReasonNoArguments {
				t.Errorf("%s: Arguments = %v, want reason %s", mode, err, ReasonNoArguments)
			}
			continue
		}
		if err != nil || string(got.Arguments) != want || got.Cut || got.Bytes != len(input) || got.Mode != mode {
			t.Errorf("%s: Arguments = %+v (%s), %v; want %s", mode, got, got.Arguments, err, want)
		}
		read, err := l.Query(t.Context(), Query{Event: ArgumentsRead, User: "operator:ann", Run: "run_1"})
		if err != nil || len(read) != 1 {
			t.Errorf("%s: records of the reading = %d, %v; want 1", mode, len(read), err)
		}
	}
}

func TestArgumentsThatWereChangedAreRefused(t *testing.T) {
	t.Parallel()
	l, store := openKeeping(t, ArgumentFull)
	called(t, l, "run_1", `{"a":1}`)
	called(t, l, "run_2", `{"a":2}`)
	one, two := l.Digest([]byte(`{"a":1}`)), l.Digest([]byte(`{"a":2}`))
	store.docs[one] = store.docs[two] // of another call
	store.docs[two] = store.docs[two][:5]
	for _, run := range []string{"run_1", "run_2"} {
		if got, err := l.Arguments(t.Context(), capability.Principal{ID: "x"}, run); capability.CodeOf(err) != capability.CodeFailed {
			t.Errorf("Arguments(%s) = %s, %v; want failed", run, got.Arguments, err)
		}
	}
}

func TestRemovingArgumentsLeavesTheChain(t *testing.T) {
	t.Parallel()
	l, store := openKeeping(t, ArgumentRedacted)
	called(t, l, "run_1", `{"a":1}`)
	if err := l.RemoveArguments(t.Context(), capability.Principal{ID: "admin:a"}, "run_1"); err != nil || len(store.docs) != 0 {
		t.Errorf("RemoveArguments = %v, %d left; want none", err, len(store.docs))
	}
	report, err := l.Verify(t.Context())
	if err != nil || report.FirstBad != nil {
		t.Errorf("Verify = %+v, %v; want a chain that holds", report.FirstBad, err)
	}
	gone, err := l.Query(t.Context(), Query{Event: ArgumentsRemoved})
	if err != nil || len(gone) != 1 {
		t.Errorf("records of the removal = %d, %v; want 1", len(gone), err)
	}
	l.upkeep(t.Context())
	l.upkeep(t.Context())
	if len(store.swept) != 1 {
		t.Errorf("sweeps = %d, want 1 in an hour", len(store.swept))
	}
}

func TestLargeArgumentsAreCutToTheBound(t *testing.T) {
	t.Parallel()
	l, store := openKeeping(t, ArgumentFull)
	many := `["` + strings.Repeat(`x","`, 100_000) + `"]`
	for run, input := range map[string]string{
		"long": `{"path":"a","text":"` + strings.Repeat("z", 200_000) + `"}`, "many": many, "huge": `"` + strings.Repeat("z", 2<<20) + `"`, "bad": `{`,
	} {
		called(t, l, run, input)
		got, err := l.Arguments(t.Context(), capability.Principal{ID: "x"}, run)
		if err != nil || !got.Cut || got.Bytes != len(input) || !json.Valid(got.Arguments) {
			t.Errorf("Arguments(%s): cut %v, %d bytes, %v; want a cut of %d bytes", run, got.Cut, got.Bytes, err, len(input))
		}
		if run == "long" && !strings.HasPrefix(string(got.Arguments), `{"path":"a","text":"zzz`) {
			t.Errorf("Arguments(long) = %.60s, want its beginning", got.Arguments)
		}
	}
	for name, sealed := range store.docs {
		if len(sealed) > maxArguments {
			t.Errorf("the document %.8s has %d bytes, want at most %d", name, len(sealed), maxArguments)
		}
	}
}
