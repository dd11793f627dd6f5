package agent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/modelwire"
)

// journal makes records with their numbers.
type journal struct{ records []Record }

func (j *journal) add(t testing.TB, kind Kind, doc any) int64 {
	t.Helper()
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatalf("record %s: got %v, want no error", kind, err)
	}
	seq := int64(len(j.records) + 1)
	j.records = append(j.records, Record{Seq: seq, Kind: kind, Time: time.Unix(0, 0), Doc: data})
	return seq
}

// client collects the text of a run from its events, as a reader does: what belongs to a step that is
// reset is dropped.
type client struct {
	last  string
	steps []int64
	texts map[int64]string
}

func (c *client) take(events []Event) {
	for _, ev := range events {
		c.last = ev.ID
		switch ev.Type {
		case "text":
			if _, ok := c.texts[ev.Step]; !ok {
				c.steps = append(c.steps, ev.Step)
			}
			c.texts[ev.Step] += ev.Text
		case "text_reset":
			c.texts[ev.Step] = ""
		}
	}
}

func (c *client) text() string {
	var b strings.Builder
	for _, step := range c.steps {
		b.WriteString(c.texts[step])
	}
	return b.String()
}

// A reader that leaves at any point, and returns with the id of its last event, has the text of the
// reply in the end, also if the server was killed while the model wrote.
func TestAReaderThatReturnsHasTheWholeText(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a reproducible test
		j := &journal{}
		j.add(t, kindStarted, started{Person: "p", Session: "s"})
		c := &client{texts: make(map[int64]string)}
		whole := ""
		look := func(live liveText) {
			if rnd.IntN(2) == 0 {
				seq, offset := position(c.last)
				c.take(replay(j.records, live, seq, offset))
			}
		}
		for step := range 1 + rnd.IntN(4) {
			text := ""
			for n := range rnd.IntN(6) {
				text += fmt.Sprintf("%d-%d é ", step, n)
			}
			for rnd.IntN(3) == 0 { // the model is asked, writes a part, and the server dies
				live := liveText{seq: j.add(t, kindAsked, asked{Step: step}), before: whole}
				live.add("lost ")
				look(live)
				if rnd.IntN(2) == 0 {
					j.add(t, kindGuidance, guidance{Text: "go on"})
				}
				look(liveText{})
			}
			live := liveText{seq: j.add(t, kindAsked, asked{Step: step}), before: whole}
			for piece := range strings.SplitAfterSeq(text, " ") {
				if piece != "" {
					live.add(piece)
				}
				look(live)
			}
			doc := answer{Blocks: []block{{Kind: modelwire.Text, Text: text}}}
			for n := range rnd.IntN(3) {
				doc.Blocks = append(doc.Blocks, block{Kind: modelwire.Call, ID: fmt.Sprint(n), Name: "f"})
			}
			j.add(t, kindAnswered, doc)
			look(liveText{})
			for n := range len(doc.Blocks) - 1 {
				if rnd.IntN(2) == 0 {
					j.add(t, kindParked, parked{Call: n, Approval: "apr_1"})
					look(liveText{})
				}
				j.add(t, kindResult, result{Call: n, Text: "ok"})
				look(liveText{})
			}
			if whole != "" && text != "" {
				whole += separator
			}
			whole += text
		}
		j.add(t, kindEnded, ended{State: Completed})
		seq, offset := position(c.last)
		c.take(replay(j.records, liveText{}, seq, offset))
		if got := c.text(); got != whole {
			t.Fatalf("seed %d: got the text %q, want %q", seed, got, whole)
		}
	}
}

func TestAFollowerThatDoesNotReadKeepsTheTextAndTheEnd(t *testing.T) {
	t.Parallel()
	f := &Follower{some: make(chan struct{}, 1)}
	for range 3 * maxQueue {
		f.push(Event{Type: "text", Step: 1, Text: "x"})
		f.push(Event{Type: "call", Call: "f", State: "done"})
	}
	f.push(Event{Type: "end", Outcome: &Outcome{State: Completed}})
	text, last, n := "", Event{}, 0
	for ; len(f.queue) > 0; n++ {
		var err error
		if last, err = f.Next(t.Context()); err != nil {
			t.Fatalf("next: got %v, want no error", err)
		}
		text += last.Text
	}
	if len(text) != 3*maxQueue || last.Type != "end" || n > 4*maxQueue {
		t.Errorf("got %d bytes of text and %q last in %d events, want %d and end in fewer than %d",
			len(text), last.Type, n, 3*maxQueue, 4*maxQueue)
	}
}

// What a model returned is read from the journal as it was written, whatever it is.
func FuzzRecords(f *testing.F) {
	f.Add("answered", []byte(`{"blocks":[{"kind":"call","id":"1","name":"f","input":"{"}],"stop":"calls"}`))
	f.Add("result", []byte(`{"call":-1,"text":"x"}`))
	f.Add("parked", []byte(`{"call":5}`))
	f.Fuzz(func(t *testing.T, kind string, doc []byte) {
		records := []Record{
			{Seq: 1, Kind: kindStarted, Doc: json.RawMessage(`{"person":"p","session":"s","system":"","turns":null}`)},
			{Seq: 2, Kind: kindAsked, Doc: json.RawMessage(`{"step":0}`)},
			{Seq: 3, Kind: kindAnswered, Doc: json.RawMessage(`{"blocks":[{"kind":"call","id":"1","name":"f"}],"stop":"calls"}`)},
			{Seq: 4, Kind: Kind(kind), Doc: doc},
		}
		c := &conversation{}
		for _, rec := range records {
			if c.apply(rec) != nil {
				return
			}
		}
		c.over()
		c.open()
		c.waits()
		c.request(true, "note")
		replay(records, liveText{}, 0, 0)
	})
}
