package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// Event is a change of a run, for those who follow it.
type Event struct {
	// ID is <number of the record>.<offset in its text>; a follower that returns passes the last
	// one it received.
	ID   string `json:"id"`
	Type string `json:"type"` // text, text_reset, call, park, end
	// Text is the next piece of the reply. After text_reset, the pieces of the step Step are void,
	// because the model is asked again.
	Text string `json:"text,omitempty"`
	Step int64  `json:"step,omitempty"` // the record of the request that a text answers
	// Call is the name of a tool, and State one of proposed, waiting, done and failed.
	Call     string `json:"call,omitempty"`
	State    string `json:"state,omitempty"`
	Approval string `json:"approval,omitempty"`
	// Outcome is set for park and end.
	Outcome *Outcome `json:"-"`
}

func eventID(seq int64, offset int) string { return fmt.Sprintf("%d.%d", seq, offset) }

// liveText is the answer that the model is writing.
type liveText struct {
	seq    int64 // of the request's record; 0: none
	before string
	text   string // with the separator
}

// add appends a piece and returns its event.
func (l *liveText) add(piece string) Event {
	if l.text == "" && l.before != "" {
		piece = separator + piece
	}
	l.text += piece
	return Event{ID: eventID(l.seq, len(l.text)), Type: "text", Text: piece, Step: l.seq}
}

// eventsOf returns the events of a record. live is the text that was sent before it was stored.
func eventsOf(rec Record, live liveText) (out []Event) {
	id := eventID(rec.Seq, 1)
	switch rec.Kind {
	case kindAnswered:
		var s answer
		if json.Unmarshal(rec.Doc, &s) != nil {
			return nil
		}
		var text strings.Builder
		for _, b := range s.Blocks {
			if b.Kind == modelwire.Text {
				text.WriteString(b.Text)
			}
		}
		if live.text == "" && text.Len() > 0 { // it was not streamed
			out = append(out, live.add(text.String()))
		}
		n := 0
		for _, b := range s.Blocks {
			if b.Kind == modelwire.Call {
				n++
				out = append(out, Event{ID: eventID(rec.Seq, n), Type: "call", Call: b.Name, State: "proposed"})
			}
		}
	case kindParked:
		var p parked
		if json.Unmarshal(rec.Doc, &p) == nil {
			out = append(out, Event{ID: id, Type: "call", State: "waiting", Approval: p.Approval})
		}
	case kindResult:
		var r result
		if json.Unmarshal(rec.Doc, &r) == nil {
			ev := Event{ID: id, Type: "call", State: "done"}
			if r.Done != nil {
				ev.Call, ev.Approval = r.Done.Name, r.Done.Approval
			}
			if r.Failed {
				ev.State = "failed"
			}
			out = append(out, ev)
		}
	}
	return out
}

// notify sends events to the followers. The caller holds r.mu.
func (r *run) notify(events ...Event) {
	for f := range r.followers {
		for _, ev := range events {
			f.push(ev)
		}
	}
}

// Follower receives the events of a run. It must be closed.
type Follower struct {
	Run string // the id

	journal Journal
	r       *run // nil: another gateway carries the run
	// seq and offset are the id of the last event that Next returned, and read is the number of the
	// last record that it read from the journal.
	seq    int64
	offset int
	read   int64

	mu    sync.Mutex
	queue []Event
	away  bool          // the run is not carried here, so the journal is read
	some  chan struct{} // capacity 1
}

// follow returns a follower of the events from now on. The caller holds r.mu.
func (e *Engine) follow(r *run) *Follower {
	f := &Follower{Run: r.row.ID, journal: e.cfg.Journal, r: r, seq: r.row.Seq, some: make(chan struct{}, 1), away: r.gone}
	r.followers[f] = struct{}{}
	return f
}

// followStored returns a follower of a run that another gateway carries, which receives the events
// after seq.offset, in whole steps.
func (e *Engine) followStored(id string, seq int64, offset int) *Follower {
	return &Follower{Run: id, journal: e.cfg.Journal, seq: seq, offset: offset, some: make(chan struct{}, 1), away: true}
}

// leave makes the follower read the journal.
func (f *Follower) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
	f.signal()
}

func (f *Follower) signal() {
	select {
	case f.some <- struct{}{}:
	default:
	}
}

// push adds an event; neighbouring texts become one. Events beyond maxQueue are dropped, except
// texts and the last one.
func (f *Follower) push(ev Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.queue) - 1; n >= 0 && ev.Type == "text" && f.queue[n].Type == "text" && f.queue[n].Step == ev.Step {
		f.queue[n].Text += ev.Text
		f.queue[n].ID = ev.ID
	} else if len(f.queue) < maxQueue || ev.Type != "call" {
		f.queue = append(f.queue, ev)
	}
	f.signal()
}

