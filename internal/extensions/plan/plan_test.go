package plan_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

const all = `
id: tools.x
steps:
  - {type: detect.platform}
  - {id: get, type: download.http, url: "https://example.com/tool.zip", target: work/dl/tool.zip, sha256: "%s"}
  - {id: unpack, type: extract.zip, source: dl/tool.zip, target: ./tool}
  - {id: sh, type: exec.shell, command: "echo hi", requires_permissions: [exec_shell], timeout: 2}
  - {id: mac, type: exec.shell, command: "true", when: "platform.os == 'darwin'"}
  - {id: has, type: verify.command_exists, command: "curl --version"}
  - {id: up, type: verify.http, url: "https://example.com/"}
  - {id: conf, type: write.config, config_key: retries, config_value: {n: 3}}
uninstall:
  steps:
    - {id: sh, type: exec.shell, command: "echo bye"}
`

func everything() []string { return []string{"exec", "network", "filesystem.write"} }

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestPlansAreCheckedBeforeAnyStepRuns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ why, step, want string }{
		{"unknown kind", "{type: exec.python, command: x}", plan.ReasonStepType},
		{"no kind", "{id: a}", plan.ReasonStepType},
		{"outside", "{type: download.http, url: 'https://a.test/', target: ../../x}", plan.ReasonTarget},
		{"absolute", "{type: download.http, url: 'https://a.test/', target: /etc/x}", plan.ReasonTarget},
		{"through work", "{type: download.http, url: 'https://a.test/', target: work/../../x}", plan.ReasonTarget},
		{"no target", "{type: download.http, url: 'https://a.test/'}", plan.ReasonPlan},
		{"placeholder", "{type: download.http, url: 'https://a.test/', target: x, sha256: '<sha256 here>'}", plan.ReasonVerification},
		{"zeros", "{type: download.http, url: 'https://a.test/', target: x, sha256: '" + strings.Repeat("0", 64) + "'}", plan.ReasonVerification},
		{"file", "{type: download.http, url: 'file:///etc/passwd', target: x}", plan.ReasonPlan},
		{"user", "{type: verify.http, url: 'https://a:b@a.test/'}", plan.ReasonPlan},
		{"condition", "{type: detect.platform, when: '().__class__'}", plan.ReasonCondition},
		{"condition of another kind", "{type: detect.platform, when: [1]}", plan.ReasonCondition},
		{"not declared", "{type: detect.platform, requires_permissions: [browser]}", plan.ReasonPermission},
		{"no permission", "{type: detect.platform, requires_permissions: [root]}", plan.ReasonPlan},
		{"command", "{type: verify.command_exists, command: '../x'}", plan.ReasonPlan},
		{"empty command", "{type: exec.shell, command: ' '}", plan.ReasonPlan},
		{"source", "{type: extract.zip, source: '../x.zip'}", plan.ReasonTarget},
		{"timeout", "{type: detect.platform, timeout: 1e9}", plan.ReasonPlan},
		{"key", "{type: write.config, config_key: '../x'}", plan.ReasonPlan},
		{"id", "{id: 'a b', type: detect.platform}", plan.ReasonPlan},
		{"shape", "[]", plan.ReasonPlan},
		{"link outside", "{action: create_symlink, source: a, target: ../x}", plan.ReasonTarget},
	} {
		_, _, err := plan.Parse([]byte("steps:\n  - "+tt.step), "tools.x", everything())
		if reason(err) != tt.want {
			t.Errorf("%s: %v; want reason(err) = %v", tt.why, err, tt.want)
		}
	}
	for permission, step := range map[string]string{
		"network": "{type: verify.http, url: 'https://a.test/'}",
		"exec":    "{type: exec.powershell, command: x}", "filesystem.write": "{type: extract.zip, source: x}",
	} {
		if _, _, err := plan.Parse([]byte("steps: ["+step+"]"), "", nil); reason(err) != plan.ReasonPermission ||
			capability.AsError(err).Details["denied_permission"] != permission {
			t.Errorf(`%s: %v; want reason(err) = plan.ReasonPermission, capability.AsError(err).Details["denied_permission"] = %v`,
				permission, err, permission)
		}
	}
	if _, _, err := plan.Parse([]byte("id: other.x"), "tools.x", nil); reason(err) != plan.ReasonPlan {
		t.Errorf("%v; want reason(err) = plan.ReasonPlan", err)
	}
	if _, _, err := plan.Parse([]byte("steps: [{id: a, type: detect.platform}, {id: a, type: detect.platform}]"), "",
		nil); capability.AsError(err).Details["failed_step"] != "a" {
		t.Errorf(`%v; want capability.AsError(err).Details["failed_step"] = "a"`, err)
	}
}

