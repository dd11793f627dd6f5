package elizafile_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/config/elizafile"
	"github.com/junctor-run/junctor/secret"
)

var update = flag.Bool("update", false, "write the golden files anew")

const pemKey = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"

// policyWithKey holds what the original's own reader breaks: a line end that is
// escaped in JSON, and so a backslash before an n in the file.
const policyWithKey = `{"requireSignedProvenance":true,"trustedProvenancePublicKeys":{"acme":"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"}}`

func example() ([]elizafile.Endpoint, []elizafile.Record) {
	list := []elizafile.Endpoint{
		{
			ID: "home", BaseURL: "https://home.example.org/tenant/7", Token: secret.New(`t0ken 'n' "with" #\n`),
			AllowedModules: []string{"notes", "lamp"}, TrustPolicy: []byte(policyWithKey),
		},
		{ID: "open", BaseURL: "http://127.0.0.1:8080"},
	}
	return list, []elizafile.Record{{
		RecordedAt: elizafile.Stamp(time.Date(2026, 7, 1, 12, 0, 0, 5e6, time.UTC)), Mode: "endpoint",
		Endpoint:   elizafile.RecordEndpoint{ID: "home", BaseURL: "https://home.example.org/tenant/7", HasToken: true},
		Registered: []string{"@acme/notes"}, Skipped: []string{}, Unloaded: []string{},
		TrustDecisions: []elizafile.Decision{{
			ModuleID: "notes", PluginName: "@acme/notes", EndpointID: "home", Trusted: true,
			Reason: "allowed",
		}},
	}}
}

// TestGoldenFiles: into files of an agent that hold much else, and from none.
func TestGoldenFiles(t *testing.T) {
	t.Parallel()
	endpoints, records := example()
	for _, name := range []string{"used", "fresh"} {
		dir := t.TempDir()
		for _, file := range []string{"config.env", "eliza.json"} {
			if data, err := os.ReadFile(filepath.Join("testdata", name+".before", file)); err == nil {
				ok(t, os.WriteFile(filepath.Join(dir, file), data, 0o644))
			}
		}
		files := read(t, dir)
		if files.Absent() != (name == "fresh") {
			t.Errorf(`%s: absent is %t; want files.Absent() = (name == "fresh")`, name, files.Absent())
		}
		ok(t, files.Put(endpoints, records))
		ok(t, files.Write())
		for _, file := range []string{"config.env", "eliza.json"} {
			got, err := os.ReadFile(filepath.Join(dir, file))
			ok(t, err)
			golden := filepath.Join("testdata", name+".after", file)
			if *update {
				ok(t, os.MkdirAll(filepath.Dir(golden), 0o755))
				ok(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			ok(t, err)
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf(`%s of %s: %s; want d = ""`, file, name, d)
			}
			if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s of %s: %v %v; want no error, info.Mode().Perm() = 0o600", file, name, info.Mode(), err)
			}
		}
		if doc, _ := os.ReadFile(filepath.Join(dir, "eliza.json")); strings.Contains(string(doc), "t0ken") {
			t.Errorf(`%s: the token is in eliza.json; want string(doc) without "t0ken"`, name)
		}
		left, err := os.ReadDir(dir)
		ok(t, err)
		if want := map[string]int{"used": 3, "fresh": 2}[name]; len(left) != want {
			t.Errorf("%s: %d files are left: %v; want len(left) = %v", name, len(left), left, want)
		}
	}
}

