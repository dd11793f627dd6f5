package workspace

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
)

func TestCredentialsStayOutOfTheHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	token := "gh" + "p_" + strings.Repeat("aB3", 12)
	w := s.provision(Request{})
	s.write(w.Path+"/src/é \"q\".go", "one\ntwo\nkey := \""+token+"\"\n")
	check := func(what string, err error, file string, line int) {
		t.Helper()
		wantReason(t, err, "secret_found")
		e := capability.AsError(err)
		doc, _ := e.MarshalJSON()
		if strings.Contains(string(doc), token) || strings.Contains(errString(err), token) {
			t.Errorf("%s: the error holds the credential; want string(doc) without %v, errString(err) without %v", what, token, token)
		}
		found, _ := e.Details["findings"].([]map[string]any)
		if len(found) != 1 || found[0]["file"] != file || found[0]["line"] != line || found[0]["kind"] != "github_token" {
			t.Errorf(`%s: %v; want len(found) = 1, found[0]["file"] = %v, found[0]["line"] = %v, found[0]["kind"] = "github_token"`,
				what, e.Details, file, line)
		}
	}
	_, err := s.m.Commit(ctx, w.ID, "work")
	check("staged", err, "src/é \"q\".go", 3)
	if got := s.plain(w.Path, "diff", "--cached", "--name-only"); got != "" {
		t.Errorf(`still staged: %s; want got = ""`, got)
	}
	f, err := s.m.Finalize(ctx, w.ID, FinalizeRequest{})
	if err == nil || f.Steps[0].Outcome != "failed" || strings.Contains(f.Text+f.Steps[0].Detail, token) {
		t.Errorf(`%+v, %v; want an error, f.Steps[0].Outcome = "failed", f.Text + f.Steps[0].Detail without %v`, f, err, token)
	}

	// In a file that passes for binary, and in one that git is told not to diff.
	s.write(w.Path+"/src/é \"q\".go", "one\n")
	s.write(w.Path+"/data.bin", "\x00\x01\n"+token+"\n\x00")
	_, err = s.m.Commit(ctx, w.ID, "work")
	check("binary", err, "data.bin", 2)
	s.write(w.Path+"/.gitattributes", "*.bin -diff\n")
	_, err = s.m.Commit(ctx, w.ID, "work")
	check("without diff", err, "data.bin", 2)

	// A line that was there before is not a fault of the session; a line that looks like a head is a line.
	s.write(w.Path+"/data.bin", "+++ b/other\n@@ -1 +9 @@\n"+token+"\n")
	_, err = s.m.Commit(ctx, w.ID, "work")
	check("misleading", err, "data.bin", 3)
	_ = os.Remove(w.Path + "/data.bin")
	if c, err := s.m.Commit(ctx, w.ID, "work"); err != nil || c.Hash == "" || c.Stat.Files != 2 {
		t.Fatalf(`%+v, %v; want no error, c.Hash other than "", c.Stat.Files = 2`, c, err)
	}

	// The agent commits it by itself and takes it back: the history has it.
	s.write(w.Path+"/leak.txt", token+"\n")
	s.plain(w.Path, "add", ".")
	s.plain(w.Path, "commit", "-qm", "oops")
	s.plain(w.Path, "rm", "-q", "leak.txt")
	s.plain(w.Path, "commit", "-qm", "taken back")
	check("history", s.m.Push(ctx, w.ID, false), "leak.txt", 1)
	if got := s.plain(s.remote, "for-each-ref", "refs/heads/"+w.Branch); got != "" {
		t.Errorf(`it was pushed; got got = %q; want got = ""`, got)
	}
	s.plain(w.Path, "reset", "-q", "--soft", "HEAD~2")
	if err := s.m.Push(ctx, w.ID, false); err != nil {
		t.Error(err)
	}
	s.write(w.Path+"/README.md", token+"\n")
	if d, err := s.m.Diff(ctx, w.ID, ""); err != nil || strings.Contains(d.Text, token) || !strings.Contains(d.Text, "•••") {
		t.Errorf(`a diff shows it: %v; want no error, d.Text without %v, d.Text with "•••"`, err, token)
	}
}

func errString(err error) string {
	text := ""
	for ; err != nil; err = errors.Unwrap(err) {
		text += err.Error()
	}
	return text
}

