package taskagents

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

type kept struct{ data []byte }

func (m *kept) Load(context.Context) ([]byte, error) { return m.data, nil }

func (m *kept) Save(_ context.Context, data []byte) error { m.data = data; return nil }

// chooserOf chooses among programs as they are found, of which one does what it is told.
func chooserOf(t *testing.T, v choice.SettingValues, found ...preflight.Result) *chooser {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	book, err := choice.OpenBook(t.Context(), &kept{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := choice.OpenSettings(t.Context(), &kept{}, func() (choice.SettingValues, error) { return v, nil }, logger)
	if err != nil {
		t.Fatal(err)
	}
	return &chooser{
		book: book, settings: s, logger: logger,
		programs: func(context.Context) []preflight.Result { return found },
		info: func(id string) (sessions.Info, error) {
			if id == "gone" {
				return sessions.Info{}, errors.New("gone")
			}
			return sessions.Info{ID: id, AdapterType: programs.Claude}, nil
		},
	}
}

// TestWhatHappensIsCounted covers the metrics of programs and their rest after exhaustion.
func TestWhatHappensIsCounted(t *testing.T) {
	t.Parallel()
	c := chooserOf(t, choice.SettingValues{})
	turns := make(map[string]*turn)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tell := func(after time.Duration, e sessions.Event) {
		at = at.Add(after)
		if e.At = at; e.Session == "" {
			e.Session = "one"
		}
		c.count(t.Context(), turns, e)
	}
	tell(0, sessions.Event{Type: sessions.Started})
	tell(time.Second, sessions.Event{Type: sessions.BusyNow})
	tell(time.Second, sessions.Event{Type: sessions.BusyNow}) // another phase of the same turn
	tell(3*time.Second, sessions.Event{Type: sessions.TaskComplete, Source: "hook"})
	tell(time.Minute, sessions.Event{Type: sessions.BusyNow})
	tell(2*time.Second, sessions.Event{Type: sessions.TaskComplete, Source: "signal"})
	tell(time.Minute, sessions.Event{Type: sessions.Stall})
	tell(0, sessions.Event{Type: sessions.TurnFailed, Kind: "server"})
	tell(0, sessions.Event{Type: sessions.TurnFailed, Kind: "unknown", Text: "no"})
	tell(0, sessions.Event{Type: sessions.Ended})
	if len(turns) != 0 {
		t.Errorf("%d sessions are remembered; want len(turns) = 0", len(turns))
	}
	tell(0, sessions.Event{Session: "gone", Type: sessions.Stall})
	tell(0, sessions.Event{Session: "two", Type: sessions.Output})
	if len(turns) != 0 {
		t.Errorf("%d sessions are remembered; want len(turns) = 0", len(turns))
	}
	want := choice.Metrics{
		Spawned: 1, Completed: 2, ViaFastPath: 1, ViaOutputReconcile: 1, StallCount: 1, AvgCompletionMs: 3000, Failed: 2,
		ProviderErrors: 1,
	}
	if d := cmp.Diff(want, c.book.Snapshot().Metrics[programs.Claude]); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if len(c.book.Snapshot().CoolDowns) != 0 {
		t.Errorf("%+v; want len(c.book.Snapshot().CoolDowns) = 0", c.book.Snapshot().CoolDowns)
	}
	tell(0, sessions.Event{Type: sessions.TurnFailed, Kind: "billing"})
	rest := c.book.Snapshot().CoolDowns[programs.Claude]
	if rest.Until.Sub(at) != choice.DefaultCooldownTTL || rest.Reason != "billing" {
		t.Errorf(`%+v; want rest.Until.Sub(at) = choice.DefaultCooldownTTL, rest.Reason = "billing"`, rest)
	}
	tell(time.Minute, sessions.Event{Type: sessions.TaskComplete, Source: "hook"}) // it works again
	if len(c.book.Snapshot().CoolDowns) != 0 {
		t.Error("the program still rests; want len(c.book.Snapshot().CoolDowns) = 0")
	}
}

func TestUsageIsCountedAlsoAfterTheEnd(t *testing.T) {
	t.Parallel()
	c := chooserOf(t, choice.SettingValues{})
	turns := make(map[string]*turn)
	for _, e := range []sessions.Event{
		{Type: sessions.Started},
		{Type: sessions.Used, More: programs.Usage{In: 100, Out: 10, USD: 0.5}},
		{Type: sessions.TaskComplete},
		{Type: sessions.Ended},
		{Type: sessions.Used, More: programs.Usage{In: 60, Out: 6, USD: 0.5}},
	} {
		e.Session = "one"
		c.count(t.Context(), turns, e)
	}
	want := choice.Metrics{Spawned: 1, Completed: 1, ViaFastPath: 1, TokensIn: 160, TokensOut: 16, CostUSD: 1}
	if d := cmp.Diff(want, c.book.Snapshot().Metrics[programs.Claude]); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if len(turns) != 0 {
		t.Errorf("sessions remembered = %d, want 0", len(turns))
	}
}

func found(name programs.Name, status preflight.Status, method string) preflight.Result {
	return preflight.Result{Adapter: name, Installed: true, Auth: preflight.Auth{Status: status, Method: method}}
}

func TestWhoIsPicked(t *testing.T) {
	t.Parallel()
	claude, codex := found(programs.Claude, preflight.Authenticated, "claude.ai"), found(programs.Codex, preflight.Authenticated, "api_key")
	out := found(programs.Codex, preflight.Unauthenticated, "")
	for name, tt := range map[string]struct {
		v        choice.SettingValues
		programs []preflight.Result
		want     programs.Name
	}{
		"what fits best": {choice.SettingValues{}, []preflight.Result{claude, codex}, programs.Claude},
		"the default": {
			choice.SettingValues{DefaultType: programs.Codex},
			[]preflight.Result{claude, codex},
			programs.Codex,
		},
		"the default where it is ranked": {
			choice.SettingValues{DefaultType: programs.Codex, Ranked: true},
			[]preflight.Result{claude, codex},
			programs.Codex,
		},
		"a default that is not logged in": {
			choice.SettingValues{DefaultType: programs.Codex},
			[]preflight.Result{claude, out},
			programs.Claude,
		},
		"a default that is not there": {choice.SettingValues{DefaultType: programs.Gemini}, []preflight.Result{claude}, programs.Claude},
		"nobody is logged in":         {choice.SettingValues{}, []preflight.Result{out}, programs.Codex},
		"a shell as the default":      {choice.SettingValues{DefaultType: programs.Shell}, []preflight.Result{claude}, programs.Shell},
		"a shell is not ranked": {
			choice.SettingValues{DefaultType: programs.Shell, Ranked: true},
			[]preflight.Result{claude, found(programs.Shell, preflight.Authenticated, "none")},
			programs.Claude,
		},
		"nothing but a shell, nobody's choice": {
			choice.SettingValues{},
			[]preflight.Result{found(programs.Shell, preflight.Authenticated, "none")},
			"",
		},
	} {
		c := chooserOf(t, tt.v, tt.programs...)
		got, err := c.pick(t.Context(), choice.Task{Text: "plan it"})
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf(`%s: %q %v; want got = %v, (err != nil) = (tt.want == "")`, name, got, err, tt.want)
		}
		if err != nil && capability.AsError(err).Reason != "agent_not_installed" {
			t.Errorf(`%s: %v; want not (err != nil && capability.AsError(err).Reason != "agent_not_installed")`, name, err)
		}
	}
	state := chooserOf(t, choice.SettingValues{Subscription: "anthropic-subscription"}, claude, codex).State(t.Context(), choice.Task{})
	for _, f := range state.Frameworks {
		if f.SubscriptionReady != (f.ID == programs.Claude) || f.AuthReady != (f.ID == programs.Claude || f.ID == programs.Codex) {
			t.Errorf("%+v; want f.SubscriptionReady = (f.ID == programs.Claude), f.AuthReady = (f.ID == programs.Claude || f.ID "+
				"== programs.Codex)", f)
		}
	}
	if state.Subscription != "anthropic-subscription" {
		t.Errorf(`%+v; want state.Subscription = "anthropic-subscription"`, state)
	}
	// One whose account is used up is not picked while another is usable.
	c := chooserOf(t, choice.SettingValues{DefaultType: programs.Claude}, claude, codex)
	if err := c.Rest(t.Context(), programs.Claude, choice.CoolDown{Until: time.Now().Add(time.Hour), Reason: "billing"}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.pick(t.Context(), choice.Task{}); err != nil || got != programs.Codex {
		t.Errorf("%q %v; want no error, got = programs.Codex", got, err)
	}
}

func TestWhatNobodyAskedForIsAsItIsSet(t *testing.T) {
	t.Parallel()
	v := choice.SettingValues{
		Preset: "standard", AiderProvider: "openai", OpenCodeURL: ollama, Cols: 90, Rows: 20, Custom: map[string]string{"A": "set", "B": "set"},
		Models: map[programs.Name]choice.Models{programs.OpenCode: {Powerful: "big"}, programs.Codex: {Powerful: "gpt"}},
	}
	for name, tt := range map[string]struct {
		program   programs.Name
		req, want agents.Request
	}{
		"nothing": {programs.Codex, agents.Request{}, agents.Request{Preset: "standard", Model: "gpt", Cols: 90, Rows: 20, Custom: v.Custom}},
		"everything": {
			programs.Codex,
			agents.Request{Preset: "readonly", Model: "mine", Cols: 100, Rows: 30, Custom: map[string]string{"A": "asked"}},
			agents.Request{Preset: "readonly", Model: "mine", Cols: 100, Rows: 30, Custom: map[string]string{"A": "asked", "B": "set"}},
		},
		"Aider's provider": {
			programs.Aider,
			agents.Request{},
			agents.Request{Preset: "standard", Provider: "openai", Cols: 90, Rows: 20, Custom: v.Custom},
		},
		"OpenCode's service": {
			programs.OpenCode,
			agents.Request{},
			agents.Request{Preset: "standard", Model: "big", BaseURL: ollama, Cols: 90, Rows: 20, Custom: v.Custom},
		},
		"OpenCode with a model of its user": {
			programs.OpenCode,
			agents.Request{Model: "local/x"},
			agents.Request{Preset: "standard", Model: "local/x", Cols: 90, Rows: 20, Custom: v.Custom},
		},
	} {
		withSettings(&tt.req, tt.program, v)
		if d := cmp.Diff(tt.want, tt.req); d != "" {
			t.Errorf(`%s: %s; want d = ""`, name, d)
		}
	}
}

func TestWhereAgentsWork(t *testing.T) {
	t.Parallel()
	at := func(change func(*config.Agents)) (workspace.ScratchConfig, []string) {
		s := &Service{cfg: Config{Home: "/home", Agents: config.Default().Agents}}
		change(&s.cfg.Agents)
		return s.scratchConfig("/base", "/state"), s.agentRoots()
	}
	made, roots := at(func(*config.Agents) {})
	if made.Base != "/base/scratch" || made.State != "/state/scratch" || made.Retention != "" || made.TTL != 24*time.Hour || len(roots) != 1 {
		t.Errorf(`%+v %v; want made.Base = "/base/scratch", made.State = "/state/scratch", made.Retention = "", made.TTL = 24 * `+
			"time.Hour, len(roots) = 1", made, roots)
	}
	made, roots = at(func(a *config.Agents) {
		a.CodingDirectory, a.WorkspaceBase, a.Workdirs = "/code", "/clones", []string{"/w"}
	})
	if made.Base != "/code" || made.State == "/state/scratch" || made.Retention != workspace.Persistent || len(roots) != 4 {
		t.Errorf(`%+v %v; want made.Base = "/code", made.State other than "/state/scratch", made.Retention = `+
			"workspace.Persistent, len(roots) = 4", made, roots)
	}
	made, roots = at(func(a *config.Agents) {
		a.CodingDirectory, a.ScratchRetention, a.AnyWorkdir = "/other", "ephemeral", true
	})
	if other, _ := at(func(a *config.Agents) { a.CodingDirectory = "/code" }); made.Retention != workspace.Ephemeral ||
		made.State == other.State || roots[0] != "/" {
		t.Errorf(`%+v %v; want made.Retention = workspace.Ephemeral, made.State other than %v, roots[0] = "/"`,
			made, roots, other.State)
	}
}