// TestRoundTrip: what was put is what the variables say, keys of PEM form
// included; a second time changes nothing.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	endpoints, records := example()
	for range 2 {
		files := read(t, dir)
		ok(t, files.Put(endpoints, records))
		ok(t, files.Write())
	}
	vars, err := read(t, dir).Vars()
	ok(t, err)
	got, err := config.ElizaVars(vars)
	ok(t, err)
	if len(got.Endpoints) != 2 || strings.Count(string(got.TrustAudit), "recordedAt") != 1 {
		t.Fatalf(`%+v; want len(got.Endpoints) = 2, strings.Count(string(got.TrustAudit), "recordedAt") = 1`, got)
	}
	home, open := got.Endpoints[0], got.Endpoints[1]
	if home.ID != "home" || home.BaseURL != "https://home.example.org/tenant/7" || home.Token.Reveal() != `t0ken 'n' "with" #\n` {
		t.Errorf(`%+v; want home.ID = "home", home.BaseURL = "https://home.example.org/tenant/7", home.Token.Reveal() = "t0ken `+
			`'n' \"with\" #\\n"`, home)
	}
	if d := cmp.Diff([]string{"notes", "lamp"}, home.AllowedModules); d != "" || string(home.TrustPolicy) != policyWithKey ||
		!strings.Contains(pemKey, "\n") {
		t.Errorf(`%s %s; want d = "", string(home.TrustPolicy) = %v, pemKey with "\n"`, d, home.TrustPolicy, policyWithKey)
	}
	if open.ID != "open" || !open.Token.Empty() || open.AllowedModules != nil || open.TrustPolicy != nil {
		t.Errorf(`%+v; want open.ID = "open", open.Token.Empty(), open.AllowedModules = nil, open.TrustPolicy = nil`, open)
	}

	// None of them: nothing of ours stays but the audit.
	files := read(t, dir)
	ok(t, files.Put(nil, nil))
	ok(t, files.Write())
	vars, err = read(t, dir).Vars()
	ok(t, err)
	if len(vars) != 1 || vars["ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT"] == "" {
		t.Errorf(`%v; want len(vars) = 1, vars["ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT"] other than ""`, vars)
	}
}

func TestTheAuditKeepsTheLastRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := read(t, dir)
	var many []elizafile.Record
	for range elizafile.MaxRecords + 5 {
		many = append(many, elizafile.Record{Mode: "endpoint"})
	}
	many[len(many)-1].Mode = "last"
	ok(t, files.Put(nil, many))
	vars, err := files.Vars()
	ok(t, err)
	audit := vars["ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT"]
	if n := strings.Count(audit, `"mode"`); n != elizafile.MaxRecords || !strings.Contains(audit, `"last"`) {
		t.Errorf(`%d records; want n = elizafile.MaxRecords, audit with "\"last\""`, n)
	}
}

func TestConfigEnvOverridesElizaJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "eliza.json", `{"env":{"vars":{"ELIZA_A":"doc","ELIZA_B":"doc","ELIZA_N":7,"ELIZA_T":true,"ELIZA_NULL":null,"OTHER":[]}}}`)
	write(t, dir, "config.env", "ELIZA_A=first\nELIZA_A='env'\r\nOTHER=\"\n# ELIZA_B=no\nELIZA_C= bare value \n")
	vars, err := read(t, dir).Vars()
	ok(t, err)
	want := map[string]string{"ELIZA_A": "env", "ELIZA_B": "doc", "ELIZA_N": "7", "ELIZA_T": "true", "ELIZA_C": "bare value"}
	if d := cmp.Diff(want, vars); d != "" {
		t.Errorf("variables (-want +got):\n%s", d)
	}
}

func TestWhatCannotBeReadNamesItsPlaceAndNoValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, text, says string }{
		{"config.env", "A=1\nELIZA_X=\"s3cret", "config.env: line 2: the value of ELIZA_X has no closing quote"},
		{"config.env", `ELIZA_X="s3cret\`, "no closing quote"},
		{"config.env", `ELIZA_X='s3cret`, "no closing quote"},
		{"config.env", `ELIZA_X="s3cret" more`, "goes on behind its closing quote"},
		{"eliza.json", `{"env":`, "eliza.json"},
		{"eliza.json", `{"env":[]}`, "env must be a JSON object"},
		{"eliza.json", `{"env":{"vars":"s3cret"}}`, "env.vars must be a JSON object"},
		{"eliza.json", `{"env":{"vars":{"ELIZA_X":{"t":"s3cret"}}}}`, "env.vars.ELIZA_X must be a text"},
		{"eliza.json", `{"a":1,"a":2}`, "eliza.json"},
		{"eliza.json", strings.Repeat(" ", elizafile.MaxFile+1), "is larger than"},
	} {
		dir := t.TempDir()
		write(t, dir, c.file, c.text)
		files, err := elizafile.Read(elizafile.In(dir))
		if err == nil {
			_, err = files.Vars()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.40s: %v, want %q", c.text, err, c.says)
		}
	}
	if _, err := elizafile.Read(elizafile.Places{Env: t.TempDir(), Config: "none"}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a directory: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
}

func TestOnlyOurVariablesCanBeWritten(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"LD_PRELOAD", "NODE_OPTIONS", "PATH", "ELIZA_x", "ELIZA_A\nPATH", ""} {
		if elizafile.ParseEnv(nil).Set(name, "x") == nil || new(elizafile.Config).Set(name, "x") == nil {
			t.Errorf(`%q was set; want elizafile.ParseEnv(nil).Set(name, "x") not nil, new(elizafile.Config).Set(name, "x") not nil`,
				name)
		}
	}
	if elizafile.ParseEnv(nil).Set("ELIZA_X", "\xff") == nil || elizafile.ParseEnv(nil).Set("ELIZA_X", "a\x00") == nil {
		t.Error(`what is not text was set; want elizafile.ParseEnv(nil).Set("ELIZA_X", "\xff") not nil, ` +
			`elizafile.ParseEnv(nil).Set("ELIZA_X", "a\x00") not nil`)
	}
}

