package clis

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// The plays about what a person does at the terminal of a program, and what programs show there.
const (
	playMine   = "PLAY-MINE"
	playTheirs = "PLAY-THEIRS"
	playSizes  = "PLAY-SIZES"
	playEditor = "PLAY-EDITOR"
	playNews   = "PLAY-NEWS"
)

// seat is a person at the terminals of the server.
type seat struct {
	t    *testing.T
	conn *websocket.Conn
	id   string // the session
}

// sit attaches a person to a session.
func (p *plane) sit(t *testing.T, id string) *seat {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, p.url+"/api/coding-agents/console", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + p.token}},
	})
	ok(t, err)
	conn.SetReadLimit(1 << 24)
	s := &seat{t, conn, id}
	s.order(map[string]any{"type": "subscribe"})
	s.order(map[string]any{"type": "control", "take": true})
	go func() {
		for {
			if _, _, err := conn.Read(context.WithoutCancel(t.Context())); err != nil {
				return // the connection is closed
			}
		}
	}()
	return s
}

func (s *seat) order(o map[string]any) {
	s.t.Helper()
	o["sessionId"] = s.id
	data, err := json.Marshal(o)
	ok(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	ok(s.t, s.conn.Write(ctx, websocket.MessageText, data))
}

func (s *seat) types(keys string) {
	s.t.Helper()
	s.order(map[string]any{"type": "input", "data": keys})
}

func (s *seat) resize(cols, rows int) {
	s.t.Helper()
	s.order(map[string]any{"type": "resize", "cols": cols, "rows": rows})
}

func (s *seat) leave() { _ = s.conn.Close(websocket.StatusNormalClosure, "") } // the server may be faster

// screen is what the terminal of a session shows.
func (p *plane) screen(t *testing.T, id string) string {
	t.Helper()
	_, answer := p.request(t, "GET", "/api/coding-agents/"+id+"/screen", nil)
	return answer
}

// drafts: what a person has typed and not sent stays theirs.
func (c *conversation) drafts(t *testing.T) {
	id, before := c.id, c.shown(t, c.id).CompletedTurns
	mine, theirs := "half a thought "+playMine, "the other one's "+playTheirs
	person := c.sit(t, id)
	person.types(mine)
	c.until(t, id, "the draft stands in the box", func(session) bool { return strings.Contains(c.screen(t, id), playMine) })
	person.leave()
	// Until the server has noticed that the person has left, a message waits, and then it is refused.
	status, answer := c.request(t, "POST", "/api/coding-agents/"+id+"/send", map[string]any{"input": theirs})
	waits := status == http.StatusOK && strings.Contains(answer, `"queued"`)
	if !waits && (status != http.StatusConflict || !strings.Contains(answer, "draft_open")) {
		t.Fatalf("a message beside a draft: got %d %s, want it queued, or 409 and draft_open\n%s", status, answer, c.picture(t, id))
	}
	person = c.sit(t, id)
	person.types("\r")
	c.completed(t, id, before+1)
	person.leave()
	if !waits {
		c.post(t, id, "send", map[string]any{"input": theirs})
	}
	c.completed(t, id, before+2)
	if asked := c.fake.Asked(playMine); len(asked) != 1 || !strings.HasSuffix(strings.TrimSpace(asked[0].Last), mine) {
		t.Errorf("the model received %q, want the draft as it was typed", lasts(asked))
	}
	if asked := c.fake.Asked(playTheirs); len(asked) != 1 || strings.Contains(asked[0].Last, playMine) {
		t.Errorf("the model received %q, want the message alone", lasts(asked))
	}
}

// resized: the state is that of the program at every size.
func (c *conversation) resized(t *testing.T) {
	id, before := c.id, c.shown(t, c.id).CompletedTurns
	person := c.sit(t, id)
	defer person.leave()
	person.types("Take a moment. " + playSizes)
	c.until(t, id, "the text stands in the box", func(session) bool { return strings.Contains(c.screen(t, id), playSizes) })
	person.types("\r")
	c.until(t, id, "it works", func(s session) bool { return s.Status == "busy" && len(c.fake.Asked(playSizes)) > 0 })
	for _, size := range [][2]int{{60, 20}, {200, 50}, {80, 24}, {120, 40}} {
		person.resize(size[0], size[1])
	}
	c.completed(t, id, before+1)
	if asked := c.fake.Asked(playSizes); len(asked) != 1 {
		t.Errorf("the model was asked %d times, want once", len(asked))
	}
}

// edits: a command that would open an editor ends without one.
func (c *conversation) edits(t *testing.T) {
	c.send(t, "Commit. "+playEditor)
	c.done(t)
	if data, err := os.ReadFile(filepath.Join(c.dir, "over.txt")); err != nil || string(data) != "over\n" {
		t.Errorf("over.txt = %q, %v, want the command run to its end", data, err)
	}
}

// TestAnnouncementsAreNotAnswered starts Codex when it announces an update: its dialog, whose first option
// installs it, is shown to the user, and the task waits.
func TestAnnouncementsAreNotAnswered(t *testing.T) {
	bin, _ := commands(t)
	if _, err := os.Stat(filepath.Join(bin, "codex")); err != nil || os.Getenv("TASK_AGENTS_SHORT") != "" {
		t.Skip("codex is not installed, or it is tried in make test-agents only")
	}
	var c program
	for _, p := range programs() {
		if p.name == "codex" {
			c = p
		}
	}
	files := map[string]string{".codex/version.json": `{"latest_version":"99.0.0","last_checked_at":"` +
		time.Now().UTC().Format(time.RFC3339) + `","dismissed_version":null}`}
	for name, text := range c.files {
		files[name] = text
	}
	r := &run{program: c, plane: newPlane(t, built.Junctor(t), files)}
	dir := r.workspace(t, "work")
	var err error
	r.fake, err = scriptedmodel.Start(scriptedmodel.Script{playNews: {{Say: "Ready."}}})
	ok(t, err)
	t.Cleanup(r.fake.Close)
	var announced []string
	s := r.spawn(t, "autonomous", dir, "Begin. "+playNews, "")
	for range 3 { // the vendor may announce more than one thing
		s = r.until(t, s.ID, "it announces something, or is done", func(s session) bool {
			return s.CompletedTurns > 0 || s.Status == "blocked" && len(s.Blocker.Options) > 1
		})
		if s.CompletedTurns > 0 {
			break
		}
		if asked := r.fake.Asked(playNews); len(asked) > 0 {
			t.Errorf("the model was asked %d times beside %v, want not before it is answered", len(asked), s.Blocker)
		}
		announced = append(announced, s.Blocker.Prompt)
		r.post(t, s.ID, "choose", map[string]any{"label": s.Blocker.Options[len(s.Blocker.Options)-1]})
		r.until(t, s.ID, "the dialog is gone", func(now session) bool { return now.Blocker == nil || now.Blocker.ID != s.Blocker.ID })
	}
	r.completed(t, s.ID, 1)
	if len(announced) == 0 {
		t.Error("Codex announced nothing, want a dialog")
	}
	t.Logf("announced: %q", announced)
	if asked := r.fake.Asked(playNews); len(asked) != 1 || !strings.HasSuffix(asked[0].Last, playNews) {
		t.Errorf("the model received %q, want the task once", lasts(asked))
	}
	r.stop(t, s.ID)
}
