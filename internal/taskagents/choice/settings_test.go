package choice_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/secret"
)

func rows(t *testing.T, file string) choice.Rows {
	t.Helper()
	db, err := store.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	r, err := choice.OpenRows(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func open(t *testing.T, r choice.Rows, base func() (choice.SettingValues, error)) *choice.Settings {
	t.Helper()
	s, err := choice.OpenSettings(t.Context(), r.Row("settings"), base, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func text(s string) *string { return &s }

func TestWhatIsSetCoversTheConfigurationAndSurvivesARestart(t *testing.T) {
	t.Parallel()
	base := choice.SettingValues{
		DefaultType: programs.Codex, Preset: "standard", Credentials: "api_keys", Cols: 100,
		Models: map[programs.Name]choice.Models{programs.Codex: {Powerful: "big", Fast: "small"}},
	}
	file := filepath.Join(t.TempDir(), "state.db")
	get := func() (choice.SettingValues, error) { return base, nil }
	s := open(t, rows(t, file), get)
	if d := cmp.Diff("codex", string(s.Now().DefaultType)); d != "" || s.Now().Strategy() != "fixed" {
		t.Errorf("strategy = %q, want fixed; diff (-want +got):\n%s", s.Now().Strategy(), d)
	}
	set := choice.SettingsChange{
		DefaultType: text("Claude Code"), Strategy: text("heuristic"), Preset: text("READONLY"), Credentials: text("subscription"),
		Models: map[string]choice.ModelChange{"openai": {Fast: text("tiny")}, "claude": {Powerful: text("huge")}},
	}
	if err := s.Change(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check := func(s *choice.Settings) {
		t.Helper()
		v := s.Now()
		if v.DefaultType != programs.Claude || v.Strategy() != "ranked" || v.Preset != "readonly" || v.Credentials != "subscription" ||
			v.Cols != 100 {
			t.Errorf(`%+v; want v.DefaultType = programs.Claude, v.Strategy() = "ranked", v.Preset = "readonly", v.Credentials `+
				`= "subscription", v.Cols = 100`, v)
		}
		if d := cmp.Diff(map[programs.Name]choice.Models{programs.Codex: {Powerful: "big", Fast: "tiny"}, programs.Claude: {Powerful: "huge"}},
			v.Models); d != "" {
			t.Errorf(`d = %q, want ""`, d)
		}
	}
	check(s)
	again := open(t, rows(t, file), get)
	check(again)
	if base.Models[programs.Codex].Fast != "small" {
		t.Error(`the configuration was changed; want base.Models[programs.Codex].Fast = "small"`)
	}
	// A part alone changes; the empty text goes back; none clears it.
	if err := again.Change(t.Context(), choice.SettingsChange{
		DefaultType: text("none"), Preset: text(""),
		Models: map[string]choice.ModelChange{"codex": {Fast: text("")}},
	}); err != nil {
		t.Fatal(err)
	}
	if v := again.Now(); v.DefaultType != "" || v.Preset != "standard" || v.Models[programs.Codex].Fast != "small" ||
		v.Models[programs.Claude].Powerful != "huge" || v.Strategy() != "ranked" {
		t.Errorf(`%+v; want v.DefaultType = "", v.Preset = "standard", v.Models[programs.Codex].Fast = "small", `+
			`v.Models[programs.Claude].Powerful = "huge", v.Strategy() = "ranked"`, v)
	}
}

func TestBadSettingsChangeNothing(t *testing.T) {
	t.Parallel()
	s := open(t, rows(t, filepath.Join(t.TempDir(), "state.db")), func() (choice.SettingValues, error) { return choice.SettingValues{}, nil })
	for name, c := range map[string]choice.SettingsChange{
		"type": {DefaultType: text("emacs")}, "hermes": {DefaultType: text("hermes")}, "strategy": {Strategy: text("random")},
		"preset":      {Preset: text("yolo")},
		"credentials": {Credentials: text("x")}, "models of none": {Models: map[string]choice.ModelChange{"none": {Fast: text("m")}}},
		"models of a shell": {Models: map[string]choice.ModelChange{"shell": {Fast: text("m")}}},
		"a flag":            {Models: map[string]choice.ModelChange{"claude": {Fast: text("--x")}}},
		"half of it":        {Preset: text("standard"), Strategy: text("random")},
	} {
		err := s.Change(t.Context(), c)
		if capability.CodeOf(err) != capability.CodeInvalidInput || capability.AsError(err).Reason != "bad_setting" {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, capability.AsError(err).Reason = "bad_setting"`,
				name, err)
		}
		if v := s.Now(); v.Preset != "" || v.Ranked || v.DefaultType != "" {
			t.Errorf(`%s: %+v; want v.Preset = "", v.Ranked = false, v.DefaultType = ""`, name, v)
		}
	}
}

// TestAnUnreadableConfigurationLeavesTheLast: a file that is being written must not change
// what holds.
func TestAnUnreadableConfigurationLeavesTheLast(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	base, fault := choice.SettingValues{Preset: "standard"}, error(nil)
	say := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		base.Preset, fault = "", err
		if err == nil {
			base.Preset = "permissive"
		}
	}
	s := open(t, rows(t, filepath.Join(t.TempDir(), "state.db")), func() (choice.SettingValues, error) {
		mu.Lock()
		defer mu.Unlock()
		return base, fault
	})
	say(errors.New("line 1"))
	if p := s.Now().Preset; p != "standard" {
		t.Errorf(`%q; want p = "standard"`, p)
	}
	say(nil)
	if p := s.Now().Preset; p != "permissive" {
		t.Errorf(`%q; want p = "permissive"`, p)
	}
}

func TestDamagedSettingsAreAnError(t *testing.T) {
	t.Parallel()
	r := rows(t, filepath.Join(t.TempDir(), "state.db"))
	if err := r.Row("settings").Save(t.Context(), []byte("{")); err != nil {
		t.Fatal(err)
	}
	_, err := choice.OpenSettings(t.Context(), r.Row("settings"), func() (choice.SettingValues, error) { return choice.SettingValues{}, nil },
		nil)
	if capability.AsError(err).Reason != "settings_damaged" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "settings_damaged"`, err)
	}
	if data, err := r.Row("other").Load(context.Background()); err != nil || data != nil {
		t.Errorf("%q %v; want no error, data = nil", data, err)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	v := choice.SettingValues{Models: map[programs.Name]choice.Models{programs.Codex: {Powerful: "big"}, programs.Gemini: {Fast: "flash"}}}
	for _, tt := range []struct {
		name        programs.Name
		asked, want string
	}{
		{programs.Codex, "", "big"},
		{programs.Codex, "powerful", "big"},
		{programs.Codex, "fast", "gpt-5.5-mini"},
		{programs.Codex, "mine", "mine"},
		{programs.Claude, "", ""},
		{programs.Claude, "powerful", "claude-opus-4-7"},
		{programs.Claude, "fast", ""},
		{programs.Gemini, "fast", "flash"},
		{programs.Gemini, "", ""},
		{programs.Shell, "", ""},
	} {
		if got := v.Model(tt.name, tt.asked); got != tt.want {
			t.Errorf("%s, asked for %q: %q, want %q", tt.name, tt.asked, got, tt.want)
		}
	}
}

func TestWhichCredentialsProgramsGet(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"ANTHROPIC_API_KEY": "sk-ant-api", "OPENAI_API_KEY": "sk-1", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat-1",
		"GEMINI_API_KEY": "g", "PATH": "/bin", "ANTHROPIC_AUTH_TOKEN": "t",
	}
	with := func(names ...string) map[string]string {
		out := map[string]string{"PATH": "/bin", "PARALLAX_OPENCODE_API_KEY": "own"}
		for _, n := range names {
			out[n] = env[n]
		}
		return out
	}
	for credentials, want := range map[string]map[string]string{
		"":             with("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "GEMINI_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
		"subscription": with("CLAUDE_CODE_OAUTH_TOKEN"), "api_keys": with("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY",
			"ANTHROPIC_AUTH_TOKEN"), "cloud": with(),
	} {
		v := choice.SettingValues{
			Credentials: credentials, OpenCodeKey: secret.New("own"),
			Accounts: map[string]string{"ANTHROPIC_API_KEY": "of a file"},
		}
		if d := cmp.Diff(want, v.Login(env)); d != "" {
			t.Errorf(`%q: %s; want d = ""`, credentials, d)
		}
	}
	// A subscription's token in the place of a key is one all the same.
	v := choice.SettingValues{Credentials: "subscription", Accounts: map[string]string{"ANTHROPIC_API_KEY": "sk-ant-oat-2"}}
	if d := cmp.Diff(map[string]string{"ANTHROPIC_API_KEY": "sk-ant-oat-2"}, v.Login(nil)); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
}