func TestTheBranchOfAWorkspaceIsTheOneThatIsPushed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ctx := t.Context()
	w := s.provision(Request{})
	s.write(w.Path+"/a", "a\n")
	_, err := s.m.Commit(ctx, w.ID, " ")
	wantReason(t, err, "missing_message")
	s.plain(w.Path, "checkout", "-q", "trunk")
	_, err = s.m.Commit(ctx, w.ID, "x")
	wantReason(t, err, "wrong_branch")
	s.plain(w.Path, "checkout", "-q", "--detach")
	_, err = s.m.Commit(ctx, w.ID, "x")
	wantReason(t, err, "wrong_branch")
	s.plain(w.Path, "checkout", "-q", w.Branch)
	if c, err := s.m.Commit(ctx, w.ID, "--amend"); err != nil || c.Hash == "" {
		t.Fatalf(`%v; want no error, c.Hash other than ""`, err)
	}
	if got := s.plain(w.Path, "log", "-1", "--format=%s"); got != "--amend" {
		t.Errorf(`message %q; want got = "--amend"`, got)
	}
	if err := s.m.Push(ctx, w.ID, false); err != nil {
		t.Fatal(err)
	}
	// Another user pushes to the branch: no force of ours overwrites what we have not seen.
	s.plain(s.dir+"/author", "commit", "-q", "--allow-empty", "-m", "theirs")
	s.plain(s.dir+"/author", "push", "-q", "-f", "origin", "HEAD:refs/heads/"+w.Branch)
	theirs := s.plain(s.remote, "rev-parse", "refs/heads/"+w.Branch)
	s.write(w.Path+"/b", "b\n")
	if _, err := s.m.Commit(ctx, w.ID, "b"); err != nil {
		t.Fatal(err)
	}
	wantReason(t, s.m.Push(ctx, w.ID, false), "push_rejected")
	wantReason(t, s.m.Push(ctx, w.ID, true), "push_rejected")
	if got := s.plain(s.remote, "rev-parse", "refs/heads/"+w.Branch); got != theirs {
		t.Errorf("it was overwritten; got got = %v; want got = %v", got, theirs)
	}
	s.plain(w.Path, "fetch", "-q")
	if err := s.m.Push(ctx, w.ID, true); err != nil {
		t.Errorf("what we have seen: %v", err)
	}
	// An unresolved conflict is not committed with its markers.
	s.plain(w.Path, "checkout", "-q", "-b", "side", "HEAD~1")
	s.write(w.Path+"/b", "side\n")
	s.plain(w.Path, "add", ".")
	s.plain(w.Path, "commit", "-qm", "side")
	s.plain(w.Path, "checkout", "-q", w.Branch)
	s.conflict(w.Path, "side")
	_, err = s.m.Commit(ctx, w.ID, "x")
	wantReason(t, err, "unmerged")
}

func TestLargeChangesAreScannedInPartsOrRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	w := s.provision(Request{})
	small, err := gitcmd.New(gitcmd.Config{StdoutLimit: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	s.m.git = small
	half := strings.Repeat("0123456789abcdef\n", 40<<10/17)
	s.write(w.Path+"/one.txt", half)
	s.write(w.Path+"/two.txt", half)
	if _, err := s.m.Commit(t.Context(), w.ID, "two that are too much together"); err != nil {
		t.Error(err)
	}
	s.write(w.Path+"/three.txt", half+half)
	_, err = s.m.Commit(t.Context(), w.ID, "one that is too much alone")
	wantReason(t, err, "change_too_large")
}

func FuzzScanDiff(f *testing.F) {
	f.Add("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n")
	f.Add("+++ \"b/\\303\\251\"\n@@ -1,0 +5 @@\n+gh" + "p_" + strings.Repeat("a", 36) + "\n")
	f.Add("@@ -1 +99999999999999999999,-5 @@\n+x\n-")
	f.Fuzz(func(t *testing.T, diff string) {
		for _, found := range scanDiff(diff, maxFindings) {
			if found.kind == "" || strings.ContainsRune(found.file, '\n') && !strings.Contains(diff, `\n`) {
				t.Errorf(`%+v; want found.kind other than "", not (strings.ContainsRune(found.file, '\n') && `+
					"!strings.Contains(diff, `\\n`))", found)
			}
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add("# branch.head main\x001 .M N... 100644 100644 100644 a b path with blank\x00? new\x00u UU N... 1 2 3 4 a b c conflicted\x00")
	f.Add("1 \x00? \x00u\x00#")
	f.Fuzz(func(t *testing.T, out string) {
		s := parseStatus(out)
		n := len(s.Modified) + len(s.Staged) + len(s.Untracked) + len(s.Unmerged)
		if s.Clean != (n == 0) {
			t.Errorf("clean %v with %d paths; want s.Clean = (n == 0)", s.Clean, n)
		}
	})
}
