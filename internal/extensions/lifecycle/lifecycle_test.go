package lifecycle_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFreshInstallWaitsForAYes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rec := r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	if d := cmp.Diff([]string{"one", "set", "two"}, rec.Steps); d != "" || rec.Status != lifecycle.Completed || rec.Progress != 100 ||
		rec.Extension != "tools.sample" {
		t.Errorf(`%+v; want d = "", rec.Status = lifecycle.Completed, rec.Progress = 100, rec.Extension = "tools.sample"`, rec)
	}
	if again, err := r.Record(t.Context(), rec.ID); err != nil || again.Status != lifecycle.Completed {
		t.Errorf("r.Record(t.Context(), rec.ID): err = %v, want nil; again.Status = %q, want lifecycle.Completed", err, again.Status)
	}
	if r.row("tools.sample").Enabled {
		t.Error("it runs, and nobody was asked")
	}
	_, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{})
	screen, ok := capability.AsError(err).Details["screen"].(extension.Screen)
	if capability.CodeOf(err) != capability.CodeApprovalRequired || !ok || !strings.Contains(screen.Text(), "runs its tool") {
		t.Fatalf(`%v; want capability.CodeOf(err) = capability.CodeApprovalRequired, ok = true, screen.Text() with "runs its tool"`,
			err)
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample",
		lifecycle.Answer{TreeHash: strings.Repeat("0", 64)}); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample",
		lifecycle.Answer{TreeHash: screen.TreeHash, AgentVisible: []string{"sample.none"}}); capability.CodeOf(
		err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf( err) = capability.CodeInvalidInput", err)
	}
	if _, err := r.Enable(t.Context(), admin(), "Tools.Sample",
		lifecycle.Answer{TreeHash: screen.TreeHash, AgentVisible: []string{"sample.look"}}); err != nil {
		t.Fatal(err)
	}
	batch, diagnostics := r.View().Batch()
	var ids []string
	for _, c := range batch.Modules[0].Contributions {
		ids = append(ids, c.ID)
	}
	if d := cmp.Diff([]string{"command.sample", "tool.sample.look", "tool.sample.run"}, ids); d != "" || len(diagnostics) > 0 ||
		batch.Modules[0].Stage != capability.StageActivated {
		t.Errorf("diagnostics = %q, batch = %+v; want an activated module; diff (-want +got):\n%s", diagnostics, batch, d)
	}
	// Once said is said; more is asked for again.
	if _, err := r.Disable(t.Context(), admin(), "tools.sample", true); err != nil || len(r.runs.stopped) != 1 {
		t.Errorf("%v; want no error, len(r.runs.stopped) = 1", err)
	}
	if x, ok := r.View().Find("tools.sample"); !ok || x.Enabled {
		t.Error("it is enabled still")
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{}); err != nil {
		t.Error(err)
	}
	// all was shown already
	if _, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{AgentVisible: []string{"all"}}); err != nil {
		t.Error(err)
	}
	want := []string{
		"extension_step_executed tools.sample", "extension_step_executed tools.sample", "extension_step_executed tools.sample",
		"extension_installed tools.sample",
		"extension_enabled tools.sample", "extension_disabled tools.sample", "extension_enabled tools.sample", "extension_enabled tools.sample",
	}
	if d := cmp.Diff(want, r.log.take()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	detail, err := r.Show(t.Context(), "tools.sample")
	if err != nil || detail.Usage != "usage of 1.0.0" || detail.Package == nil || detail.Busy {
		t.Errorf("detail = %+v, err = %v; want the usage and package of 1.0.0, not busy", detail, err)
	}
	if _, err := json.Marshal(detail); err != nil {
		t.Error(err)
	}
	if _, _, err := r.Icon("tools.sample"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

func TestFolderZipAndAddressInstallTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	data := sample("1.0.0").zip(t)
	sum := sha256.Sum256(data)
	r.cfg.Fetcher = fetcher{"https://a.test/x.zip": data}
	r.cfg.NeedDigest = true
	r.open()
	var hashes []string
	for _, src := range []lifecycle.Source{
		{Zip: bytes.NewReader(data), Size: int64(len(data)), SHA256: strings.ToUpper(hex.EncodeToString(sum[:]))},
		{Dir: sample("1.0.0").dir(t)},
		{URL: "https://a.test/x.zip", SHA256: hex.EncodeToString(sum[:])},
	} {
		r.must(r.Install(t.Context(), admin(), src, lifecycle.Options{}))
		hashes = append(hashes, r.row("tools.sample").TreeHash)
		if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
			t.Fatal(err)
		}
	}
	if hashes[0] != hashes[1] || hashes[1] != hashes[2] {
		t.Errorf("hashes = %q, want equal ones", hashes)
	}
	for _, tt := range []struct {
		src  lifecycle.Source
		want capability.Code
	}{
		{lifecycle.Source{URL: "https://a.test/x.zip"}, capability.CodeInvalidInput},
		{lifecycle.Source{URL: "https://a.test/x.zip", SHA256: strings.Repeat("ab", 32)}, capability.CodeFailed},
		{lifecycle.Source{URL: "https://a.test/none", SHA256: strings.Repeat("ab", 32)}, capability.CodeInternal},
		{lifecycle.Source{Zip: bytes.NewReader(data), Size: int64(len(data)), SHA256: "x"}, capability.CodeInvalidInput},
		{lifecycle.Source{Zip: bytes.NewReader(data), Size: 51 << 20}, capability.CodeTooLarge},
		{lifecycle.Source{Dir: filepath.Join(r.home, "none")}, capability.CodeInvalidInput},
		{lifecycle.Source{}, capability.CodeInvalidInput},
	} {
		rec, err := r.Install(t.Context(), admin(), tt.src, lifecycle.Options{})
		if capability.CodeOf(err) != tt.want || rec.Status != lifecycle.Failed || rec.Code == "" || rec.FailedStep == "" {
			t.Errorf(`%+v: %v %+v; want capability.CodeOf(err) = %v, rec.Status = lifecycle.Failed, rec.Code other than "", `+
				`rec.FailedStep other than ""`, tt.src, err, rec, tt.want)
		}
	}
	if d := cmp.Diff("file .staging drwx------ \nfile .trash drwx------ ", strings.Join(strings.Split(r.state(), "\n")[1:3], "\n")); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
}

