package browser

import (
	"fmt"
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// TestOnePersonLeavesPlacesToOthers holds that idle browsers make room, first those of the person who has most, and that
// one person cannot use all places at once.
func TestOnePersonLeavesPlacesToOthers(t *testing.T) {
	t.Parallel()
	stopped := ""
	ended := make(chan struct{})
	close(ended)
	takeOf := func(b *Browsers, person, session string) (leave func(), code capability.Code) {
		t.Helper()
		k := key{"agent:" + session, session, "x"}
		s, err := b.take(t.Context(), k, person)
		if err != nil {
			return nil, capability.CodeOf(err)
		}
		b.mu.Lock()
		s.x = &instance{key: k, stop: func() { stopped += session + " " }, ended: ended}
		b.mu.Unlock()
		return func() { b.leave(k, s) }, ""
	}
	b := New(Config{Most: 4})
	t.Cleanup(b.Close)
	take := func(person, session string) (func(), capability.Code) { return takeOf(b, person, session) }
	for _, c := range []struct{ person, session, stopped string }{
		{"user:bob", "b1", ""},
		{"user:eve", "e1", ""},
		{"user:eve", "e2", ""},
		{"user:eve", "e3", ""},
		{"user:bob", "b2", "e1 "},
		{"user:eve", "e4", "b1 "},
		{"user:eve", "e5", "e2 "},
	} {
		stopped = ""
		leave, code := take(c.person, c.session)
		if code != "" || stopped != c.stopped {
			t.Fatalf("session %s: code %q, stopped %q, want none and %q", c.session, code, stopped, c.stopped)
		}
		leave()
	}
	for _, c := range []struct {
		person, session string
		want            capability.Code
	}{
		{"user:eve", "f1", ""},
		{"user:eve", "f2", ""},
		{"user:eve", "f3", ""},
		{"user:eve", "f4", capability.CodeOverloaded},
		{"user:bob", "f5", ""},
		{"user:amy", "f6", capability.CodeOverloaded},
	} {
		if _, code := take(c.person, c.session); code != c.want {
			t.Errorf("session %s of %s, which stays in use: got %q, want %q", c.session, c.person, code, c.want)
		}
	}
	alone := New(Config{Most: 4})
	t.Cleanup(alone.Close)
	for i := range 4 { // all are started and left
		leave, code := takeOf(alone, "user:eve", fmt.Sprint(i))
		if code != "" {
			t.Fatalf("session %d: got %q, want a browser", i, code)
		}
		leave()
	}
	var got []capability.Code
	for i := range 4 {
		_, code := takeOf(alone, "user:eve", fmt.Sprint(i))
		got = append(got, code)
	}
	if want := []capability.Code{"", "", "", capability.CodeOverloaded}; !slices.Equal(got, want) {
		t.Errorf("using four browsers that run: got %q, want %q", got, want)
	}
}
