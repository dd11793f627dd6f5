package channels_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

// BenchmarkInbound measures updates from the poll to the end of their handling, in 100 chats. The
// limit is 167 a second.
func BenchmarkInbound(b *testing.B) {
	r := newRig(b)
	r.add(nil)
	for user := range int64(100) {
		r.pair(user+1, capability.RoleAgent)
	}
	b.ResetTimer()
	for i := range b.N {
		user := int64(i%100 + 1)
		r.tg.Write(user, user, strconv.Itoa(i))
	}
	r.eventually("all are handled", func() bool {
		n := 0
		for _, list := range r.chat.all() {
			n += len(list)
		}
		return n == b.N
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// TestAnIdleAccountIsSmall holds the limit of 2 MiB for each idle account.
func TestAnIdleAccountIsSmall(t *testing.T) {
	const accounts = 50
	r := newRig(t)
	used := func() int64 {
		var m runtime.MemStats
		for range 3 { // what finalizers release, too
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := used()
	for i := range accounts {
		_, err := r.Add(t.Context(), admin, channels.Account{
			Ref: channels.Ref{Kind: "telegram", Account: fmt.Sprintf("a%d", i)}, Secret: "bot", URL: r.tg.URL,
		})
		must(t, "add", err)
	}
	r.eventually("all are connected", func() bool {
		list, err := r.List(t.Context())
		must(t, "list", err)
		up := 0
		for _, s := range list {
			if s.State.State == capability.StateReady {
				up++
			}
		}
		return up == accounts
	})
	if each := (used() - before) / accounts; each > 2<<20 || each <= 0 {
		t.Errorf("an idle account, with its side of the service: got %d bytes, want more than 0 and at most 2 MiB", each)
	} else {
		t.Logf("an idle account, with its side of the service: %d bytes", each)
	}
}
