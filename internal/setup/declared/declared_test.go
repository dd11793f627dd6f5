package declared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// object is what an owner has stored.
type object struct {
	mark *managed.Mark // nil: a user added it
	spec string
}

// owner keeps objects as the real owners do: each change of one object is one step.
type owner struct {
	mu      sync.Mutex
	objects map[string]object
	fails   map[string]error // declared all the same
	refuses map[string]error
	steps   *atomic.Int64 // that are left before the process is killed; nil: it is never
	down    bool
}

func newOwner() *owner { return &owner{objects: make(map[string]object)} }

func (o *owner) Running() bool { return !o.down }

func (o *owner) Declared(gateway string) map[string]string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make(map[string]string)
	for name, have := range o.objects {
		if have.mark.OwnedBy(gateway) {
			out[name] = have.mark.File
		}
	}
	return out
}

func (o *owner) Compare(mark managed.Mark, name string, spec []byte) (managed.Difference, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, ok := o.objects[name]
	switch {
	case strings.Contains(string(spec), "wrong"):
		return managed.Difference{}, capability.Errorf(capability.CodeInvalidInput, "", "it is wrong")
	case !ok:
		return managed.Difference{}, nil
	case have.mark == nil:
		return managed.Difference{}, managed.UserOwned("", "it")
	}
	d := managed.Difference{Exists: true}
	if have.spec != string(spec) || have.mark.File != mark.File {
		d.Members = []string{"url"}
	}
	return d, nil
}

var errKilled = errors.New("killed")

func (o *owner) step() error {
	if o.steps != nil && o.steps.Add(-1) < 0 {
		return errKilled
	}
	return nil
}

func (o *owner) Declare(_ context.Context, _ capability.Principal, mark managed.Mark, name string, spec []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.refuses[name]; err != nil {
		return err
	}
	if err := o.step(); err != nil {
		return err
	}
	o.objects[name] = object{&mark, string(spec)}
	return o.fails[name]
}

func (o *owner) Withdraw(_ context.Context, _ capability.Principal, _, name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.step(); err != nil {
		return err
	}
	delete(o.objects, name)
	return nil
}

// have returns the objects of both owners, sorted.
func have(owners ...*owner) string {
	var out []string
	for _, o := range owners {
		o.mu.Lock()
		for name, x := range o.objects {
			by := "user"
			if x.mark != nil {
				by = x.mark.File
			}
			out = append(out, name+" "+by+" "+x.spec)
		}
		o.mu.Unlock()
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func server() capability.Principal {
	return capability.Principal{ID: "server", Role: capability.RoleAdmin}
}

type rig struct {
	*Files
	t      *testing.T
	up, ep *owner
	home   string
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, up: newOwner(), ep: newOwner(), home: t.TempDir()}
	r.restart()
	return r
}

// restart makes other Files, as after a kill: only the owners keep anything.
func (r *rig) restart() {
	r.Files = New(Config{Home: r.home, Gateway: "g", Upstreams: r.up, Endpoints: r.ep, Logger: slog.New(slog.DiscardHandler)})
}

// write makes the folder hold exactly these files.
func (r *rig) write(files map[string]string) {
	r.t.Helper()
	dir := filepath.Join(r.home, folder)
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		r.t.Fatalf("writing the files: %v", err)
	}
}

// rows applies and returns the rows as lines.
func (r *rig) rows(req Request) string {
	r.t.Helper()
	out, err := r.Apply(r.t.Context(), server(), req)
	if err != nil {
		r.t.Fatalf("applying: %v", err)
	}
	var lines []string
	for _, row := range out.Rows {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(row.Action, " ", row.Kind, " ", row.Name, " ", row.File, " ", row.Detail)))
	}
	return strings.Join(lines, "\n")
}

