package declaration_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

func TestOtherSpellingsMeanTheSame(t *testing.T) {
	t.Parallel()
	got, unknown := declaration.CanonicalPermissions([]string{
		"fs_write", "network_http", "exec_shell", "exec", "network.call", "exec_builtin",
		"fs_read",
	})
	if d := cmp.Diff([]string{"exec", "network", "filesystem.read", "filesystem.write", "builtin.exec"}, got); d != "" || unknown != "" {
		t.Errorf(`d = %q, want ""; unknown = %q, want ""`, d, unknown)
	}
	if _, unknown := declaration.CanonicalPermissions([]string{"exec", "Exec"}); unknown != "Exec" {
		t.Errorf(`declaration.CanonicalPermissions: unknown = %q, want "Exec"`, unknown)
	}
}

func TestTheHighestEffectCounts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		want  capability.Effect
		names []string
	}{
		{capability.EffectRead, nil},
		{capability.EffectRead, []string{"filesystem.read", "read_status", "session.read", "db.read", "llm", "fs_read"}},
		{capability.EffectWrite, []string{"db.read", "db.write"}},
		{capability.EffectWrite, []string{"filesystem.write"}},
		{capability.EffectExternal, []string{"filesystem.write", "network"}},
		{capability.EffectExternal, []string{"read", "it is not known"}},
	} {
		if got := declaration.PermissionsEffect(tt.names); got != tt.want {
			t.Errorf("%v: %s; want got = %v", tt.names, got, tt.want)
		}
	}
	for _, name := range []string{"exec", "exec.interpreter", "builtin.exec", "network", "network.raw", "browser"} {
		if declaration.PermissionsEffect([]string{name}) != capability.EffectExternal {
			t.Errorf("%s: effect = %v, want external", name, declaration.PermissionsEffect([]string{name}))
		}
	}
}

func TestLockedModesWithholdWhatTheSpecNames(t *testing.T) {
	t.Parallel()
	var locked []string
	for _, r := range declaration.Permissions() {
		if r.Locked {
			locked = append(locked, r.Name)
		}
	}
	if d := cmp.Diff([]string{"exec", "filesystem.write", "browser", "exec.interpreter", "db.write", "network.raw"}, locked); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
}

func TestWhatARunnerNeeds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		runner string
		remote bool
		want   []string
	}{
		{"exec.curl", false, []string{"exec"}},
		{"exec.shell", false, []string{"exec"}},
		{"script.js", false, []string{"exec"}},
		{"builtin", false, []string{"builtin.exec"}},
		{"exec.python_handler", false, []string{"builtin.exec"}},
		{"api.get", false, []string{"network"}},
		{"browser.run", false, []string{"browser", "network"}},
		{"db.query", false, []string{"db.read"}},
		{"db.exec", true, []string{"db.write", "network"}},
		{"analyze.response", false, nil},
		{"teleport.now", false, nil},
	} {
		got := declaration.NeededPermissions(tt.runner, tt.remote)
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("diff (-want +got):\n%s; tt.runner = %q", d, tt.runner)
		}
		for _, name := range got {
			if _, ok := declaration.LookupPermission(name); !ok {
				t.Errorf("%s needs %s, which is not a permission; want ok = true", tt.runner, name)
			}
		}
	}
}