func TestUpgrades(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.enable("tools.sample")
	if rec := r.must(r.install(sample("1.0.0"), lifecycle.Options{})); rec.Step != "nothing to do" || len(rec.Steps) != 0 {
		t.Errorf(`%+v; want rec.Step = "nothing to do", len(rec.Steps) = 0`, rec)
	}
	if err := os.WriteFile(filepath.Join(r.cfg.Dir, "tools.sample", "work", "mine"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rec := r.must(r.install(sample("1.1.0"), lifecycle.Options{})); rec.Operation != lifecycle.OpUpgrade || !r.row("tools.sample").Enabled {
		t.Errorf(`%+v; want rec.Operation = lifecycle.OpUpgrade, r.row("tools.sample").Enabled = true`, rec)
	}
	if data, err := os.ReadFile(filepath.Join(r.cfg.Dir, "tools.sample", "work", "mine")); string(data) != "mine" {
		t.Errorf(`%v; want string(data) = "mine"`, err)
	}
	if _, err := r.install(sample("1.0.0"), lifecycle.Options{}); reason(err) != lifecycle.ReasonVersion {
		t.Errorf("%v; want reason(err) = lifecycle.ReasonVersion", err)
	}
	r.must(r.install(sample("1.0.0"), lifecycle.Options{Force: true}))
	more := sample("1.2.0").with("commands/commands.yaml", "id: look,", "id: look, agentVisible: true,")
	r.must(r.install(more, lifecycle.Options{}))
	if r.row("tools.sample").Enabled {
		t.Error("it shows agents more than was agreed to, and runs")
	}
	if s, err := r.Screen(t.Context(), "tools.sample", nil); err != nil || cmp.Diff([]string{"tool for agents sample.look"}, s.More) != "" {
		t.Errorf("more = %q, err = %v; want tool for agents sample.look", s.More, err)
	}
	_, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{})
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeApprovalRequired", err)
	}
	if config, err := r.Config(t.Context(), "tools.sample"); err != nil || string(config) != `{"mode":"1.0.0"}` {
		t.Errorf("r.Config(t.Context(), \"tools.sample\"): err = %v, want nil; string(config) = %q, want \"{\\\"mode\\\":\\\"1.0.0\\\"}\"",
			err, string(config))
	}
	if _, err := r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.Sample"),
		lifecycle.Options{}); reason(err) != "registration_conflict" {
		t.Errorf(`%v; want reason(err) = "registration_conflict"`, err)
	}
	if !has(r.log.take(), "extension_upgraded tools.sample") {
		t.Error("no record")
	}
}