func (r *rig) want(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

const (
	ab = "upstreams: {a: {url: 1}, b: {url: 2}}\nendpoints: {e: {url: 3}}"
	c  = "upstreams: {c: {url: 4}}"
)

func TestAnApplyMakesTheObjectsWhatTheFilesDeclare(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.want("without a folder", r.rows(Request{}), "")
	r.write(map[string]string{"a.yaml": ab, "c.yaml": c, ".c.yaml": "lock", "notes.txt": "text"})
	r.up.objects["mine"] = object{nil, "of a user"}
	added := "add endpoint e config.d/a.yaml\nadd upstream a config.d/a.yaml\nadd upstream b config.d/a.yaml\nadd upstream c config.d/c.yaml"
	r.want("a dry run", r.rows(Request{DryRun: true}), added)
	r.want("after the dry run", have(r.up, r.ep), "mine user of a user")
	r.want("applied", r.rows(Request{}), added)
	r.want("applied again", r.rows(Request{}), strings.ReplaceAll(added, "add ", "keep "))

	r.write(map[string]string{"a.yaml": "upstreams: {a: {url: 7}}", "d.yaml": c})
	r.want("changed, moved and removed", r.rows(Request{}),
		"remove endpoint e config.d/a.yaml\nremove upstream b config.d/a.yaml\nchange upstream a config.d/a.yaml url\nchange upstream c config.d/d.yaml url")
	r.want("after the change", have(r.up, r.ep), "a config.d/a.yaml {\"url\":7}\nc config.d/d.yaml {\"url\":4}\nmine user of a user")

	// Another folder is compared only.
	r.want("another folder", r.rows(Request{DryRun: true, Files: []File{{Name: "a.yaml", Text: "upstreams: {mine: {url: 1}}"}}}),
		"remove upstream a config.d/a.yaml\nremove upstream c config.d/d.yaml\nerror upstream mine config.d/a.yaml "+
			"config.d/a.yaml:1: it was added by hand, so a file cannot declare it")
	for _, files := range [][]File{{}, {{Name: "../a.yaml"}}, {{Name: "a.yml"}}, {{Name: "a\n.yaml"}}} {
		out, err := r.Apply(t.Context(), server(), Request{Files: files})
		if capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("applying the files %q: %+v, %v; want invalid_input", files, out, err)
		}
	}
	r.write(nil)
	r.want("an empty folder", r.rows(Request{}), "remove upstream a config.d/a.yaml\nremove upstream c config.d/d.yaml")
	r.want("at the end", have(r.up, r.ep), "mine user of a user")
}

// Objects of another gateway on the same store stay, and those that both declare are not changed.
func TestObjectsOfAnotherGatewayStay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.up.objects["a"] = object{&managed.Mark{File: "config.d/a.yaml", Gateway: "other"}, `{"url":1}`}
	r.up.objects["z"] = object{&managed.Mark{File: "config.d/z.yaml", Gateway: "other"}, `{"url":9}`}
	r.write(map[string]string{"a.yaml": "upstreams: {a: {url: 1}}"})
	r.want("the rows", r.rows(Request{}), "keep upstream a config.d/a.yaml")
	r.write(nil)
	r.want("the rows without files", r.rows(Request{}), "")
}

func TestOneObjectThatFailsStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(map[string]string{"a.yaml": ab})
	r.up.fails = map[string]error{"a": capability.Errorf(capability.CodeUnavailable, "", "it is away").With("x", "start it")}
	r.up.refuses = map[string]error{"b": errors.New("no space")}
	rows := r.rows(Request{})
	r.want("the rows", rows[:strings.LastIndex(rows, " b ")], "add endpoint e config.d/a.yaml\n"+
		"error upstream a config.d/a.yaml add: it is away (start it)\nerror upstream")
	checks := r.Checks()
	if len(checks) != 1 || checks[0].OK || checks[0].Name != "upstream b of config.d/a.yaml" {
		t.Errorf("Checks = %+v, want one about b, because a is stored", checks)
	}
	r.up.refuses = nil
	r.want("again", r.rows(Request{}), "keep endpoint e config.d/a.yaml\nkeep upstream a config.d/a.yaml\nadd upstream b config.d/a.yaml")
	if checks := r.Checks(); len(checks) != 1 || !checks[0].OK || checks[0].Detail != "3 objects of 1 file" {
		t.Errorf("Checks = %+v, want all three applied", checks)
	}
}

func TestAFaultChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.write(map[string]string{"a.yaml": ab})
	r.rows(Request{})
	was := have(r.up, r.ep)
	r.write(map[string]string{"a.yaml": "upstreams:\n  x: {url: 1}\n  y: {url: wrong}"})
	for _, dry := range []bool{true, false} {
		_, err := r.Apply(t.Context(), server(), Request{DryRun: dry})
		if e := capability.AsError(err); err == nil || e.Reason != ReasonFault || e.Message != "config.d/a.yaml:3: upstream y: it is wrong" {
			t.Errorf("Apply(dry %v) = %v, want a fault with its line", dry, err)
		}
	}
	r.want("after the fault", have(r.up, r.ep), was)
	if checks := r.Checks(); len(checks) != 1 || checks[0].OK || checks[0].Remedy == "" || !strings.Contains(checks[0].Detail, "a.yaml:3") {
		t.Errorf("Checks = %+v, want the fault", checks)
	}
	if err := os.RemoveAll(filepath.Join(r.home, folder)); err != nil {
		t.Fatalf("removing the folder: %v", err)
	}
	const missing = "the folder is missing, so the 3 objects"
	if _, err := r.Apply(t.Context(), server(), Request{}); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("without the folder: %v, want an error", err)
	}
	r.want("without the folder", have(r.up, r.ep), was)
	r.ep.down = true
	if _, err := r.Apply(t.Context(), server(), Request{}); err == nil {
		t.Error("before the owners run: no error, want one")
	}
	if checks := r.Checks(); checks != nil {
		t.Errorf("before the owners run: %+v, want no findings", checks)
	}
}

// A process that is killed after any step of an apply leaves a state that the next one completes.
func TestAnApplyThatWasInterruptedIsCompleted(t *testing.T) {
	t.Parallel()
	after := map[string]string{"b.yaml": "upstreams: {b: {url: 9}, n: {url: 5}}\nendpoints: {f: {url: 3}}"}
	const steps = 6 // e, a and c go; b changes; n and f come
	for killed := range steps + 1 {
		t.Run(fmt.Sprint(killed), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.up.objects["mine"] = object{nil, "of a user"}
			r.write(map[string]string{"a.yaml": ab, "c.yaml": c})
			r.rows(Request{})
			left := new(atomic.Int64)
			left.Store(int64(killed))
			r.up.steps, r.ep.steps = left, left
			r.write(after)
			if rows := r.rows(Request{}); strings.Count(rows, "error ") != steps-killed {
				t.Errorf("killed after %d of %d steps:\n%s", killed, steps, rows)
			}
			r.up.steps, r.ep.steps = nil, nil
			r.restart()
			r.rows(Request{})
			r.want("completed", have(r.up, r.ep), "b config.d/b.yaml {\"url\":9}\nf config.d/b.yaml {\"url\":3}\nmine user of a user\nn config.d/b.yaml {\"url\":5}")
			if rows := r.rows(Request{}); strings.Count(rows, "keep ") != 3 || strings.Count(rows, "\n") != 2 {
				t.Errorf("once more:\n%s\nwant three objects that are kept", rows)
			}
		})
	}
}

// A changed file is applied once it rests, and what could not be stored is tried again.
func TestFilesAreAppliedWhenTheyChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.write(map[string]string{"a.yaml": "upstreams: {a: {url: 1}}"})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		pass(scanInterval + time.Millisecond)
		r.want("after one reading", have(r.up), "")
		pass(scanInterval)
		r.want("after two readings", have(r.up), `a config.d/a.yaml {"url":1}`)

		// The moment of a checkout at which the file is missing removes nothing.
		r.write(nil)
		pass(scanInterval)
		r.write(map[string]string{"a.yaml": "upstreams: {a: {url: 2}, b: {url: 1}}"})
		r.up.refuses = map[string]error{"b": errors.New("no space")}
		pass(scanInterval)
		r.want("after a checkout", have(r.up), `a config.d/a.yaml {"url":1}`)
		pass(scanInterval)
		r.want("once it rests", have(r.up), `a config.d/a.yaml {"url":2}`)

		r.up.refuses = nil
		pass(scanInterval)
		r.want("before the retry", have(r.up), `a config.d/a.yaml {"url":2}`)
		pass(retryInterval)
		r.want("after the retry", have(r.up), "a config.d/a.yaml {\"url\":2}\nb config.d/a.yaml {\"url\":1}")

		r.write(map[string]string{"a.yaml": "upstreams: ["})
		pass(3 * scanInterval)
		r.want("while it is wrong", have(r.up), "a config.d/a.yaml {\"url\":2}\nb config.d/a.yaml {\"url\":1}")
		r.write(nil)
		pass(3 * scanInterval)
		r.want("without files", have(r.up), "")
	})
}

