package sandbox

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// testUID is a user without rights, other than that of confined programs.
const testUID = 63121

// TestAllOfItAsAnUnprivilegedServer runs the tests again as another user, because a
// server without rights must confine as well.
func TestAllOfItAsAnUnprivilegedServer(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: this is the unprivileged run")
	}
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	temp := workDir(t)
	if err := os.Chown(temp, testUID, testUID); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), reachable(t), "-test.v", "-test.run",
		"TestNothingBreaksOut|TestForkBomb|TestTwoSandboxes|TestMemory|TestCPU|TestEndless|TestDisk|TestATimeout|TestNoDaemon|TestOnlyTheDeclared|TestAnUnfiltered|TestWork|TestSetup|TestTheProgram|TestRunsAtOnce|TestSpare|TestNothingOutlives|TestForkStorms|TestLimitsAreFinal|TestSwapped")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + temp, "TMPDIR=" + temp, "LANG=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: testUID, Gid: testUID}}
	out, err := cmd.CombinedOutput()
	for line := range bytes.Lines(out) {
		if text := strings.TrimSpace(string(line)); strings.Contains(text, "SKIPPED") || strings.Contains(text, "RESIDUAL") ||
			strings.Contains(text, "acts held") {
			t.Log("unprivileged: " + text)
		}
	}
	if err != nil {
		for line := range bytes.Lines(out) {
			if bytes.Contains(line, []byte("FAIL")) || bytes.Contains(line, []byte("_test.go:")) || bytes.Contains(line, []byte("panic")) {
				t.Errorf(`unprivileged: %s; want line without []byte("FAIL"), line without []byte("_test.go:"), line without `+
					`[]byte("panic")`, bytes.TrimSpace(line))
			}
		}
		t.Errorf("as an unprivileged server: %v", err)
	}
	if f := New(Config{}).Facts(); f.NoT2 == "" && bytes.Count(out, []byte("acts held")) == 0 {
		t.Errorf("nothing was tried:\n%s\nwant not (f.NoT2 == \"\" && bytes.Count(out, []byte(\"acts held\")) == 0)", out)
	}
	New(Config{Scratch: temp}).Facts() // takes away what the killed servers among the tests left
	if left, _ := filepath.Glob(temp + "/junctor-*"); len(left) > 0 {
		t.Errorf("left behind: %v; want len(left) at most 0", left)
	}
}
