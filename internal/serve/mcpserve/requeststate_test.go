package mcpserve

import (
	"bytes"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func TestOneCallerUsesUpOnlyItsOwnStates(t *testing.T) {
	now := time.Unix(1, 0)
	s := newStateSealer([]byte("a key"), func() time.Time { return now })
	use := func(who string) bool {
		_, ok := s.Open(s.Seal(requestState{Kind: stateConsent, Who: who, Call: "c", Of: "o"}), who, "c")
		return ok
	}
	n := 0
	for use("greedy") {
		n++
	}
	if n != maxStates || use("greedy") {
		t.Errorf(`%d states were used; want n = %v, not use("greedy")`, n, maxStates)
	}
	if !use("another") {
		t.Error("another caller is refused")
	}
	if now = now.Add(stateTTL + 2*time.Second); !use("greedy") {
		t.Error("it stays refused")
	}
}

// FuzzStates requires that only a sealed state opens.
func FuzzStates(f *testing.F) {
	s := newStateSealer([]byte("a key"), time.Now)
	good := s.Seal(requestState{Kind: stateRelayed, Who: "w", Call: "c", Of: "o", Inner: []byte(`"theirs"`)})
	f.Add(good)
	f.Add([]byte(`""`))
	f.Add([]byte(`"AAAA"`))
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, raw []byte) {
		if st, ok := newStateSealer([]byte("a key"), time.Now).Open(raw, "w", "c"); ok && (st.Of != "o" || string(st.Inner) != `"theirs"`) {
			t.Errorf("%q opens; want not (ok && (st.Of != \"o\" || string(st.Inner) != `\"theirs\"`))", raw)
		}
	})
}

// FuzzCursors requires that a cursor opens only for its caller and its list.
func FuzzCursors(f *testing.F) {
	key := []byte("a key")
	good := jsonx.AppendString(nil, sealCursor(key, "one", "tools/list", 7, "last"))
	f.Add(good)
	f.Add([]byte(`7`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, ok := openCursor(key, "one", "tools/list", raw); ok && !bytes.Equal(raw, good) {
			t.Errorf("%q opens; want not (ok && !bytes.Equal(raw, good))", raw)
		}
		for _, other := range []string{"prompts/list", "tools/lis"} {
			if _, ok := openCursor(key, "one", other, raw); ok {
				t.Errorf("%q opens for %s; want ok = false", raw, other)
			}
		}
	})
}
