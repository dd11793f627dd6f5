package operator_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

// spy is a file system that counts what is opened for reading.
type spy struct {
	fstest.MapFS
	mu   sync.Mutex
	read []string
}

func (s *spy) Open(name string) (fs.File, error) {
	f, err := s.MapFS.Open(name)
	if err == nil && name != "." {
		s.mu.Lock()
		s.read = append(s.read, name)
		s.mu.Unlock()
	}
	return f, err
}

func (s *spy) Stat(name string) (fs.FileInfo, error) { return s.MapFS.Stat(name) }

func (s *spy) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.read
	s.read = nil
	return list
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func file(doc string, at time.Time) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte(doc), ModTime: at}
}

func builder(dirs ...*spy) *operator.StaticBuilder {
	cfg := operator.StaticConfig{
		Open: func(path string) (fs.FS, func() error, error) {
			return dirs[path[0]-'0'], func() error { return nil }, nil
		},
		Now: func() time.Time { return noon },
	}
	for i := range dirs {
		cfg.Dirs = append(cfg.Dirs, operator.Dir{Path: fmt.Sprint(i), Origin: []string{"bundled", "workspace"}[i]})
	}
	return operator.NewStaticBuilder(cfg)
}

func buildStatic(t testing.TB, b *operator.StaticBuilder) *operator.StaticCatalogs {
	t.Helper()
	c, err := b.Build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func thousand() *spy {
	s := &spy{MapFS: fstest.MapFS{}}
	for i := range 1000 {
		s.MapFS[fmt.Sprintf("ext%04d/extension.json", i)] = file(fmt.Sprintf(`{"id":"ext%04d","version":"1","entries":["main.js"],"install":{"packageSpec":"p"},
			"channels":[{"id":"ch%04d","label":"Channel"}],"contributions":[{"id":"s","kind":"surface.setup"},{"id":"c","kind":"surface.cli"}]}`, i, i), noon.Add(-time.Hour))
	}
	return s
}

// TestAWarmRebuildReadsWhatChanged holds that a rebuild reads changed manifests only.
func TestAWarmRebuildReadsWhatChanged(t *testing.T) {
	t.Parallel()
	s := thousand()
	b := builder(s)
	cold := buildStatic(t, b)
	if n := len(s.take()); n != 1000 || len(cold.Install.Rows) != 1000 || len(cold.Onboarding.Rows) != 1000 || len(cold.CLI.Rows) != 1000 ||
		len(cold.Channels.Rows) != 1000 {
		t.Fatalf("n = %d, %d rows to install, diagnostics = %q; want 1000 rows in each list", n, len(cold.Install.Rows), cold.Diagnostics)
	}
	if again := buildStatic(t, b); len(s.take()) != 0 || again.Install.Etag != cold.Install.Etag || again.Channels.Etag != cold.Channels.Etag {
		t.Errorf("it read again, or says something else; got again.Install.Etag = %v, again.Channels.Etag = %v; want "+
			"len(s.take()) = 0, again.Install.Etag = %v, again.Channels.Etag = %v", again.Install.Etag, again.Channels.Etag,
			cold.Install.Etag, cold.Channels.Etag)
	}
	s.MapFS["ext0500/extension.json"] = file(strings.Replace(string(s.MapFS["ext0500/extension.json"].Data), `"1"`, `"2"`, 1),
		noon.Add(-time.Minute))
	changed := buildStatic(t, b)
	if diff := cmp.Diff([]string{"ext0500/extension.json"}, s.take()); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if changed.Install.Rows[500].Version != "2" || changed.Install.Etag == cold.Install.Etag || changed.Channels.Etag != cold.Channels.Etag {
		t.Errorf(`the etags of what changed and of what did not; want changed.Install.Rows[500].Version = "2", `+
			"changed.Install.Etag other than %v, changed.Channels.Etag = %v", cold.Install.Etag, cold.Channels.Etag)
	}
	delete(s.MapFS, "ext0500/extension.json")
	if gone := buildStatic(t, b); len(gone.Install.Rows) != 999 || len(s.take()) != 0 {
		t.Errorf("%d rows to install, want 999 and no diagnostics", len(gone.Install.Rows))
	}
}

func TestAFileThatIsBeingWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	s := &spy{MapFS: fstest.MapFS{"a.json": file(`{"id":"a","version":"1"}`, noon)}}
	b := builder(s)
	buildStatic(t, b)
	s.MapFS["a.json"] = file(`{"id":"a","version":"2"}`, noon) // same size, same tick
	if c := buildStatic(t, b); c.Install.Rows[0].Version != "2" {
		t.Error(`the change was missed; want c.Install.Rows[0].Version = "2"`)
	}
}

