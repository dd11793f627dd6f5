package attack

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"hash/crc32"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// hostileInputs: what must be refused before anything of it runs.
func hostileInputs(l *lab) {
	marker := filepath.Join(l.v.Dir, "made")
	action := func(runner string) func(*pack) {
		return func(p *pack) {
			p.actions = "    - {id: x, description: X, runner: " + jsonText(runner) + ", argv: ['-c', 'touch " + marker + "']}\n"
		}
	}
	plan := func(step string) func(*pack) { return func(p *pack) { p.plan = step } }
	for _, bad := range []struct {
		name   string
		change func(*pack)
		reason string // of the install; "" means that the run is refused
		run    string
	}{
		{"runner with a path", action("exec./bin/sh"), "", "x"},
		{"runner with steps up", action("exec.../../bin/sh"), "", "x"},
		{"runner with an absolute path", action("exec.sh/../../bin/sh"), "", "x"},
		{"an interpreter without its permission", action("exec.bash"), "", "x"},
		{"another interpreter", action("exec.python3"), "", "x"},
		{"one that raises rights", action("exec.sudo"), "", "x"},
		{"env as the program", action("exec.env"), "", "x"},
		{"a runner nobody has", action("teleport.now"), "", "x"},
		{"a download that leads out", plan("{id: d, type: download.http, url: 'https://a.test/x', target: '../../x', sha256: '" +
			strings.Repeat("ab", 32) + "'}"), "any", ""},
		{"a condition that is code", plan("{id: d, type: detect.platform, when: '().__class__'}"), "condition_error", ""},
		{"a placeholder for a digest", plan("{id: d, type: download.http, url: 'https://a.test/x', target: x, sha256: PLACEHOLDER}"), "any", ""},
		{"a step nobody has", plan("{id: d, type: exec.python, command: x}"), "invalid_step_type", ""},
		{"unpacking to the outside", plan("{id: d, type: extract.zip, source: ../x.zip, target: /etc}"), "any", ""},
	} {
		p := pack{
			id: "tools.bad", permissions: []string{"exec", "network", "filesystem.write"}, network: []string{"a.test"},
			actions: "    - {id: x, description: X, runner: exec.echo}\n",
		}
		p.id += strings.ToLower(l.tier + l.user)
		bad.change(&p)
		err := l.install(l.Context(), l.who, p, l.T)
		switch {
		case bad.reason != "" && err == nil:
			l.Errorf("%s was installed", bad.name)
		case bad.reason != "" && bad.reason != "any" && !strings.EqualFold(reasonOf(err), bad.reason):
			l.Errorf("%s: %v %s", bad.name, err, reasonOf(err))
		case bad.reason == "" && err == nil:
			if r := l.run(l.Context(), l.who, "attacker", p.command()+" "+bad.run); r.Err == nil {
				l.Errorf("%s ran: %s", bad.name, r.Output)
			}
		}
		if err == nil {
			if err := l.uninstall(l.Context(), l.who, p.id); err != nil {
				l.Error(err)
			}
		}
	}
	l.hostileArchives()
	l.hostileWords()
	if _, err := os.Lstat(marker); err == nil {
		l.Error("something was executed")
	}
	for _, name := range []string{"x", "tools.bad"} {
		if _, err := os.Lstat(filepath.Join(l.home, "extensions", name)); err == nil {
			l.Errorf("%s was written outside the staging folder", name)
		}
	}
}

func reasonOf(err error) string {
	if e := asError(err); e != nil {
		return e.Reason
	}
	return ""
}

// hostileArchives are zip files that no honest program writes.
func (l *lab) hostileArchives() {
	l.Helper()
	p := pack{
		id: "tools.zip" + strings.ToLower(l.tier+l.user), permissions: []string{"exec"},
		actions: "    - {id: x, description: X, runner: exec.echo}\n",
	}
	for name, add := range map[string]func(w *zip.Writer) error{
		"a step up":        member("../../x", 0o644, "x"),
		"an absolute name": member("/tmp/x", 0o644, "x"),
		"a backslash":      member(`..\..\x`, 0o644, "x"),
		"a link":           member("docs/link", 0o777|os.ModeSymlink, "/etc/passwd"),
		"a device":         member("docs/device", 0o644|os.ModeDevice, ""),
		"a pipe":           member("docs/pipe", 0o644|os.ModeNamedPipe, ""),
		"a name twice":     member("docs/USAGE.md", 0o644, "again"),
		"a name in case":   member("docs/usage.MD", 0o644, "again"),
		"a bomb":           bomb,
		"a NUL":            member("docs/a\x00b", 0o644, "x"),
	} {
		var buf bytes.Buffer
		w := zip.NewWriter(&buf)
		for path, text := range p.tree(l.T) {
			if err := member(path, 0o644, text)(w); err != nil {
				l.Fatal(err)
			}
		}
		if err := add(w); err != nil {
			l.Fatal(err)
		}
		if err := w.Close(); err != nil {
			l.Fatal(err)
		}
		if err := l.who.Do(l.Context(), http.MethodPost, extensionsDoor+"/install", buf.Bytes(), nil); err == nil {
			l.Errorf("an archive with %s was installed", name)
			_ = l.uninstall(l.Context(), l.who, p.id)
		}
	}
	l.recorded(l.T, "event=security_violation", "security_violation")
}

