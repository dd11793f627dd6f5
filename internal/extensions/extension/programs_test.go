package extension_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

// TestProgramsAreThoseThatCommandsRun: what people agree to is what runs, whatever the
// manifest says of it.
func TestProgramsAreThoseThatCommandsRun(t *testing.T) {
	t.Parallel()
	const head = "slash_commands: [{name: /b, summary: s, actions: ["
	for name, c := range map[string]struct {
		actions, manifest string
		want              []string
		warning           string
	}{
		"runners name them": {
			`{id: a, runner: exec.wc}, {id: c, runner: exec.echo}, {id: d, runner: exec.wc}`, `{}`,
			[]string{"echo", "wc"},
			"",
		},
		"one that goes by another name": {`{id: a, runner: exec.postman_cli}`, `{}`, []string{"postman"}, ""},
		"a template names one": {
			`{id: a, runner: exec.shell, command: "git log"}`,
			`{"capabilities":[{"command":"/b","runner":"exec.shell","permissions":["exec"],"allowed_commands":["git log"]}]}`,
			[]string{"git"},
			"",
		},
		"other families run none": {`{id: a, runner: analyze.response}`, `{}`, nil, ""},
		"one that is named and never run": {
			`{id: a, runner: exec.echo}`, `{"external_bins":["curl"]}`,
			[]string{"echo"},
			"external_bins names curl",
		},
		"a purpose of no action": {
			`{id: a, runner: exec.echo}`, `{"permissions":{"exec":{"reason":"r","actions":["a","b.a","get"]}}}`,
			[]string{"echo"},
			"what get needs exec for",
		},
	} {
		f := with(t, with(t, minimal(), `{"permissions_required":["exec"]}`), c.manifest)
		f["commands/commands.yaml"] = head + c.actions + "]}]"
		p, err := extension.Read(f, rules())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := cmp.Diff(c.want, p.External()); d != "" {
			t.Errorf("diff (-want +got):\n%s; name = %q", d, name)
		}
		if said := strings.Join(p.Warnings, "\n"); c.warning == "" && strings.Contains(said, "external_bins") ||
			!strings.Contains(said, c.warning) {
			t.Errorf(`%s: %q; want not (c.warning == "" && strings.Contains(said, "external_bins")), said with %v`,
				name, said, c.warning)
		}
	}
}

// TestTheRuntimePolicyLooksAtCommands: an empty list in the manifest does not prove that no program runs.
func TestTheRuntimePolicyLooksAtCommands(t *testing.T) {
	t.Parallel()
	on := rules()
	on.NoExternalBins = true
	f := with(t, minimal(), `{"runtime":"declarative","external_bins":[],"permissions_required":["exec"]}`)
	if _, err := extension.Read(f, on); err != nil {
		t.Error(err)
	}
	f["commands/commands.yaml"] = "slash_commands: [{name: /b, summary: s, actions: [{id: a, runner: exec.curl}]}]"
	if _, err := extension.Read(f, on); err == nil || capability.AsError(err).Details["policy_code"] != "POLICY_EXTERNAL_BINARY_FORBIDDEN" {
		t.Errorf(`%v; want an error, capability.AsError(err).Details["policy_code"] = "POLICY_EXTERNAL_BINARY_FORBIDDEN"`, err)
	}
}