func TestWhatCannotBeInstalled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.state()
	for why, tt := range map[string]struct {
		files files
		want  string
	}{
		"platform":     {sample("1.0.0").with("manifest.json", `["linux"]`, `["win32"]`), "platform_not_supported"},
		"permission":   {sample("1.0.0").with("manifest.json", `["exec"]`, `["llm"]`), "permission_denied"},
		"step fails":   {sample("1.0.0").with("install/plan.yaml", "write two", "fail"), "command_failed"},
		"tampers":      {sample("1.0.0").with("install/plan.yaml", "write two", "tamper"), lifecycle.ReasonChanged},
		"reserved":     {sample("1.0.0").with("commands/commands.yaml", "/sample", "/help"), "reserved_command"},
		"kind of step": {sample("1.0.0").with("install/plan.yaml", "exec.shell", "exec.python"), "invalid_step_type"},
		"condition": {
			sample("1.0.0").with("install/plan.yaml", "command: write two", "command: write two, when: '().x'"),
			"condition_error",
		},
		"no such thing": {sample("1.0.0").with("install/plan.yaml", "type: exec.shell, command: write two",
			"type: verify.command_exists, command: nothere"), "verification_failed"},
		"commands":       {sample("1.0.0").with("commands/commands.yaml", "slash_commands", "slash"), "invalid_commands"},
		"manifest":       {sample("1.0.0").with("manifest.json", "tools.sample", "core.sample"), "invalid_manifest"},
		"shape":          {files{"a": "b"}, "invalid_archive"},
		"way out":        {files{"manifest.json": "{}", "../../x": ""}, "security_violation"},
		"program on top": {files{"manifest.json": "{}", "x.sh": ""}, "security_violation"},
	} {
		rec, err := r.install(tt.files, lifecycle.Options{})
		if reason(err) != tt.want || rec.Status != lifecycle.Failed || rec.Code != tt.want || rec.Error == "" {
			t.Errorf(`%s: %v %+v; want reason(err) = %v, rec.Status = lifecycle.Failed, rec.Code = %v, rec.Error other than ""`,
				why, err, rec, tt.want, tt.want)
		}
		if d := cmp.Diff(before, r.state()); d != "" {
			t.Errorf(`%s: %s; want d = ""`, why, d)
		}
		events := r.log.take()
		if !has(events, "extension_install_failed") || has(events, "security_violation") != (tt.want == "security_violation") {
			t.Errorf(`%s: %v; want has(events, "extension_install_failed"), has(events, "security_violation") = (tt.want == `+
				`"security_violation")`, why, events)
		}
	}
	if rec, _ := r.install(sample("1.0.0").with("install/plan.yaml", "write two", "fail"), lifecycle.Options{}); rec.FailedStep != "two" ||
		rec.Steps[1] != "set" {
		t.Errorf(`%+v; want rec.FailedStep = "two", rec.Steps[1] = "set"`, rec)
	}
	if _, err := r.install(sample("1.0.0"), lifecycle.Options{Record: "inst_none"}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	rec, err := r.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := r.Record(t.Context(), rec.ID); err != nil || found.Status != lifecycle.Running {
		t.Errorf("r.Record(t.Context(), rec.ID): err = %v, want nil; found.Status = %q, want lifecycle.Running", err, found.Status)
	}
	r.must(r.install(sample("1.0.0"), lifecycle.Options{Record: rec.ID}))
	if _, err := r.install(sample("1.0.0"), lifecycle.Options{Record: rec.ID}); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
}

func TestAPackageThatWasChangedDoesNotRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.enable("tools.sample")
	guide := filepath.Join(r.cfg.Dir, "tools.sample", "docs", "USAGE.md")
	if err := os.WriteFile(guide, []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	r.log.take()
	r.open()
	if r.row("tools.sample").Enabled || !has(r.log.take(), "security_violation tools.sample") {
		t.Error("it runs")
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{}); reason(err) != lifecycle.ReasonChanged {
		t.Errorf("%v; want reason(err) = lifecycle.ReasonChanged", err)
	}
	// Installing the same again repairs it.
	if rec := r.must(r.install(sample("1.0.0"), lifecycle.Options{})); rec.Step == "nothing to do" {
		t.Errorf(`nothing was mended; got rec.Step = %q; want rec.Step other than "nothing to do"`, rec.Step)
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample", lifecycle.Answer{}); err != nil {
		t.Error(err)
	}
}

func TestTheSandboxMustReachTheTier(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	data := sample("1.0.0").zip(t)
	r.cfg.Fetcher = fetcher{"https://a.test/x.zip": data}
	r.cfg.Tier = func(tier string) error {
		if tier == "T3" {
			return capability.Errorf(capability.CodeUnavailable, "sandbox", "there is no T3 here").With("sandbox_unavailable", "")
		}
		return nil
	}
	r.open()
	r.cfg.Fetcher.(fetcher)["https://a.test/x.zip?signed=by-me"] = data
	r.must(r.Install(t.Context(), admin(), lifecycle.Source{URL: "https://a.test/x.zip?signed=by-me"}, lifecycle.Options{}))
	if at := r.row("tools.sample").SourceURL; at != "https://a.test/x.zip" {
		t.Errorf(`at = %q, want "https://a.test/x.zip"`, at)
	}
	if _, err := r.Enable(t.Context(), admin(), "tools.sample",
		lifecycle.Answer{TreeHash: r.row("tools.sample").TreeHash}); reason(err) != "sandbox_unavailable" {
		t.Errorf(`%v; want reason(err) = "sandbox_unavailable"`, err)
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
		t.Fatal(err)
	}
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.enable("tools.sample")
}

func TestTheDeploymentModeHoldsForSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.state()
	locked := true
	r.cfg.Permit = func(p string) error {
		if locked && p == "exec" {
			return capability.Errorf(capability.CodeDenied, "mode", "%s is not allowed here", p).With("permission_denied", "")
		}
		return nil
	}
	r.open()
	rec, err := r.install(sample("1.0.0"), lifecycle.Options{})
	if reason(err) != "permission_denied" || rec.FailedStep != "one" || cmp.Diff(before, r.state()) != "" {
		t.Errorf("record = %+v, err = %v; want failed step one, permission_denied, and the state as before", rec, err)
	}
	locked = false
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	locked = true
	if rec, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil || rec.FailedStep != "bye" {
		t.Errorf(`r.Uninstall: err = %v, want nil; rec.FailedStep = %q, want "bye"`, err, rec.FailedStep)
	}
}

func TestRemovals(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	failing := sample("1.0.0").with("install/plan.yaml", "remove one", "fail")
	r.must(r.install(failing, lifecycle.Options{}))
	r.enable("tools.sample")
	before := r.state()
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{Strict: true}); reason(err) != "command_failed" {
		t.Errorf(`%v; want reason(err) = "command_failed"`, err)
	}
	if d := cmp.Diff(before, r.state()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	outside := filepath.Join(r.home, "precious")
	if err := errors.Join(os.Mkdir(outside, 0o755), os.WriteFile(filepath.Join(outside, "x"), nil, 0o600),
		os.Symlink(outside, filepath.Join(r.cfg.Dir, "tools.sample", "work", "link"))); err != nil {
		t.Fatal(err)
	}
	rec, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{})
	if err != nil || rec.FailedStep != "bye" || rec.Status != lifecycle.Completed {
		t.Errorf(`err = %v, want nil; rec.FailedStep = %q, want "bye"; rec.Status = %q, want lifecycle.Completed`,
			err, rec.FailedStep, rec.Status)
	}
	if _, err := os.Stat(filepath.Join(outside, "x")); err != nil {
		t.Error("a link was followed")
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	// What is damaged can be removed too.
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	if err := os.RemoveAll(filepath.Join(r.cfg.Dir, "tools.sample")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{KeepWork: true}); err != nil {
		t.Error(err)
	}
}

func TestNothingToAskForRunsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	quiet := sample("1.0.0").with("manifest.json", `["exec"]`, `[]`).with("manifest.json", `{"exec":{"reason":"runs its tool"}}`,
		"{}").with("commands/commands.yaml", "agentVisible: true", "agentVisible: false")
	quiet["install/plan.yaml"] = "steps: []"
	r.must(r.install(quiet, lifecycle.Options{}))
	if !r.row("tools.sample").Enabled {
		t.Error("it asks for nothing and does not run")
	}
}

func TestTwoChangesOfOneExtensionNeverOverlap(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	inside := make(chan struct{})
	leave := make(chan struct{})
	r.cfg = r.cfg.WithFault(func(point string) error {
		if point == "swap begun" {
			close(inside)
			<-leave
		}
		return nil
	})
	r.open()
	done := make(chan error)
	go func() {
		_, err := r.install(sample("2.0.0"), lifecycle.Options{})
		done <- err
	}()
	<-inside
	if !r.Busy("tools.sample") {
		t.Error("not busy")
	}
	for _, err := range []error{
		second(r.install(sample("3.0.0"), lifecycle.Options{})),
		second(r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{})),
		second(r.Enable(t.Context(), admin(), "TOOLS.sample", lifecycle.Answer{})),
		second(r.SetConfig(t.Context(), admin(), "tools.sample", json.RawMessage("{}"))),
	} {
		if reason(err) != lifecycle.ReasonBusy {
			t.Errorf("%v; want reason(err) = lifecycle.ReasonBusy", err)
		}
	}
	close(leave)
	if err := <-done; err != nil || r.row("tools.sample").Version != "2.0.0" {
		t.Errorf(`%v; want no error, r.row("tools.sample").Version = "2.0.0"`, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestDoctorSeesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.twin").with("manifest.json", `"platforms"`,
		`"external_bins":["nothere"],"platforms"`), lifecycle.Options{}))
	r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.gone"), lifecycle.Options{}))
	_ = os.RemoveAll(filepath.Join(r.cfg.Dir, "tools.gone"))
	_ = os.Mkdir(filepath.Join(r.cfg.Dir, "tools.stray"), 0o755)
	r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.kept"), lifecycle.Options{}))
	if _, err := r.Uninstall(t.Context(), admin(), "tools.kept", lifecycle.Removal{KeepWork: true}); err != nil {
		t.Fatal(err)
	}
	r.open()
	found, err := r.Doctor(t.Context(), programs{}.Exists)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, strings.TrimSpace(f.Extension+" "+f.Code))
	}
	want := []string{
		"work_kept", "tools.gone row_without_files", "tools.sample command_conflict", "tools.sample program_missing",
		"tools.stray files_without_row",
		"tools.twin command_conflict", "tools.twin package_warning", "tools.twin program_missing",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	// What cannot be read offers nothing and holds nothing else up.
	if batch, diagnostics := r.View().Batch(); len(batch.Modules) != 2 || len(diagnostics) != 1 {
		t.Errorf("r.View().Batch(): len(batch.Modules) = %v, want 2; len(diagnostics) = %v, want 1; diagnostics = %q",
			len(batch.Modules), len(diagnostics), diagnostics)
	}
}

func TestDoctorLeavesOutWhatIsBeingChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.whole").with("manifest.json", `"platforms"`,
		`"external_bins":["nothere"],"platforms"`), lifecycle.Options{}))
	inside, leave := make(chan struct{}), make(chan struct{})
	r.cfg = r.cfg.WithFault(func(point string) error {
		if point == "files moved" {
			close(inside)
			<-leave
		}
		return nil
	})
	r.open()
	doctor := func() (got []string) {
		found, err := r.Doctor(t.Context(), func(ctx context.Context, extension, program string) (bool, error) {
			if inside != nil { // another process takes the other one away while this one is looked at
				go func() { _, _ = r.Uninstall(context.WithoutCancel(ctx), admin(), "tools.sample", lifecycle.Removal{}) }()
				<-inside
				inside = nil
			}
			return false, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			got = append(got, f.Extension+" "+f.Code)
		}
		return got
	}
	for range 2 { // it goes while it is looked at; then its files are gone and its row is there
		if got := doctor(); slices.Contains(got, "tools.sample row_without_files") || !slices.Contains(got, "tools.whole program_missing") {
			t.Errorf(`doctor() = %q, want it not to contain "tools.sample row_without_files" and it to contain "tools.whole program_missing"`, got)
		}
	}
	close(leave)
}

