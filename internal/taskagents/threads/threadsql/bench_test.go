package threadsql_test

import (
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func BenchmarkRegistry(b *testing.B) {
	w := sqlite(b)
	c := w.thread(b, "busy", 8)
	for i := range 8 {
		w.begin(b, c.Thread.ID, fmt.Sprint("pty-", i), c.Nodes[i+1].ID)
	}
	for i := range 2000 {
		w.thread(b, fmt.Sprint("one of many ", i), 1)
	}
	b.Run("a session moves", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			w.to(b, "pty-1", []row.SessionStatus{row.SessionActive, row.SessionToolRunning}[i%2])
		}
	})
	b.Run("a piece of a transcript", func(b *testing.B) {
		for b.Loop() {
			if err := w.Transcribe(b.Context(), "pty-2", []threads.Piece{{
				Direction: row.Stdout,
				Content:   "one line of what was said\n",
			}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("the newest 50 of 2000", func(b *testing.B) {
		for b.Loop() {
			must(w.List(b.Context(), threads.Filter{}))(b)
		}
	})
	b.Run("search in 2000", func(b *testing.B) {
		for b.Loop() {
			must(w.List(b.Context(), threads.Filter{Search: "many 1999"}))(b)
		}
	})
}