func TestOlderSpellingsAreRead(t *testing.T) {
	t.Parallel()
	doc := `
steps:
  - {action: check_dependency, name: git}
  - {action: download_binary, url: "https://a.test/x", target: /usr/local/bin/x}
  - {action: install_binary, source: dl/x, destination: /usr/bin/x}
  - {action: create_symlink, source: bin/x, link: bin/y}
  - {action: verify_installation, command: "bin/x --version"}
  - {action: set_config, key: a, value: 1}
  - {type: detect_platform}
  - {type: write_config, data: {b: 2}}
  - {type: verify_command_exists, command: git}
  - {type: test_command, command: "true"}
`
	p, warnings, err := plan.Parse([]byte(doc), "", everything())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range p.Steps {
		got = append(got, strings.TrimSpace(strings.Join([]string{s.Type, s.Target, s.Command, s.Key, string(s.Value)}, " ")))
	}
	want := []string{
		"verify.command_exists  git", "download.http bin/x", "exec.shell  mkdir -p 'bin' && cp -- 'dl/x' 'bin/x' && chmod 755 -- 'bin/x'",
		`exec.shell  mkdir -p 'bin' && ln -sf -- "$PWD"/'bin/x' 'bin/y'`, "exec.shell  bin/x --version", "write.config   a 1", "detect.platform",
		`write.config   config {"b":2}`, "verify.command_exists  git", "exec.shell  true",
	}
	if d := cmp.Diff(want, got); d != "" || len(warnings) != 11 {
		t.Errorf("diff (-want +got):\n%s; len(warnings) = %v, want 11; warnings = %q", d, len(warnings), warnings)
	}
}

type programs struct {
	ran  []string
	exit int
	hang bool
}

func (p *programs) Run(ctx context.Context, x plan.Program) (plan.Outcome, error) {
	p.ran = append(p.ran, x.Script)
	if p.hang {
		<-ctx.Done()
		return plan.Outcome{}, ctx.Err()
	}
	return plan.Outcome{ExitCode: p.exit, Output: "line\nlast " + strings.Repeat("x", 1000)}, nil
}

func (p *programs) Exists(_ context.Context, _, name string) (bool, error) {
	return name == "curl", nil
}

type fetcher struct{ data []byte }

func (f fetcher) Fetch(_ context.Context, _ string, to io.Writer, _ int64, restart func() error) error {
	_, _ = to.Write([]byte("a broken beginning"))
	if err := restart(); err != nil {
		return err
	}
	_, err := to.Write(f.data)
	return err
}

func (fetcher) Check(context.Context, string) error { return nil }

func packed(t *testing.T, name string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	f, _ := w.Create(name)
	_, _ = f.Write([]byte("x"))
	_ = w.Close()
	return b.Bytes()
}

func job(t *testing.T, data []byte, declared []string) (plan.Job, *[]string) {
	t.Helper()
	p, _, err := plan.Parse(data, "tools.x", declared)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	var reports []string
	return plan.Job{
		Extension: "tools.x", Steps: p.Steps, Work: dir, Root: root, Platform: plan.Platform{OS: "linux", Arch: "x64"}, Permissions: declared,
		Done: func(r plan.Report) error {
			reports = append(reports, fmt.Sprintf("%d/%d %s %s", r.Number, r.Total, r.Step, r.Status))
			if len(r.Output) > 500 {
				t.Errorf("a long output is kept; got len(r.Output) = %v; want len(r.Output) at most 500", len(r.Output))
			}
			return nil
		},
	}, &reports
}

func TestStepsRunInOrder(t *testing.T) {
	t.Parallel()
	data := packed(t, "bin/tool")
	sum := sha256.Sum256(data)
	j, reports := job(t, fmt.Appendf(nil, all, hex.EncodeToString(sum[:])), everything())
	progs := &programs{}
	e := plan.Engine{Programs: progs, Fetcher: fetcher{data}}
	r, err := e.Run(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1/8 step_1 completed", "2/8 get completed", "3/8 unpack completed", "4/8 sh completed", "5/8 mac skipped",
		"6/8 has completed", "7/8 up completed", "8/8 conf completed",
	}
	if d := cmp.Diff(want, *reports); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"echo hi"}, progs.ran); d != "" || string(r.Config["retries"]) != `{"n":3}` || len(r.Completed) != 7 ||
		len(r.Skipped) != 1 {
		t.Errorf("result = %+v, want 7 steps completed and one skipped; diff (-want +got):\n%s", r, d)
	}
	if data, err := os.ReadFile(filepath.Join(j.Work, "tool/bin/tool")); err != nil || string(data) != "x" {
		t.Errorf(`%v; want no error, string(data) = "x"`, err)
	}
	if list, _ := os.ReadDir(filepath.Join(j.Work, "dl")); len(list) != 1 {
		t.Errorf("a part was left behind; got len(list) = %v; want len(list) = 1", len(list))
	}
	// Again over what is there.
	if _, err := e.Run(t.Context(), j); err != nil {
		t.Error(err)
	}
}

