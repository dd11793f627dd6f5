package agents

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

const oneSession = "pty-1-0a"

// records keeps what was recorded, as effect and rule.
type records []string

func (r *records) Permission(_ context.Context, _, tool string, d permit.Decision) {
	*r = append(*r, tool+" "+string(d.Effect)+" "+d.Rule)
}

func (*records) Session(context.Context, capability.Principal, sessions.Info, string) {}

// live is a session that does nothing.
type live struct{ sessions.Live }

func (live) ID() string            { return oneSession }
func (live) Done() <-chan struct{} { return nil }

// service has one session, of a preset.
func service(t *testing.T, preset programs.Preset, structured bool, cfg Config) (*Agents, *records) {
	t.Helper()
	r := &records{}
	cfg.Recorder, cfg.Sessions = r, sessions.New(sessions.Config{})
	if _, err := cfg.Sessions.Run(oneSession, func(func(sessions.Event)) (sessions.Live, error) { return live{}, nil }); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	return &Agents{cfg: cfg, running: map[string]*agent{oneSession: {
		preset: preset, framework: programs.Claude, workdir: dir, kept: dir, structured: structured,
	}}}, r
}

func (a *Agents) hook(t *testing.T, body string) string {
	t.Helper()
	reply, err := a.Hook(t.Context(), oneSession, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return string(reply)
}

func TestWhoIsAskedForAPermission(t *testing.T) {
	const (
		write   = `"tool_name":"Write","tool_input":{"file_path":"a.txt"}}`
		request = `{"hook_event_name":"PermissionRequest",` + write
		before  = `{"hook_event_name":"PreToolUse",` + write
	)
	type asker = func(context.Context, string, string, json.RawMessage, permit.Decision) (permit.Decision, bool)
	answer := func(e permit.Effect, ok bool) asker {
		return func(_ context.Context, session, tool string, input json.RawMessage, d permit.Decision) (permit.Decision, bool) {
			if session != oneSession || tool != "Write" || !strings.Contains(string(input), "a.txt") || d.Effect != permit.Ask ||
				d.Category != programs.FileWrite {
				t.Errorf(`it was asked about %s %s %s %+v; want session = %v, tool = "Write", string(input) with "a.txt", `+
					"d.Effect = permit.Ask, d.Category = programs.FileWrite", session, tool, input, d, oneSession)
			}
			return permit.Decision{Effect: e, Rule: "coordinator", Reason: "because"}, ok
		}
	}
	for name, c := range map[string]struct {
		preset     programs.Preset
		structured bool
		ask        asker
		body       string
		reply      string // a part of it
		record     string
	}{
		"nobody can be":             {"standard", false, nil, request, `{}`, "Write ask preset"},
		"one who allows":            {"standard", false, answer(permit.Allow, true), request, `"behavior":"allow"`, "Write allow coordinator"},
		"one who refuses":           {"standard", false, answer(permit.Deny, true), request, `"message":"because"`, "Write deny coordinator"},
		"one who does not say":      {"standard", false, answer(permit.Allow, false), request, `{}`, "Write ask preset"},
		"one who asks":              {"standard", false, answer(permit.Ask, true), request, `{}`, "Write ask coordinator"},
		"what begins asks nobody":   {"standard", false, answer(permit.Allow, true), before, `{}`, ""},
		"what is allowed":           {"autonomous", false, answer(permit.Deny, true), request, `"behavior":"allow"`, "Write allow preset"},
		"what is refused":           {"readonly", false, answer(permit.Allow, true), request, `"behavior":"deny"`, "Write deny preset"},
		"a protocol asks by itself": {"standard", true, answer(permit.Allow, true), request, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, r := service(t, c.preset, c.structured, Config{Ask: c.ask})
			if reply := a.hook(t, c.body); !strings.Contains(reply, c.reply) {
				t.Errorf("it was answered %s; want reply with %v", reply, c.reply)
			}
			if strings.Join(*r, "|") != c.record {
				t.Errorf(`the record is %q; want strings.Join(*r, "|") = %v`, *r, c.record)
			}
		})
	}
}

func TestWhoeverIsAskedHas55Seconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, r := service(t, "standard", false, Config{Ask: func(ctx context.Context, _, _ string, _ json.RawMessage,
			_ permit.Decision,
		) (permit.Decision, bool) {
			<-ctx.Done()
			return permit.Decision{Effect: permit.Allow}, true
		}})
		began := time.Now()
		reply := a.hook(t, `{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"make"}}`)
		if waited := time.Since(began); reply != "{}" || waited != 55*time.Second || !slices.Equal(*r, records{"Bash ask preset"}) {
			t.Errorf(`after %s it was answered %s: %q; want reply = "{}", waited = 55 * time.Second, *r = records{"Bash ask preset"}`,
				waited, reply, *r)
		}
	})
}

func TestADecisionIsToldOnce(t *testing.T) {
	var heard []string
	a, _ := service(t, "standard", false, Config{Decided: func(session,
		text string,
	) {
		heard = append(heard, session+" "+text)
	}})
	for range 2 {
		a.hook(t, `{"event":"decision","sessionId":"`+oneSession+`","data":{"text":"use tabs  because\nthey are short"}}`)
	}
	if !slices.Equal(heard, []string{oneSession + " use tabs because they are short"}) {
		t.Errorf(`%q; want heard = []string{oneSession + " use tabs because they are short"}`, heard)
	}
}