// TestNothingIsActivated holds that no file but a manifest is opened.
func TestNothingIsActivated(t *testing.T) {
	t.Parallel()
	s := &spy{MapFS: fstest.MapFS{
		"boom/extension.json": file(`{"id":"boom","name":"Boom","entries":["main.js"],"install":{"localPath":"boom"},"channels":[{"id":"boom","label":"Boom"}],
			"contributions":[{"id":"setup","kind":"surface.setup","setup":{"flowId":"f","phases":["ask"]}},{"id":"cli","kind":"surface.cli","cli":{"path":"boom","interactive":true}}]}`, noon),
		"boom/main.js": file(`panic()`, noon), "boom/other.json": file(`}`, noon), "main.js": file(`panic()`, noon),
	}}
	c := buildStatic(t, builder(s))
	if diff := cmp.Diff([]string{"boom/extension.json"}, s.take()); diff != "" {
		t.Errorf(`opened more than the manifest %v; want diff = ""`, diff)
	}
	if diff := cmp.Diff(operator.Install{
		ExtensionID: "boom", Name: "Boom", Origin: "bundled", Entries: []string{"main.js"},
		LocalPath: "boom", DefaultChoice: "local",
	}, c.Install.Rows[0]); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if diff := cmp.Diff(operator.Onboarding{
		FlowID: "f", RuntimeID: "boom/setup", Target: "setup-ui", Modes: []string{},
		Phases: []string{"ask"}, Outputs: []string{},
	}, c.Onboarding.Rows[0]); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if diff := cmp.Diff(operator.CLI{Path: "boom", RuntimeID: "boom/cli", Mode: "subcommand", Interactive: true}, c.CLI.Rows[0]); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if len(c.Channels.Rows) != 1 || len(c.Diagnostics) > 0 {
		t.Errorf("len(c.Channels.Rows) = %v, want 1; len(c.Diagnostics) = %v, want at most 0; c.Diagnostics = %q",
			len(c.Channels.Rows), len(c.Diagnostics), c.Diagnostics)
	}
}

// fill gives every field of a value something to say.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.String:
		v.SetString(fmt.Sprint("value", *n))
	case reflect.Int:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(v.Kind())
	}
}