func TestAFailedStepEndsTheRunAndIsNamed(t *testing.T) {
	t.Parallel()
	wrong := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		step string
		want string
		e    plan.Engine
	}{
		{"{id: s, type: exec.shell, command: x}", plan.ReasonCommand, plan.Engine{Programs: &programs{exit: 3}}},
		{"{id: s, type: verify.command_exists, command: nothere}", plan.ReasonVerification, plan.Engine{Programs: &programs{}}},
		{
			"{id: s, type: download.http, url: 'https://a.test/', target: x, sha256: " + wrong + "}", plan.ReasonVerification,
			plan.Engine{Fetcher: fetcher{}},
		},
		{"{id: s, type: extract.zip, source: x}", plan.ReasonUnknown, plan.Engine{}},
	} {
		j, reports := job(t, []byte("steps: ["+tt.step+", {type: detect.platform}]"), everything())
		_, err := tt.e.Run(t.Context(), j)
		if reason(err) != tt.want || capability.AsError(err).Details["failed_step"] != "s" || len(*reports) != 1 {
			t.Errorf(`%s: %v %v; want reason(err) = %v, capability.AsError(err).Details["failed_step"] = "s", len(*reports) = 1`,
				tt.step, err, *reports, tt.want)
		}
		if _, err := os.Stat(filepath.Join(j.Work, "x")); !errors.Is(err, os.ErrNotExist) {
			t.Error("what was not verified is there")
		}
	}
	j, _ := job(t, []byte("steps: [{id: a, type: download.http, url: 'https://a.test/', target: x.zip}, {id: s, type: extract.zip, source: x.zip}]"), everything())
	if _, err := (&plan.Engine{Fetcher: fetcher{packed(t, "../../evil")}}).Run(t.Context(), j); reason(err) != "security_violation" {
		t.Errorf(`%v; want reason(err) = "security_violation"`, err)
	}
	j.Steps[1].Type = plan.ExtractTar
	if _, err := (&plan.Engine{Fetcher: fetcher{packed(t, "x")}}).Run(t.Context(), j); reason(err) != "invalid_archive" {
		t.Errorf(`%v; want reason(err) = "invalid_archive"`, err)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(j.Work, "link.zip")); err != nil {
		t.Fatal(err)
	}
	j.Steps[1].Source = "link.zip"
	if _, err := (&plan.Engine{Fetcher: fetcher{packed(t, "x")}}).Run(t.Context(), j); reason(err) != plan.ReasonUnknown {
		t.Errorf("%v; want reason(err) = plan.ReasonUnknown", err)
	}
}

func TestAStepThatHangsTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, _ := job(t, []byte("steps: [{id: s, type: exec.shell, command: x, timeout: 7}]"), everything())
		began := time.Now()
		_, err := (&plan.Engine{Programs: &programs{hang: true}}).Run(t.Context(), j)
		if capability.CodeOf(err) != capability.CodeTimeout || reason(err) != plan.ReasonTimeout || time.Since(began) != 7*time.Second {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTimeout, reason(err) = plan.ReasonTimeout, "+
				"time.Since(began) = 7 * time.Second", err)
		}
	})
}

type broken struct{}

func (broken) Run(context.Context, plan.Program) (plan.Outcome, error) { panic("broken") }

func (broken) Exists(context.Context, string, string) (bool, error) { panic("broken") }

func TestAStepThatBreaksInsideIsAFailedStep(t *testing.T) {
	t.Parallel()
	j, _ := job(t, []byte("steps: [{id: s, type: exec.shell, command: x}]"), everything())
	if _, err := (&plan.Engine{Programs: broken{}}).Run(t.Context(), j); capability.CodeOf(err) != capability.CodeInternal {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInternal", err)
	}
	if _, err := (&plan.Engine{}).Run(t.Context(), j); reason(err) != "sandbox_unavailable" {
		t.Errorf(`%v; want reason(err) = "sandbox_unavailable"`, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(all))
	f.Add([]byte("steps: [{action: create_symlink, source: a, target: /usr/bin/..}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, _, err := plan.Parse(data, "tools.x", everything())
		if err != nil {
			if reason(err) == "" {
				t.Fatalf(`%v; want reason(err) other than ""`, err)
			}
			return
		}
		for _, s := range append(p.Steps, p.Uninstall...) {
			if s.Target != "" && !filepath.IsLocal(s.Target) || s.Source != "" && s.Type == plan.ExtractZip && !filepath.IsLocal(s.Source) {
				t.Fatalf(`%+v; want not (s.Target != "" && !filepath.IsLocal(s.Target)), not (s.Source != "" && s.Type == `+
					"plan.ExtractZip && !filepath.IsLocal(s.Source))", s)
			}
		}
	})
}