// Next returns the next event. The error is that of ctx, or not_found if the run was removed.
func (f *Follower) Next(ctx context.Context) (Event, error) {
	for {
		f.mu.Lock()
		if len(f.queue) > 0 {
			ev := f.queue[0]
			f.queue = f.queue[1:]
			f.mu.Unlock()
			f.seq, f.offset = position(ev.ID)
			return ev, nil
		}
		away := f.away
		f.mu.Unlock()
		var again <-chan time.Time
		if away {
			switch events, err := f.stored(ctx); {
			case capability.CodeOf(err) == capability.CodeNotFound:
				return Event{}, err
			case len(events) > 0:
				f.mu.Lock()
				f.queue = append(f.queue, events...)
				f.mu.Unlock()
				continue
			}
			again = time.After(followInterval) // also if the store was away
		}
		select {
		case <-f.some:
		case <-again:
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// stored returns the events that follow the last one, from the journal.
func (f *Follower) stored(ctx context.Context) ([]Event, error) {
	row, err := f.journal.Run(ctx, f.Run)
	if err != nil || row.Seq == f.read {
		return nil, err
	}
	records, err := f.journal.Records(ctx, f.Run)
	if err != nil {
		return nil, err
	}
	f.read = row.Seq
	return replay(records, liveText{}, f.seq, f.offset), nil
}

// Close ends the following.
func (f *Follower) Close() {
	if f.r == nil {
		return
	}
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	delete(f.r.followers, f)
}

// Events yields the events of a run after the one with the id last ("": from the first), until it
// ends. It fails with not_found for a run that the principal may not see, and invalid_input for a
// malformed id.
func (e *Engine) Events(ctx context.Context, who capability.Principal, id, last string) (iter.Seq[Event], error) {
	row, err := e.Get(ctx, who, id)
	if err != nil {
		return nil, err
	}
	var seq int64
	var offset int
	if last != "" {
		first, second, ok := strings.Cut(last, ".")
		n, err := strconv.ParseInt(first, 10, 64)
		m, err2 := strconv.Atoi(second)
		if !ok || err != nil || err2 != nil || n < 0 || m < 0 {
			return nil, capability.Errorf(capability.CodeInvalidInput, "agent", "%q is not the id of an event", last)
		}
		seq, offset = n, m
	}
	var f *Follower
	var live liveText
	if r := e.lookup(id); r != nil {
		r.mu.Lock()
		f, live = e.follow(r), r.live
		r.mu.Unlock()
	} else if !row.State.Ended() {
		f = e.followStored(id, seq, offset)
	}
	records, err := e.cfg.Journal.Records(ctx, id)
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, capability.AsError(err)
	}
	return func(yield func(Event) bool) {
		if f != nil {
			defer f.Close()
		}
		old := replay(records, live, seq, offset)
		for _, ev := range old {
			if !yield(ev) || ev.Type == "end" {
				return
			}
			seq, offset = position(ev.ID)
		}
		if f == nil {
			return
		}
		f.seq, f.offset = seq, offset
		for {
			ev, err := f.Next(ctx)
			if err != nil {
				return
			}
			if !after(ev.ID, seq, offset) {
				continue // it was read from the journal
			}
			if !yield(ev) || ev.Type == "end" {
				return
			}
		}
	}, nil
}

func position(id string) (seq int64, offset int) {
	first, second, _ := strings.Cut(id, ".")
	seq, _ = strconv.ParseInt(first, 10, 64)
	offset, _ = strconv.Atoi(second)
	return seq, offset
}

// after reports whether the event with an id comes after the event seq.offset.
func after(id string, seq int64, offset int) bool {
	n, m := position(id)
	return n > seq || n == seq && m > offset
}

// replay returns the events of the records, and of the text that the model is writing, after the
// event seq.offset.
func replay(records []Record, live liveText, seq int64, offset int) (out []Event) {
	c := &conversation{}
	var open int64 // the request that has no answer
	for _, rec := range records {
		step, before := c.asked, c.text
		if c.apply(rec) != nil {
			return out
		}
		var events []Event
		switch rec.Kind {
		case kindAsked:
			if open > 0 && open == seq && offset > 0 { // the follower has a part of an answer that was lost
				events = []Event{{ID: eventID(rec.Seq, 0), Type: "text_reset", Step: open}}
			}
			open = rec.Seq
		case kindAnswered:
			open, events = 0, eventsOf(rec, liveText{seq: step, before: before})
		case kindEnded:
			var e ended
			if json.Unmarshal(rec.Doc, &e) == nil {
				events = []Event{{ID: eventID(rec.Seq, 1), Type: "end", Outcome: &Outcome{
					State: e.State, Error: e.Error, Text: c.text, Done: c.done, Tainted: c.taint, Message: c.message,
				}}}
			}
		default:
			events = eventsOf(rec, liveText{})
		}
		for _, ev := range events {
			if !after(ev.ID, seq, offset) {
				continue
			}
			if ev.Type == "text" && step == seq {
				ev.Text = ev.Text[min(offset, len(ev.Text)):]
			}
			out = append(out, ev)
		}
	}
	if live.seq > 0 && live.seq == open && after(eventID(live.seq, len(live.text)), seq, offset) {
		text := live.text
		if live.seq == seq {
			text = text[offset:]
		}
		out = append(out, Event{ID: eventID(live.seq, len(live.text)), Type: "text", Text: text, Step: live.seq})
	}
	if waits := c.waits(); len(waits) > 0 {
		if id := eventID(records[len(records)-1].Seq, 2); after(id, seq, offset) {
			out = append(out, Event{ID: id, Type: "park", Outcome: &Outcome{State: Waiting, Approvals: waits, Text: c.text, Done: c.done}})
		}
	}
	return out
}