func TestWhereAnAgentKeepsItsFiles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		env         map[string]string
		dir, config string
	}{
		{map[string]string{"HOME": "/h"}, "/h/.eliza", "/h/.eliza/eliza.json"},
		{map[string]string{"HOME": "/h", "ELIZA_NAMESPACE": "mine"}, "/h/.mine", "/h/.mine/eliza.json"},
		{map[string]string{"HOME": "/h", "ELIZA_STATE_DIR": "/s", "ELIZA_CONFIG_PATH": "/c/e.json"}, "/s", "/c/e.json"},
		{map[string]string{}, "", ""},
		{map[string]string{"HOME": "/h", "ELIZA_NAMESPACE": "../x"}, "", ""},
	} {
		got, err := elizafile.Find(func(name string) string { return c.env[name] })
		if c.dir == "" {
			if err == nil {
				t.Errorf("%v: %+v; want an error", c.env, got)
			}
			continue
		}
		if want := (elizafile.Places{Env: c.dir + "/config.env", Config: c.config}); err != nil || got != want {
			t.Errorf("%v: %+v %v; want no error, got = %v", c.env, got, err, want)
		}
	}
}

// FuzzEnv: whatever a file holds, reading it does not fail; what is set comes
// back as it was, through a file written and read again, and every other line
// stays as it is.
func FuzzEnv(f *testing.F) {
	for _, seed := range []string{"", "A=1", "ELIZA_X=\"a\\\\n\\n\"", "ELIZA_X='\"'\n\n#c", "ELIZA_X=\"\\"} {
		f.Add([]byte(seed), `{"k":"a\nb\\"}`)
	}
	f.Fuzz(func(t *testing.T, data []byte, value string) {
		env := elizafile.ParseEnv(data)
		for _, name := range env.Names() {
			_, _ = env.Get(name)
		}
		before, err := env.Bytes()
		ok(t, err)
		if env.Set("ELIZA_FUZZ", value) != nil {
			return // no text
		}
		after, err := env.Bytes()
		ok(t, err)
		again := elizafile.ParseEnv(after)
		if got, err := again.Get("ELIZA_FUZZ"); err != nil || got != value {
			t.Fatalf("%q came back as %q: %v; want no error, got = %v", value, got, err, value)
		}
		if strings.Contains(string(data), "ELIZA_FUZZ") {
			return
		}
		ok(t, again.Set("ELIZA_FUZZ", ""))
		back, err := again.Bytes()
		ok(t, err)
		if string(back) != string(before) {
			t.Fatalf("%q became %q; want string(back) = %v", before, back, string(before))
		}
	})
}

// FuzzConfig: a document either cannot be read or keeps all it says.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"z":1.50,"env":{"vars":{"B":null},"a":1},"a":[1,{"b":"\ud800"}]}`, `{"env":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := elizafile.ParseConfig(data)
		if err != nil {
			return
		}
		out, err := doc.Bytes()
		ok(t, err)
		again, err := elizafile.ParseConfig(out)
		if err != nil {
			t.Fatalf("%q was written as %q: %v", data, out, err)
		}
		twice, err := again.Bytes()
		ok(t, err)
		if string(twice) != string(out) {
			t.Fatalf("%q became %q; want string(twice) = %v", out, twice, string(out))
		}
	})
}

func read(t testing.TB, dir string) *elizafile.Files {
	t.Helper()
	files, err := elizafile.Read(elizafile.In(dir))
	ok(t, err)
	return files
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	ok(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