func TestDeclarationsAreDecoded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":              "",
		"upstreams:":    "",
		"endpoints: {}": "",
		"upstreams: {a: {command: npx, args: [-y, x]}}":              `{"command":["npx","-y","x"]}`,
		"upstreams: {a: {command: [npx, -y]}}":                       `{"command":["npx","-y"]}`,
		"upstreams: {a: {folders: {ro: [/a], rw: [/b]}}}":            `{"read_only":["/a"],"read_write":["/b"]}`,
		"upstreams: {a: {network: none, trust_hints: true}}":         `{"hints_trusted":true,"network":["none"]}`,
		"upstreams: {a: {env: {A: '1'}, env_secrets: {B_TOKEN: b}}}": `{"env":{"A":"1"},"env_secrets":{"B_TOKEN":"b"}}`,
		"upstreams: {a: {oauth: {client_secret: s}}}":                `{"oauth":{"client_secret":"s"}}`,
		"endpoints: {a: {url: x, token_secret: t}}":                  `{"token_secret":"t","url":"x"}`,
		"endpoints: {a: {network: none}}":                            `{"network":"none"}`,
	} {
		entries, err := decode([]hostfs.File{{Name: "a.yaml", Text: []byte(text)}})
		got := ""
		if len(entries) == 1 {
			got = string(entries[0].spec)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestFaultsNameFileAndLine(t *testing.T) {
	t.Parallel()
	token := "ghp_" + strings.Repeat("a1B2", 9)
	for text, want := range map[string]string{
		"upstreams: [": "",
		"upstreams:\n  a: {url: x}\n  a: {url: y}": `:3: the key "a" is given twice`,
		"\nclients: {}":                                             ":2: /clients: is not a known field; a file has upstreams and endpoints",
		"upstreams: []":                                             ":1: /upstreams: is a JSON array",
		"upstreams:\n  a:":                                          ":2: upstream a has no members",
		"upstreams:\n  a: text":                                     ":2: upstream a has no members",
		"upstreams:\n  a:\n    preset: open":                        ":3: upstream a: preset is a rule",
		"upstreams:\n  a:\n    name: b":                             ":3: upstream a: name is not a known field",
		"upstreams:\n  a:\n    managed: {file: b}":                  ":3: upstream a: managed is not a known field",
		"upstreams:\n  a:\n    args: [x]":                           ":3: upstream a: args needs a command",
		"upstreams:\n  a:\n    command: x\n    args: [1]":           ":4: upstream a: args is a list of texts",
		"upstreams:\n  a: {command: [x], args: [y]}":                ":2: upstream a: args needs a command",
		"upstreams:\n  a: {folders: {rx: [/a]}}":                    ":2: upstream a: folders has the lists ro and rw",
		"upstreams:\n  a: {folders: {}, read_only: [/]}":            ":2: upstream a: folders is given twice",
		"upstreams:\n  a: {trust_hints: true, hints_trusted: true}": ":2: upstream a: trust_hints is given twice",
		"upstreams:\n  a:\n    env:\n      API_KEY: hunter2": ":4: upstream a: env.API_KEY looks like a credential, " +
			"which a file must not hold; store it with: junctor secrets set NAME, and write the name (env_secrets)",
		"upstreams:\n  a:\n    env:\n      db_secret: hunter2":                 ":4: upstream a: env.db_secret looks like a credential",
		"upstreams:\n  a: {headers: {X-Plain: " + token + "}}":                 ":2: upstream a: headers.X-Plain looks like a credential",
		"upstreams:\n  a: {bearer_secret: " + token + "}":                      ":2: upstream a: bearer_secret needs the name of a secret",
		"upstreams:\n  a: {bearer_secret: Bearer hunter2}":                     ":2: upstream a: bearer_secret needs the name of a secret",
		"upstreams:\n  a: {env_secrets: {A: hunter2 hunter2}}":                 ":2: upstream a: env_secrets.A needs the name of a secret",
		"upstreams:\n  a: {url: 'https://hunter:hunter2@x.example'}":           ":2: upstream a: url looks like a credential",
		"upstreams:\n  a:\n    command: x\n    args:\n    - --api-key=hunter2": ":5: upstream a: args.0 looks like a credential",
		"upstreams:\n  a: {keys: [{kty: OKP, d: hunter2}]}":                    ":2: upstream a: a key of a card is a public one",
		"endpoints:\n  a: {token: hunter2}":                                    ":2: endpoint a: token looks like a credential",
		"upstreams: {'': {url: x}}":                                            ":1: a name has 1 to 120 bytes",
		"upstreams: {a: &x {url: x, y: *x}}":                                   ":1: an alias holds itself",
		bomb():                                                                 ":",
		strings.Repeat("#", 500<<10+1):                                         ": the document has more than",
	} {
		_, err := decode([]hostfs.File{{Name: "a.yaml", Text: []byte(text)}})
		e := capability.AsError(err)
		if err == nil || e.Code != capability.CodeInvalidInput || e.Reason != ReasonFault || e.Hint == "" ||
			!strings.HasPrefix(e.Message, "config.d/a.yaml"+want) {
			t.Errorf("%.90q: %v, want a fault that begins with config.d/a.yaml%s", text, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "hunter2") || strings.Contains(fmt.Sprint(err), token) {
			t.Errorf("%.90q: %v, want no value of it", text, err)
		}
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1, i-1)
	}
	return b.String()
}

func TestBoundsOverSeveralFiles(t *testing.T) {
	t.Parallel()
	repeated := "{command: &x \"" + strings.Repeat("x ", 20<<10) + "\", args: [*x" + strings.Repeat(", *x", 43) + "]}"
	var wide []hostfs.File
	for _, name := range []string{"a", "b", "c"} {
		wide = append(wide, hostfs.File{Name: name + ".yaml", Text: []byte("upstreams: {" + name + ": " + repeated + "}")})
	}
	if _, err := decode(wide[:2]); err != nil {
		t.Errorf("aliases of two files: got %v, want no error", err)
	}
	if _, err := decode(wide); err == nil || !strings.Contains(err.Error(), "config.d/c.yaml: "+tooMuch) {
		t.Errorf("aliases of three files, whose text is small: got %v, want too much", err)
	}
	one := hostfs.File{Name: "a.yaml", Text: []byte("# the first\nupstreams: {a: {url: x}}\nendpoints: {a: {url: x}}")}
	two := hostfs.File{Name: "b.yaml", Text: []byte("upstreams:\n  b: {url: x}\n  a: {url: x}")}
	if _, err := decode([]hostfs.File{one, two}); err == nil ||
		!strings.HasSuffix(err.Error(), "config.d/b.yaml:3: the upstream a is declared twice, first in config.d/a.yaml:2") {
		t.Errorf("a name in two files: %v, want both places", err)
	}
	var many strings.Builder
	many.WriteString("upstreams:\n")
	for i := range maxEntries + 1 {
		fmt.Fprintf(&many, "  u%d: {url: x}\n", i)
	}
	full := hostfs.File{Name: "a.yaml", Text: []byte(many.String())}
	if _, err := decode([]hostfs.File{full}); err == nil || !strings.Contains(err.Error(), "more than 512 objects") {
		t.Errorf("%d objects: %v, want an error", maxEntries+1, err)
	}
	r := newRig(t)
	files := make(map[string]string)
	for i := range maxFiles + 1 {
		files[fmt.Sprintf("%d.yaml", i)] = ""
	}
	r.write(files)
	if _, err := r.Apply(t.Context(), server(), Request{}); err == nil || !strings.Contains(err.Error(), "more than 100 files") {
		t.Errorf("%d files: %v, want an error", len(files), err)
	}
	delete(files, slices.Sorted(maps.Keys(files))[0])
	r.write(files)
	r.want("100 empty files", r.rows(Request{}), "")
}

// Whatever a file holds, it is either refused with its name or declares objects in a fixed order.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		ab, c, bomb(), "upstreams: {a: {command: x, args: [y], folders: {ro: [/]}, network: all, trust_hints: yes}}", "upstreams: {a: &x {url: x}, b: *x}",
		"endpoints: {a: {url: x, token_secret: y, trust_policy: {strictNames: true}}}", "upstreams: {a: {env: {A_TOKEN: x}}}",
		"- x", "a: !!binary aGk=",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		files := []hostfs.File{{Name: "a.yaml", Text: text}}
		entries, err := decode(files)
		if err != nil {
			if e := capability.AsError(err); e.Reason != ReasonFault || !strings.HasPrefix(e.Message, "config.d/a.yaml") {
				t.Fatalf("%q: %v, want a fault that names the file", text, err)
			}
			return
		}
		again, err := decode(files)
		if err != nil || len(again) != len(entries) {
			t.Fatalf("%q: %d objects, then %d, %v; want the same", text, len(entries), len(again), err)
		}
		for i, e := range entries {
			if e.key() != again[i].key() || string(e.spec) != string(again[i].spec) || e.line < 1 || len(e.spec) == 0 {
				t.Fatalf("%q: %s at line %d: %s, then %s; want the same JSON, and a line", text, e.key(), e.line, e.spec, again[i].spec)
			}
		}
	})
}
