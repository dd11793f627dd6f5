package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/junctor-run/junctor/internal/testkit/fakeregistry"
)

// TestMain lets the test binary be the junctor command: the scripts, and the
// tests that start servers, run the real program as its own process.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"junctor": main, "mcpserver": mcpServer, "askingclaude": askingClaude})
}

// TestScripts runs the user stories of testdata/script. Beyond testscript's own
// commands they have:
//
//	await FILE [REGEXP]           wait until FILE holds text (that matches)
//	jsonenv VAR SOURCE PATH       put a member of a JSON document into a variable
//	jsonis SOURCE PATH VALUE      compare a member ("absent" if it is missing)
//	jsonlen SOURCE PATH N         compare the length of a list
//	mode PERM FILE...             compare the permission bits
//	tamper FILE OLD NEW           replace one occurrence of a text in a file
//	term FILE                     send SIGTERM to the pid of the ready line in FILE
//
// SOURCE is stdout, stderr or a file, PATH is like error.code or records.0.seq.
func TestScripts(t *testing.T) {
	registry := sampleRegistry(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("JUNCTOR_HOME", filepath.Join(env.WorkDir, "home"))
			examples, err := filepath.Abs("../../examples")
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", examples)
			env.Setenv("REGISTRY", registry.URL)
			env.Setenv("XDG_DATA_HOME", "")
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command under -race rests for a second
			return nil
		},
		Condition:          func(string) (bool, error) { return os.Geteuid() == 0, nil }, // [root] is the only one
		Cmds:               scriptCommands(),
		RequireUniqueNames: true,
	})
}

// sampleRegistry serves an MCP registry with the package greeter, which a program "npx" runs.
func sampleRegistry(t *testing.T) *fakeregistry.Registry {
	t.Helper()
	folder := `"packageArguments":[{"type":"positional","valueHint":"tools","isRequired":true,"format":"filepath",
		"description":"the list of its tools"}`
	old := fakeregistry.Package("io.example/greeter-old", "1.0.0", "npm", "greeter", folder+`]`)
	gone := fakeregistry.Package("io.example/greeter-gone", "1.0.0", "npm", "greeter", "")
	old.Status, gone.Status = "deprecated", "deleted"
	return fakeregistry.Start(t, old, gone, fakeregistry.Package("io.example/greeter-nuget", "1.0.0", "nuget", "Greeter", ""),
		fakeregistry.Package("io.example/greeter", "1.4.0", "npm", "greeter", folder+`,{"type":"named","name":"--note"}],
			"environmentVariables":[{"name":"TOKEN","isRequired":true,"isSecret":true,"description":"of the service"}]`))
}

func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"await":   awaitFile,
		"jsonenv": jsonEnv,
		"jsonis":  jsonIs,
		"jsonlen": jsonLen,
		"mode":    checkMode,
		"tamper":  tamper,
		"term":    term,
	}
}

func awaitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 || len(args) > 2 {
		ts.Fatalf("usage: await FILE [REGEXP]")
	}
	want := regexp.MustCompile(`\S`)
	if len(args) == 2 {
		want = regexp.MustCompile(args[1])
	}
	name := ts.MkAbs(args[0])
	deadline := time.Now().Add(30 * time.Second)
	for {
		data, err := os.ReadFile(name)
		if err == nil && want.Match(data) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s did not come to match %s in 30 s; it holds %q (%v)", args[0], want, data, err)
		}
		time.Sleep(10 * time.Millisecond) // a poll of another process's file
	}
}

// member walks to PATH in the JSON document of SOURCE.
func member(ts *testscript.TestScript, source, path string) (any, bool) {
	text := ts.ReadFile(source)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	ts.Check(dec.Decode(&v))
	if dec.More() {
		ts.Fatalf("%s holds more than one JSON document:\n%s", source, text)
	}
	if path == "." {
		return v, true
	}
	for name := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[name]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}

func jsonText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

func jsonEnv(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonenv VAR SOURCE PATH")
	}
	v, ok := member(ts, args[1], args[2])
	if !ok {
		ts.Fatalf("%s has no %s:\n%s", args[1], args[2], ts.ReadFile(args[1]))
	}
	ts.Setenv(args[0], jsonText(v))
}

func jsonIs(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: jsonis SOURCE PATH VALUE")
	}
	got := "absent"
	if v, ok := member(ts, args[0], args[1]); ok {
		got = jsonText(v)
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s of %s is %s, not as wanted %s:\n%s", args[1], args[0], got, args[2], ts.ReadFile(args[0]))
	}
}

func jsonLen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: jsonlen SOURCE PATH N")
	}
	v, _ := member(ts, args[0], args[1])
	list, ok := v.([]any)
	if !ok || strconv.Itoa(len(list)) != args[2] {
		ts.Fatalf("%s of %s has %d items, wanted %s:\n%s", args[1], args[0], len(list), args[2], ts.ReadFile(args[0]))
	}
}

func checkMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mode PERM FILE...")
	}
	for _, name := range args[1:] {
		info, err := os.Stat(ts.MkAbs(name))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, wanted %s", name, got, args[0])
		}
	}
}

func tamper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: tamper FILE OLD NEW")
	}
	data, changed := ts.ReadFile(args[0]), ""
	if changed = strings.Replace(data, args[1], args[2], 1); changed == data {
		ts.Fatalf("%s does not hold %q", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(changed), 0o600))
}

func term(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: term FILE")
	}
	pid, _ := member(ts, args[0], "pid")
	n, err := strconv.Atoi(jsonText(pid))
	ts.Check(err)
	ts.Check(syscall.Kill(n, syscall.SIGTERM))
}
