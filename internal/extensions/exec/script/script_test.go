package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/platform/worker"
)

// fake is a worker that asks the host and answers what it is told to.
type fake struct {
	job   worker.Job
	calls [][2]string // method, parameters
	said  []string    // what came of them
	value string
}

func (f *fake) Run(ctx context.Context, job worker.Job) (worker.Result, error) {
	f.job = job
	for _, c := range f.calls {
		call, ok := job.Calls[c[0]]
		if !ok {
			f.said = append(f.said, "refused")
			continue
		}
		got, err := call(ctx, json.RawMessage(c[1]))
		text, _ := json.Marshal(got)
		if err != nil {
			text = []byte("error: " + err.Error())
		}
		f.said = append(f.said, string(text))
	}
	return worker.Result{Value: json.RawMessage(f.value)}, nil
}

// request is a run of a script that is there.
func request(t *testing.T, name string, permissions ...string) Request {
	t.Helper()
	dir := t.TempDir()
	code := []byte("code")
	for _, sub := range []string{"scripts", "work"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "scripts", name), code, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(code)
	return Request{
		Route: &command.Route{
			Command: &command.Command{Declared: "x"}, Action: &command.Action{
				ID: "do-it", Runner: "script.js", Script: "scripts/" + name,
				SHA256: hex.EncodeToString(sum[:]),
			},
			Positional: []string{"a"}, Raw: "a",
		},
		Extension: "tools.x", Dir: dir, Permissions: permissions, Usage: strings.Repeat("é", 20_000),
		Fetch: func(_ context.Context, f Fetch) (Fetched, error) {
			return Fetched{Status: 200, Body: f.Method + f.URL}, nil
		},
		Complete: func(_ context.Context, prompt string) (string, error) { return "model: " + prompt, nil },
	}
}

func TestHostCallsNeedTheirPermissions(t *testing.T) {
	t.Parallel()
	calls := [][2]string{
		{"fetch", `["http://a.test"]`},
		{"read", `["x"]`},
		{"write", `["x","y"]`},
		{"llm", `["hello"]`},
		{"log", `["line"]`},
		{"exec", `[]`},
	}
	for _, tt := range []struct {
		permissions string
		want        []string
	}{
		{"exec", []string{"refused", "refused", "refused", "refused", "true", "refused"}},
		{"network", []string{`{"status":200,"type":"","body":"http://a.test"}`, "refused", "refused", "refused", "true", "refused"}},
		{"filesystem.read", []string{"refused", "error: " + errNoFile.Error(), "refused", "refused", "true", "refused"}},
		{"filesystem.write", []string{"refused", "error: " + errNoFile.Error(), "true", "refused", "true", "refused"}},
		{"llm", []string{"refused", "refused", "refused", `"model: hello"`, "true", "refused"}},
	} {
		t.Run(tt.permissions, func(t *testing.T) {
			t.Parallel()
			f := &fake{calls: calls, value: `"done"`}
			got, err := New(f).Run(t.Context(), request(t, "x.js", tt.permissions))
			if err != nil || got.Output != "done" || got.Log != "line\n" || strings.Join(f.said, "|") != strings.Join(tt.want, "|") {
				t.Errorf(`%v, %q, log %q, calls %q; want no error, got.Output = "done", got.Log = "line\n", `+
					`strings.Join(f.said, "|") = strings.Join(tt.want, "|")`, err, got.Output, got.Log, f.said)
			}
		})
	}
}

func TestWhatAScriptIsGiven(t *testing.T) {
	t.Parallel()
	f := &fake{value: "null"}
	last := "before"
	req := request(t, "x.wasm")
	req.Last = &last
	if _, err := New(f).Run(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Args                  []string
		Kwargs, Flags, Config map[string]any
		Context               map[string]string
	}
	if err := json.Unmarshal(f.job.Input, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Args) != 1 || doc.Kwargs == nil || doc.Flags == nil || doc.Config == nil || doc.Context["last_response"] != last ||
		doc.Context["action_id"] != "do-it" {
		t.Errorf("the document is %+v; want len(doc.Args) = 1, doc.Kwargs not nil, doc.Flags not nil, doc.Config not nil, "+
			`doc.Context["last_response"] = %v, doc.Context["action_id"] = "do-it"`, doc, last)
	}
	if usage := doc.Context["usage_doc"]; len(usage) > maxUsage || !strings.HasSuffix(usage, "é") {
		t.Errorf(`the guide has %d bytes; want len(usage) at most %v, usage ending with "é"`, len(usage), maxUsage)
	}
	if f.job.Language != worker.WASM || f.job.Entry != "do_it" || f.job.Handler != "do-it" || f.job.Timeout != DefaultTimeout ||
		string(f.job.Code) != "code" {
		t.Errorf(`the job is %+v; want f.job.Language = worker.WASM, f.job.Entry = "do_it", f.job.Handler = "do-it", `+
			`f.job.Timeout = %v, string(f.job.Code) = "code"`, f.job, DefaultTimeout)
	}
}

func TestWhatIsNoScriptIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Request)
		reason string
	}{
		"another file":  {func(r *Request) { r.Route.Action.SHA256 = strings.Repeat("0", 64) }, "security_violation"},
		"no file":       {func(r *Request) { r.Route.Action.Script = "scripts/none.js" }, "security_violation"},
		"outside":       {func(r *Request) { r.Route.Action.Script = "../x.js" }, "security_violation"},
		"no language":   {func(r *Request) { r.Route.Action.Script = "scripts/x.rb" }, "unsupported_runner"},
		"no script":     {func(r *Request) { r.Route.Action.Script = "" }, "unsupported_runner"},
		"a large value": {func(r *Request) { r.Route.Action.Output.MaxBytes = 3 }, "output_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request(t, "x.js")
			tt.change(&req)
			_, err := New(&fake{value: `"long"`}).Run(t.Context(), req)
			if e, ok := errors.AsType[*capability.Error](err); !ok || e.Reason != tt.reason {
				t.Errorf("got %v; want ok = true, e.Reason = %v", err, tt.reason)
			}
		})
	}
}

func TestTheLogIsBounded(t *testing.T) {
	t.Parallel()
	line := `["` + strings.Repeat("x", MaxLog/2) + `"]`
	f := &fake{calls: [][2]string{{"log", line}, {"log", line}, {"log", `[1]`}, {"log", `1`}}, value: `{"a":1}`}
	got, err := New(f).Run(t.Context(), request(t, "x.js"))
	if err != nil || len(got.Log) > MaxLog || !got.JSON || !strings.HasPrefix(f.said[1], "error: the log") || f.said[2] != "true" ||
		!strings.HasPrefix(f.said[3], "error") {
		t.Errorf("%v, %d bytes, %.60q; want no error, len(got.Log) at most %v, got.JSON = true, f.said[1] beginning with "+
			`"error: the log", f.said[2] = "true", f.said[3] beginning with "error"`, err, len(got.Log), f.said, MaxLog)
	}
}