// TestDoctorBesideChanges: extensions come and go while it looks. It neither is in the way of that nor takes
// a change that is under way for one that is stuck.
func TestDoctorBesideChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		data := sample("1.0.0").zip(t)
		for range 30 {
			_, err := r.Install(t.Context(), admin(), lifecycle.Source{Zip: bytes.NewReader(data), Size: int64(len(data))}, lifecycle.Options{})
			if err != nil {
				t.Errorf("install: got %v, want no error", err)
			}
			if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
				t.Errorf("uninstall: got %v, want no error", err)
			}
		}
	}()
	stuck := func() bool {
		found, err := r.Doctor(t.Context(), programs{}.Exists)
		if err != nil {
			t.Errorf("Doctor: got %v, want no error", err)
		}
		return slices.ContainsFunc(found, func(f lifecycle.Finding) bool { return f.Code == "change_stuck" })
	}
	for under := true; under; {
		if stuck() {
			t.Error("a change that is under way is stuck, want nothing of it")
		}
		select {
		case <-ended:
			under = false
		default:
		}
	}
	rec := lifecycle.Record{ID: "inst_x", Extension: "tools.sample", Operation: "install", Status: lifecycle.Running, Started: r.cfg.Now()}
	if err := r.reg.SaveRecord(t.Context(), rec); err != nil || !stuck() {
		t.Errorf("a change that no one makes: got %v and that it is not stuck, want that it is", err)
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	copied := filepath.Join(r.cfg.Dir, "tools.sample", "work", "config.json")
	if data, err := os.ReadFile(copied); string(data) != `{"mode":"1.0.0"}` {
		t.Errorf("os.ReadFile(copied): string(data) = %q, want \"{\\\"mode\\\":\\\"1.0.0\\\"}\"; err = %v", string(data), err)
	}
	_ = os.Remove(copied)
	_ = os.Symlink(filepath.Join(r.home, "outside"), copied)
	shown, err := r.SetConfig(t.Context(), admin(), "tools.sample", json.RawMessage(`{"token":"t","n":1}`))
	if err != nil || string(shown) != `{"n":1,"token":"***"}` {
		t.Errorf("err = %v, want nil; string(shown) = %q, want \"{\\\"n\\\":1,\\\"token\\\":\\\"***\\\"}\"", err, string(shown))
	}
	if _, err := os.Stat(filepath.Join(r.home, "outside")); err == nil {
		t.Error("a link was followed; want an error")
	}
	if data, err := os.ReadFile(copied); string(data) != `{"n":1}` {
		t.Errorf("os.ReadFile(copied): string(data) = %q, want \"{\\\"n\\\":1}\"; err = %v", string(data), err)
	}
	if _, err := r.SetConfig(t.Context(), admin(), "tools.sample", shown); err != nil {
		t.Error(err)
	}
	if raw, err := r.RawConfig(t.Context(), "tools.sample"); string(raw) != `{"n":1,"token":"t"}` {
		t.Errorf("r.RawConfig(t.Context(), \"tools.sample\"): string(raw) = %q, want \"{\\\"n\\\":1,\\\"token\\\":\\\"t\\\"}\"; err = %v",
			string(raw), err)
	}
	if _, err := r.Config(t.Context(), "tools.none"); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

// TestADatabaseAddressIsASecret holds that the setting of a dsn_ref is nowhere that agents and operators can read it, also
// where an older version has copied it.
func TestADatabaseAddressIsASecret(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	plain := sample("1.0.0")
	f := plain.with("manifest.json", `"permissions_required":["exec"]`, `"permissions_required":["exec","network","db.read"]`).
		with("manifest.json", `"permissions":{`, `"network":{"allow":["db.test:5432"]},"permissions":{"network":{"reason":"r"},`+
			`"db.read":{"reason":"r"},`).
		with("commands/commands.yaml", "]}]", ", {id: rows, runner: db.query, dsn_ref: warehouse, permissions: [db.read, network]}]}]").
		with("manifest.json", "1.0.0", "1.1.0")
	const doc, shown = `{"mode":"a","warehouse":"postgres://app:pw@db.test/x"}`, `{"mode":"a","warehouse":"***"}`
	file := filepath.Join(r.cfg.Dir, "tools.sample", "work", "config.json")
	copied := func(when, want string) {
		t.Helper()
		if got, err := os.ReadFile(file); string(got) != want {
			t.Errorf("config.json %s = %s (%v), want %s", when, got, err, want)
		}
	}
	r.must(r.install(plain, lifecycle.Options{}))
	if _, err := r.SetConfig(t.Context(), admin(), "tools.sample", json.RawMessage(doc)); err != nil {
		t.Fatalf("SetConfig before it is a secret: %v", err)
	}
	f["install/plan.yaml"] = "steps: []\n" // which sets nothing
	r.must(r.install(f, lifecycle.Options{}))
	copied("after an upgrade that makes it a secret", `{"mode":"a"}`)
	if got, err := r.Config(t.Context(), "tools.sample"); string(got) != shown {
		t.Errorf("Config = %s, %v; want %s", got, err, shown)
	}
	operator := capability.Principal{ID: "user:o", Role: capability.RoleOperator}
	if _, err := r.SetConfig(t.Context(), operator, "tools.sample", json.RawMessage(doc)); capability.CodeOf(err) != capability.CodeDenied {
		t.Errorf("SetConfig by an operator = %v, want denied", err)
	}
	if got, err := r.SetConfig(t.Context(), admin(), "tools.sample", json.RawMessage(doc)); string(got) != shown {
		t.Errorf("SetConfig by an administrator = %s, %v; want %s", got, err, shown)
	}
	copied("after it was set", `{"mode":"a"}`)
	if err := os.WriteFile(file, []byte(doc), 0o600); err != nil {
		t.Fatalf("writing the copy as an older version did: %v", err)
	}
	r.open()
	copied("after a start", `{"mode":"a"}`)
	if err := errors.Join(os.WriteFile(file, []byte(doc), 0o600),
		os.WriteFile(filepath.Join(r.cfg.Dir, "tools.sample", "manifest.json"), []byte("{"), 0o644)); err != nil {
		t.Fatalf("breaking the package: %v", err)
	}
	r.open()
	copied("after a start with a package that cannot be read", "")
	if _, err := r.SetConfig(t.Context(), admin(), "tools.sample", json.RawMessage(doc)); err != nil {
		t.Fatalf("SetConfig of a package that cannot be read: %v", err)
	}
	copied("after it was set with a package that cannot be read", "")
}

func TestTheTemplateAndTheExampleInstall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir, err := extension.Scaffold(t.TempDir(), "tools.httpcheck", operator.ReservedCommand)
	if err != nil {
		t.Fatal(err)
	}
	rec := r.must(r.Install(t.Context(), admin(), lifecycle.Source{Dir: dir}, lifecycle.Options{Strict: true}))
	if d := cmp.Diff([]string{"os", "curl"}, rec.Steps); d != "" || r.row("tools.httpcheck").Enabled {
		t.Errorf("diff (-want +got):\n%s; r.row(\"tools.httpcheck\").Enabled = %v, want false", d, r.row("tools.httpcheck").Enabled)
	}
	s, err := r.Screen(t.Context(), "tools.httpcheck", nil)
	if err != nil || len(s.Permissions) != 3 || len(s.Hosts) != 2 {
		t.Errorf("err = %v, want nil; len(s.Permissions) = %v, want 3; len(s.Hosts) = %v, want 2; s = %+v",
			err, len(s.Permissions), len(s.Hosts), s)
	}
	r.enable("tools.httpcheck")
	rows, err := r.List(t.Context(), lifecycle.Filter{EnabledOnly: true, Status: lifecycle.Installed})
	if err != nil || len(rows) != 1 {
		t.Errorf("err = %v, want nil; len(rows) = %v, want 1; rows = %+v", err, len(rows), rows)
	}
	// The example's shell step is not one the fake knows: its install fails whole.
	if _, err := r.Install(t.Context(), admin(), lifecycle.Source{Dir: "../extension/testdata/postman"},
		lifecycle.Options{}); reason(err) != "command_failed" {
		t.Errorf(`%v; want reason(err) = "command_failed"`, err)
	}
}

func TestTheCatalogTakesTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	c := catalogtest.New(t)
	publish := func() (offered []string) {
		batch, _ := r.View().Batch()
		if _, _, err := c.Replace(batch); err != nil {
			t.Fatal(err)
		}
		for e := range c.Snapshot().Entries() {
			if c.Snapshot().Withheld(e) == "" {
				offered = append(offered, string(e.ID)+" "+string(e.Effect))
				if e.ContentHash() != "sha256:"+r.row("tools.sample").TreeHash {
					t.Error(`grants do not die with the tree hash; want e.ContentHash() = "sha256:" + r.row("tools.sample").TreeHash`)
				}
			}
		}
		return offered
	}
	if got := publish(); len(got) != 0 {
		t.Errorf("%v of what is disabled; want len(got) = 0", got)
	}
	r.enable("tools.sample")
	if d := cmp.Diff([]string{"tools.sample/tool.sample.run#ext.tools.sample.tool.sample.run@default external"}, publish()); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
	if _, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{}); err != nil {
		t.Fatal(err)
	}
	publish()
	if n := c.Snapshot().ModuleCount(); n != 0 {
		t.Errorf("%d modules; want n = 0", n)
	}
}

func TestARegistryThatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
	r.enable("tools.sample")
	before := r.state()
	sql := func(q string) {
		t.Helper()
		if _, err := r.db.SQL().ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	sql(`CREATE TRIGGER broken BEFORE UPDATE ON extensions WHEN NEW.version = '2.0.0' BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	sql(`CREATE TRIGGER kept BEFORE DELETE ON extensions BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	rec, err := r.install(sample("2.0.0"), lifecycle.Options{})
	if err == nil || rec.Status != lifecycle.Failed || strings.Contains(err.Error(), "disk is full") {
		t.Errorf(`err = %v, want an error and it not to contain "disk is full"; rec.Status = %q, want lifecycle.Failed`, err, rec.Status)
	}
	if d := cmp.Diff(before, r.state()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if rec, err := r.Uninstall(t.Context(), admin(), "tools.sample", lifecycle.Removal{KeepWork: true}); err == nil ||
		rec.Status != lifecycle.Failed {
		t.Errorf("r.Uninstall: err = %v, want an error; rec.Status = %q, want lifecycle.Failed", err, rec.Status)
	}
	if d := cmp.Diff(without(before), without(r.state())); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var last atomic.Int64
	r.cfg.Changed = func(context.Context) {
		now := r.View().Generation
		if was := last.Swap(now); was > now {
			t.Errorf("generation %d after %d; want was at most %v", now, was, now)
		}
	}
	r.open()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			id := fmt.Sprintf("tools.s%d", i)
			if _, err := r.install(sample("1.0.0").with("manifest.json", "tools.sample", id), lifecycle.Options{}); err != nil {
				t.Error(err)
				return
			}
			x, err := r.reg.Get(t.Context(), id)
			if err == nil {
				_, err = r.Enable(t.Context(), admin(), id, lifecycle.Answer{TreeHash: x.TreeHash})
			}
			if err == nil && i%2 == 0 {
				_, err = r.Uninstall(t.Context(), admin(), id, lifecycle.Removal{})
			}
			if err != nil {
				t.Error(err)
			}
			r.View().Batch()
		})
	}
	wg.Wait()
	if batch, _ := r.View().Batch(); len(batch.Modules) != 4 || last.Load() != r.View().Generation {
		t.Errorf("%d modules, generation %d; want 4, %d", len(batch.Modules), last.Load(), r.View().Generation)
	}
}

func TestACallerThatGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	before := r.state()
	ctx, cancel := context.WithCancel(t.Context())
	r.cfg = r.cfg.WithFault(func(point string) error {
		if point == "step one" {
			cancel()
		}
		return nil
	})
	r.open()
	data := sample("1.0.0").zip(t)
	rec, err := r.Install(ctx, admin(), lifecycle.Source{Zip: bytes.NewReader(data), Size: int64(len(data))}, lifecycle.Options{})
	if err == nil || rec.Status != lifecycle.Failed {
		t.Errorf("err = %v, want an error; rec.Status = %q, want lifecycle.Failed", err, rec.Status)
	}
	if d := cmp.Diff(before, r.state()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}