func member(name string, mode os.FileMode, text string) func(w *zip.Writer) error {
	return func(w *zip.Writer) error {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate}
		h.SetMode(mode)
		f, err := w.CreateHeader(h)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		return err
	}
}

// hostileWords go to a program that states what it was given: they must stay words.
func (l *lab) hostileWords() {
	l.Helper()
	p := pack{
		id: "tools.words" + strings.ToLower(l.tier+l.user), permissions: []string{"exec"},
		actions: "    - {id: say, description: Say, runner: exec.printf, argv: ['%s|', '{args}']}\n    - {id: one, description: One, runner: exec.ls, argv: ['{arg:0}'], args: [{name: a, required: true}]}\n",
	}
	if err := l.install(l.Context(), l.who, p, l.T); err != nil {
		l.Fatal(err)
	}
	touch := "touch " + filepath.Join(l.v.Dir, "made")
	for line, want := range map[string]string{
		" say '$(" + touch + ")'":            "$(" + touch + ")|",
		" say a '; " + touch + "'":           "a|; " + touch + "|",
		" say \"a\nb\"":                      "a\nb|",
		" say '`" + touch + "`' '| sh' '&&'": "`" + touch + "`|| sh|&&|",
	} {
		if r := l.run(l.Context(), l.who, "attacker", p.command()+line); r.Err != nil || r.Output != want {
			l.Errorf("%q: %q %v", line, r.Output, r.Err)
		}
	}
	// A mark that gives a program other rights is not kept.
	if err := l.who.Do(l.Context(), http.MethodPost, extensionsDoor+"/install", withSetuid(l.T, p), nil); err != nil {
		l.Error(err)
	} else if info, err := os.Stat(filepath.Join(l.home, "extensions", p.id, "tools", "su")); err != nil ||
		info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
		l.Errorf("%v %v", info, err)
	}
	for _, line := range []string{" -c '" + touch + "'", " one --help", " one -la", " say a\x00b", " say a\x07b", "/../../bin/sh"} {
		if r := l.run(l.Context(), l.who, "attacker", p.command()+line); r.Err == nil {
			l.Errorf("%q: it ran and said %q", line, r.Output)
		}
	}
	if err := l.uninstall(l.Context(), l.who, p.id); err != nil {
		l.Error(err)
	}
}

// withSetuid is the next version of a package, with a marked program.
func withSetuid(t *testing.T, p pack) []byte {
	t.Helper()
	p.version = "1.1.0"
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for path, text := range p.tree(t) {
		if err := member(path, 0o644, text)(w); err != nil {
			t.Fatal(err)
		}
	}
	if err := member("tools/su", 0o755|os.ModeSetuid|os.ModeSetgid, "x")(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// zeros are 120 MiB of them, compressed once, with their checksum.
var (
	zerosSum = crc32.NewIEEE()
	zeros    = sync.OnceValues(compressZeros)
)

func compressZeros() ([]byte, error) {
	var buf bytes.Buffer
	w, err := flate.NewWriter(&buf, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	for range 120 {
		if _, err := io.MultiWriter(w, zerosSum).Write(make([]byte, 1<<20)); err != nil {
			return nil, err
		}
	}
	err = w.Close()
	return buf.Bytes(), err
}

// bomb adds a file that is much larger than it seems.
func bomb(w *zip.Writer) error {
	data, err := zeros()
	if err != nil {
		return err
	}
	h := &zip.FileHeader{
		Name: "docs/bomb", Method: zip.Deflate, CompressedSize64: uint64(len(data)), UncompressedSize64: 120 << 20,
		CRC32: zerosSum.Sum32(),
	}
	h.SetMode(0o644)
	f, err := w.CreateRaw(h)
	if err == nil {
		_, err = f.Write(data)
	}
	return err
}