func TestEveryFieldOfAChannelMakesTheRoundTrip(t *testing.T) {
	t.Parallel()
	var in declaration.Channel
	n := 0
	fill(reflect.ValueOf(&in).Elem(), &n)
	in.Dock.ChatTypes, in.Install.DefaultChoice = []string{"dm"}, "package"
	doc, err := json.Marshal(declaration.Extension{ID: "x", Channels: []declaration.Channel{in}})
	if err != nil {
		t.Fatal(err)
	}
	c := buildStatic(t, builder(&spy{MapFS: fstest.MapFS{"x.json": file(string(doc), noon)}}))
	if len(c.Channels.Rows) != 1 {
		t.Fatalf("len(c.Channels.Rows) = %v, want 1; c.Diagnostics = %q", len(c.Channels.Rows), c.Diagnostics)
	}
	members := func(v any) (out map[string]any) {
		doc, err := json.Marshal(v)
		if err == nil {
			err = json.Unmarshal(doc, &out)
		}
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := members(c.Channels.Rows[0])
	if diff := cmp.Diff(members(in), got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	// A channel without values has every field too, with defaults.
	empty := buildStatic(t, builder(&spy{MapFS: fstest.MapFS{"x.json": file(`{"id":"x","channels":[{"id":"c","label":"C"}]}`,
		noon)}})).Channels.Rows[0]
	for name := range got {
		if _, there := members(empty)[name]; !there {
			t.Errorf("%s is left out; want there = true", name)
		}
	}
	if empty.SelectionLabel != "C" || empty.DocsPath != "/channels/c" || empty.Install != nil || empty.Order != nil {
		t.Errorf(`%+v; want empty.SelectionLabel = "C", empty.DocsPath = "/channels/c", empty.Install = nil, empty.Order = nil`, empty)
	}
}

func TestTheStrongestOriginWins(t *testing.T) {
	t.Parallel()
	bundled := &spy{MapFS: fstest.MapFS{
		"slack.json": file(`{"id":"slack","origin":"config","channels":[{"id":"slack","label":"Slack","order":2},{"id":"irc","label":"IRC"},{"id":"nameless"}]}`, noon),
		"zalo.json":  file(`{"id":"zalo","channels":[{"id":"zalo","label":"Zalo"},{"id":"tg","label":"Telegram","order":1}]}`, noon),
	}}
	workspace := &spy{MapFS: fstest.MapFS{
		"s/extension.json": file(`{"id":"SLACK","version":"2","channels":[{"id":"slack","label":"Slack (patched)","order":2}]}`, noon),
		"bad.json":         file(`{"id":`, noon), "d1.json": file(`{"id":"dup"}`, noon), "d2.json": file(`{"id":"dup"}`, noon),
		"odd.json": file(`{"id":"odd","colour":1}`, noon),
	}}
	c := buildStatic(t, builder(bundled, workspace))
	var channels, installs []string
	for _, row := range c.Channels.Rows {
		channels = append(channels, row.Label)
	}
	for _, row := range c.Install.Rows {
		installs = append(installs, row.ExtensionID+" "+row.Origin)
	}
	if diff := cmp.Diff([]string{"Telegram", "Slack (patched)", "IRC", "Zalo"}, channels); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if diff := cmp.Diff([]string{"SLACK workspace", "odd workspace", "zalo bundled"}, installs); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	want := []string{
		"0/slack.json: its origin is bundled, where it lies, not config", "1/bad.json: ", "1/odd.json: /colour is not a known field",
		"channel nameless of slack has no label",
		"extension dup is not listed: registration-conflict", "package slack (bundled) stands behind one of a stronger origin",
	}
	if len(c.Diagnostics) != len(want) {
		t.Fatalf("%q; want len(c.Diagnostics) = %v", c.Diagnostics, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(c.Diagnostics[i], want[i]) {
			t.Errorf("%q, not %q; want c.Diagnostics[i] beginning with want[i]", c.Diagnostics[i], want[i])
		}
	}
	list := c.Extensions
	for range 5 {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		again, err := operator.CompileStatic(list)
		if err != nil || again.Channels.Etag != c.Channels.Etag || again.Install.Etag != c.Install.Etag {
			t.Errorf("the order of the files can be seen %v; want no error, again.Channels.Etag = %v, again.Install.Etag = %v",
				err, c.Channels.Etag, c.Install.Etag)
		}
	}
}

func TestOnDisk(t *testing.T) {
	t.Parallel()
	home, outside := t.TempDir(), t.TempDir()
	write := func(path, doc string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(outside, "secret.json"), `{"id":"secret"}`)
	write(filepath.Join(outside, "extension.json"), `{"id":"secret2"}`)
	write(filepath.Join(home, "good", "extension.json"), `{"id":"good"}`)
	write(filepath.Join(home, "big.json"), strings.Repeat(" ", declaration.MaxBytes+1))
	write(filepath.Join(home, "empty", "readme"), "")
	write(filepath.Join(home, ".hidden.json"), `}`)
	for name, target := range map[string]string{
		"link.json": filepath.Join(outside, "secret.json"), "dir": outside,
		"inside.json": "good/extension.json", "nowhere.json": "gone",
	} {
		if err := os.Symlink(target, filepath.Join(home, name)); err != nil {
			t.Skip(err)
		}
	}
	b := operator.NewStaticBuilder(operator.StaticConfig{Dirs: []operator.Dir{
		{Path: home, Origin: "global"},
		{Path: filepath.Join(home, "missing"), Origin: "config"},
	}})
	c := buildStatic(t, b)
	for _, x := range c.Extensions {
		if x.ID != "good" {
			t.Errorf(`%s was followed; want x.ID = "good"`, x.ID)
		}
	}
	for _, word := range []string{"big.json: it has 4194305 bytes", "link.json cannot be read", "dir cannot be read"} {
		if !strings.Contains(strings.Join(c.Diagnostics, "\n"), word) {
			t.Errorf(`%q is missing in %q; want strings.Join(c.Diagnostics, "\n") with %v`, word, c.Diagnostics, word)
		}
	}
}

func BenchmarkWarmRebuild(b *testing.B) {
	home := b.TempDir()
	past := time.Now().Add(-time.Hour)
	for name, f := range thousand().MapFS {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			b.Fatal(err)
		}
		if err := os.Chtimes(path, past, past); err != nil {
			b.Fatal(err)
		}
	}
	buildStatic(b, operator.NewStaticBuilder(operator.StaticConfig{Dirs: []operator.Dir{{Path: home, Origin: "global"}}}))
	warm := operator.NewStaticBuilder(operator.StaticConfig{Dirs: []operator.Dir{{Path: home, Origin: "global"}}})
	buildStatic(b, warm)
	for b.Loop() {
		buildStatic(b, warm)
	}
}
