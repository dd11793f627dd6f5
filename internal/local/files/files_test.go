//go:build unix

package files

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

type fixture struct {
	t    *testing.T
	base string
	host *host.Host
}

func setup(t *testing.T) *fixture {
	t.Helper()
	base := t.TempDir()
	for name, text := range map[string]string{
		"work/b.txt": "bravo", "work/a.go": "alfa", "work/.hidden": "h", "work/dir/deep.txt": "deep",
		"work/umlaut.txt": "aä€", "work/binary": "a\x00\xff\xfe", "outside/secret.txt": "secret", "fixed/x.txt": "x",
	} {
		path := filepath.Join(base, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"work/out": "../outside", "work/secret": "../outside/secret.txt", "work/inner": "b.txt",
		"work/innerdir": "dir", "work/absolute": filepath.Join(base, "outside/secret.txt"),
	} {
		if err := os.Symlink(to, filepath.Join(base, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(base, "work/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := roots.Open([]roots.Root{
		{ID: "work", Path: filepath.Join(base, "work")},
		{ID: "fixed", Path: filepath.Join(base, "fixed"), ReadOnly: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = set.Close() })
	h := host.New(host.Config{})
	if err := h.Register(Functions(Config{Roots: set})...); err != nil {
		t.Fatal(err)
	}
	return &fixture{t, base, h}
}

func (f *fixture) call(action, input string) (map[string]any, *capability.Error) {
	f.t.Helper()
	r, err := f.host.Invoke(f.t.Context(), capability.Call{Action: capability.Action(action), Input: json.RawMessage(input)})
	if err != nil {
		e := capability.AsError(err)
		if strings.Contains(e.Message+e.Hint, f.base) {
			f.t.Errorf("%s %s: the error names a host path: %v; want e.Message + e.Hint without %v", action, input, e, f.base)
		}
		return nil, e
	}
	var out map[string]any
	if err := json.Unmarshal(r.Value, &out); err != nil {
		f.t.Fatal(err)
	}
	return out, nil
}

func names(out map[string]any) string {
	var all []string
	entries, _ := out["entries"].([]any)
	for _, e := range entries {
		all = append(all, e.(map[string]any)["name"].(string))
	}
	return strings.Join(all, " ")
}

func TestList(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const visible = "a.go absolute b.txt binary dir inner innerdir out pipe secret umlaut.txt"
	tests := []struct {
		name, input, want string
		total             float64
		truncated         bool
	}{
		{"the root, sorted, without hidden names", `{}`, visible, 11, false},
		{"blank path", `{"path":" "}`, visible, 11, false},
		{"hidden names", `{"includeHidden":true,"limit":1}`, ".hidden", 12, true},
		{"limit", `{"limit":2}`, "a.go absolute", 11, true},
		{"limit below the range", `{"limit":-5}`, "a.go", 11, true},
		{"limit above the range", `{"limit":1e9}`, visible, 11, false},
		{"star does not cross a slash", `{"path":"dir","ignore":["*.txt"]}`, "", 0, false},
		{"pattern over the path", `{"path":"dir","ignore":["dir/*"]}`, "", 0, false},
		{"pattern must match fully", `{"path":"dir","ignore":["deep","eep.txt"]}`, "deep.txt", 1, false},
		{"double star", `{"path":"dir","ignore":["**.txt"]}`, "", 0, false},
		{"link inside the root", `{"path":"innerdir"}`, "deep.txt", 1, false},
		{"another root", `{"rootId":"fixed"}`, "x.txt", 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := f.call("fs.list", tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if names(out) != tt.want || out["totalAfterIgnore"] != tt.total || out["truncated"] != tt.truncated {
				t.Errorf(`got %q, %v, %v; want names(out) = %v, out["totalAfterIgnore"] = %v, out["truncated"] = %v`,
					names(out), out["totalAfterIgnore"], out["truncated"], tt.want, tt.total, tt.truncated)
			}
		})
	}
}

func TestListDescribesEntries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	out, err := f.call("fs.list", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[string]any)
	for _, e := range out["entries"].([]any) {
		m := e.(map[string]any)
		kinds[m["path"].(string)] = m["kind"]
		if m["name"] == "b.txt" && (m["size"] != 5.0 || m["modifiedAt"] == nil) {
			t.Errorf(`got %v; want not (m["name"] == "b.txt" && (m["size"] != 5.0 || m["modifiedAt"] == nil))`, m)
		}
	}
	want := map[string]any{
		"a.go": "file", "absolute": "symlink", "b.txt": "file", "binary": "file", "dir": "directory", "inner": "symlink",
		"innerdir": "symlink", "out": "symlink", "pipe": "other", "secret": "symlink", "umlaut.txt": "file",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestReadText(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tests := []struct {
		name, input, text string
		size              float64
		truncated         bool
	}{
		{"whole file", `{"path":"b.txt"}`, "bravo", 5, false},
		{"absolute path inside a root", fmt.Sprintf(`{"path":%q}`, f.base+"/fixed/x.txt"), "x", 1, false},
		{"link inside the root", `{"path":"inner"}`, "bravo", 5, false},
		{"cut", `{"path":"b.txt","maxBytes":2}`, "br", 5, true},
		{"cut inside a character", `{"path":"umlaut.txt","maxBytes":2}`, "a", 6, true},
		{"cut after a character", `{"path":"umlaut.txt","maxBytes":3}`, "aä", 6, true},
		{"cut inside a longer character", `{"path":"umlaut.txt","maxBytes":5}`, "aä", 6, true},
		{"exactly the size", `{"path":"umlaut.txt","maxBytes":6}`, "aä€", 6, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, err := f.call("fs.readText", tt.input)
			if err != nil {
				t.Fatal(err)
			}
			if out["text"] != tt.text || out["size"] != tt.size || out["truncated"] != tt.truncated {
				t.Errorf(`got %v; want out["text"] = %v, out["size"] = %v, out["truncated"] = %v`, out, tt.text, tt.size, tt.truncated)
			}
		})
	}
}

func TestReadTextAboveTheCap(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if err := os.WriteFile(filepath.Join(f.base, "work/big"), make([]byte, maxText+1), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := f.call("fs.readText", `{"path":"big"}`)
	if err == nil || err.Code != capability.CodeTooLarge || !strings.Contains(err.Message, "5242880") {
		t.Errorf(`got %v; want an error, err.Code = capability.CodeTooLarge, err.Message with "5242880"`, err)
	}
	out, err := f.call("fs.readText", `{"path":"big","maxBytes":10}`)
	if err != nil || out["truncated"] != true || out["size"] != float64(maxText+1) {
		t.Errorf(`got %v, %v; want no error, out["truncated"] = true, out["size"] = float64(maxText + 1)`, out, err)
	}
}

func TestWriteText(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, input, path, text string }{
		{"new file", `{"path":"new.txt","text":"n"}`, "new.txt", "n"},
		{"replaces", `{"path":"b.txt","text":"B"}`, "b.txt", "B"},
		{"empty text", `{"path":"b.txt","text":""}`, "b.txt", ""},
		{"new file without overwriting", `{"path":"new.txt","text":"n","overwrite":false}`, "new.txt", "n"},
		{"creates directories", `{"path":"x/y/z.txt","text":"z","createDirectories":true}`, "x/y/z.txt", "z"},
		{"unused createDirectories", `{"path":"dir/z.txt","text":"z","createDirectories":true}`, "dir/z.txt", "z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			out, cerr := f.call("fs.writeText", tt.input)
			if cerr != nil {
				t.Fatalf("cerr = %v, want nil", cerr)
			}
			if out["path"] != tt.path || out["bytesWritten"] != float64(len(tt.text)) {
				t.Errorf(`got %v; want out["path"] = %v, out["bytesWritten"] = float64(len(tt.text))`, out, tt.path)
			}
			path := filepath.Join(f.base, "work", tt.path)
			data, err := os.ReadFile(path)
			if err != nil || string(data) != tt.text {
				t.Errorf("file holds %q, %v; want no error, string(data) = %v", data, err, tt.text)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v, %v; want no error, info.Mode().Perm() = 0o600", info.Mode(), err)
			}
			f.noTemporaryFiles()
		})
	}
}

func (f *fixture) noTemporaryFiles() {
	f.t.Helper()
	_ = filepath.WalkDir(f.base, func(path string, _ os.DirEntry, _ error) error {
		if strings.HasSuffix(path, ".tmp") {
			f.t.Errorf(`left behind: %s; want path not ending with ".tmp"`, filepath.Base(path))
		}
		return nil
	})
}

func TestWriteKeepsTheModeOfAFile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	path := filepath.Join(f.base, "work/b.txt")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.call("fs.writeText", `{"path":"b.txt","text":"B"}`); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v; want no error, info.Mode().Perm() = 0o755", info.Mode(), err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f := setup(t)
	if err := os.Chmod(filepath.Join(f.base, "work/a.go"), 0o400); err != nil {
		t.Fatal(err)
	}
	violation := "security_violation"
	tests := []struct {
		name, action, input string
		code                capability.Code
		reason              string
	}{
		{"read by traversal", "fs.readText", `{"path":"../outside/secret.txt"}`, capability.CodeDenied, violation},
		{"read by absolute path", "fs.readText", `{"path":"/etc/passwd"}`, capability.CodeDenied, violation},
		{"read through a link", "fs.readText", `{"path":"secret"}`, capability.CodeDenied, violation},
		{"read through an absolute link", "fs.readText", `{"path":"absolute"}`, capability.CodeDenied, violation},
		{"read below a linked directory", "fs.readText", `{"path":"out/secret.txt"}`, capability.CodeDenied, violation},
		{"read a directory", "fs.readText", `{"path":"dir"}`, capability.CodeInvalidInput, "is_a_directory"},
		{"read a pipe", "fs.readText", `{"path":"pipe"}`, capability.CodeInvalidInput, "not_a_file"},
		{"read what is not text", "fs.readText", `{"path":"binary"}`, capability.CodeInvalidInput, "not_text"},
		{"read nothing", "fs.readText", `{"path":"gone"}`, capability.CodeNotFound, "not_found"},
		{"read a blank path", "fs.readText", `{"path":" "}`, capability.CodeInvalidInput, ""},
		{"read with NUL", "fs.readText", `{"path":"b.txt\u0000"}`, capability.CodeInvalidInput, "invalid_path"},
		{"read with a zero cap", "fs.readText", `{"path":"b.txt","maxBytes":0}`, capability.CodeInvalidInput, ""},
		{"read with a wrong type", "fs.readText", `{"path":5}`, capability.CodeInvalidInput, ""},
		{"read below a file", "fs.readText", `{"path":"b.txt/x"}`, capability.CodeInvalidInput, "not_a_directory"},
		{"list by traversal", "fs.list", `{"path":".."}`, capability.CodeDenied, violation},
		{"list through a link", "fs.list", `{"path":"out"}`, capability.CodeDenied, violation},
		{"list a file", "fs.list", `{"path":"b.txt"}`, capability.CodeInvalidInput, "not_a_directory"},
		{"list an unknown root", "fs.list", `{"rootId":"nope"}`, capability.CodeNotFound, "unknown_root"},
		{
			"list with too many patterns", "fs.list", `{"ignore":[` + strings.Repeat(`"x",`, maxPatterns) + `"x"]}`, capability.CodeInvalidInput,
			"",
		},
		{"write by traversal", "fs.writeText", `{"path":"../x","text":"","createDirectories":true}`, capability.CodeDenied, violation},
		{"write through a link", "fs.writeText", `{"path":"secret","text":""}`, capability.CodeDenied, violation},
		{"write through a link inside", "fs.writeText", `{"path":"inner","text":""}`, capability.CodeDenied, violation},
		{
			"write below a linked directory", "fs.writeText", `{"path":"out/new/x","text":"","createDirectories":true}`, capability.CodeDenied,
			violation,
		},
		{
			"write into a git directory", "fs.writeText", `{"path":"dir/.GIT/config","text":"","createDirectories":true}`, capability.CodeDenied,
			violation,
		},
		{"write without the directory", "fs.writeText", `{"path":"no/x","text":""}`, capability.CodeNotFound, "not_found"},
		{"write over an existing file", "fs.writeText", `{"path":"b.txt","text":"","overwrite":false}`, capability.CodeConflict, "exists"},
		{"write over a directory", "fs.writeText", `{"path":"dir","text":""}`, capability.CodeInvalidInput, "is_a_directory"},
		{"write over the root", "fs.writeText", `{"path":".","text":""}`, capability.CodeInvalidInput, "is_a_directory"},
		{"write over a pipe", "fs.writeText", `{"path":"pipe","text":""}`, capability.CodeInvalidInput, "not_a_file"},
		{"write over a protected file", "fs.writeText", `{"path":"a.go","text":""}`, capability.CodeFailed, "permission_denied"},
		{"write into a read-only root", "fs.writeText", `{"rootId":"fixed","path":"x","text":""}`, capability.CodeDenied, "read_only"},
		{"write what is not UTF-8", "fs.writeText", "{\"path\":\"x\",\"text\":\"\xff\"}", capability.CodeInvalidInput, ""},
		{
			"write too much", "fs.writeText", `{"path":"x","text":"` + strings.Repeat("x", maxText+1) + `"}`, capability.CodeTooLarge,
			"text_too_large",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := f.call(tt.action, tt.input)
			if err == nil || err.Code != tt.code || err.Reason != tt.reason {
				t.Errorf("got %+v, want %q %q", err, tt.code, tt.reason)
			}
		})
	}
	if data, _ := os.ReadFile(filepath.Join(f.base, "outside/secret.txt")); string(data) != "secret" {
		t.Errorf(`a file outside was changed to %q; want string(data) = "secret"`, data)
	}
	if entries, _ := os.ReadDir(filepath.Join(f.base, "outside")); len(entries) != 1 {
		t.Errorf("something was created outside; got len(entries) = %v; want len(entries) = 1", len(entries))
	}
	f.noTemporaryFiles()
}

func TestOnlyOneOfManyCreatesAFile(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			_, err := f.host.Invoke(t.Context(), capability.Call{
				Action: "fs.writeText", Input: fmt.Appendf(nil, `{"path":"race","text":"%d","overwrite":false}`, i),
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if capability.CodeOf(err) != capability.CodeConflict {
				t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d writers created the file; want won = 1", won)
	}
}

func TestWithoutRootsTheFunctionsSayWhy(t *testing.T) {
	t.Parallel()
	for _, f := range Functions(Config{}) {
		if f.Unavailable != roots.NoneReason {
			t.Errorf("%s: %q; want f.Unavailable = roots.NoneReason", f.ID, f.Unavailable)
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*", "**", "?", "a*b", "[", "\\", "**/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, glob string) {
		if len(glob) > maxPattern || !json.Valid([]byte(`"`+strings.ToValidUTF8(glob, "")+`"`)) {
			t.Skip()
		}
		match, err := compileGlobs([]string{strings.ToValidUTF8(glob, "")})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsAny(glob, "*?") && strings.ToValidUTF8(glob, "") == glob && !match(glob) {
			t.Errorf(`%q does not match itself; want not (!strings.ContainsAny(glob, "*?") && strings.ToValidUTF8(glob, "") == `+
				"glob && !match(glob))", glob)
		}
	})
}
