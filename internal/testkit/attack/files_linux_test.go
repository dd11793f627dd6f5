package attack

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// hostileArtifacts: what a run leaves for others is looked at without following
// anything, waiting for anything or believing a name.
func hostileArtifacts(l *lab) {
	r := l.task("artifacts")
	if r.Err != nil || !strings.Contains(r.Output, "made") || r.Took > 15*time.Second {
		l.Fatalf("%v after %s: %s", r.Err, r.Took, r.Output)
	}
	sum := sha256.Sum256([]byte(canaryText))
	good := false
	for _, a := range r.Artifacts {
		good = good || strings.HasSuffix(a.Name, "good.txt")
		if a.SHA256 == hex.EncodeToString(sum[:]) || a.Size > 32<<20 ||
			strings.ContainsFunc(a.Name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
			l.Errorf("%+v was kept", a)
		}
	}
	if !good || len(r.Artifacts) > 64 {
		l.Errorf("%d artifacts, the good one among them: %v", len(r.Artifacts), good)
	}
}

// badFiles: the runners that read the working folder for an extension read what is
// in it, and nothing that it leads to.
func badFiles(l *lab) {
	l.p.version = "1.1.0"
	l.p.actions = "    - {id: ask, description: Ask, runner: db.query}\n    - {id: explain, description: Explain, runner: analyze.response}\n"
	if err := l.install(l.Context(), l.who, l.p, l.T); err != nil {
		l.Fatal(err)
	}
	for _, kind := range []string{"link", "new", "pipe", "broken", "empty", "endless"} {
		l.v.Names = []string{kind}
		if r := l.task("badfiles"); r.Err != nil {
			l.Fatalf("%s: %v %s", kind, r.Err, r.Output)
		}
		r := l.run(l.Context(), l.who, "files", l.p.command()+" ask 'select * from sqlite_master'")
		if r.Err == nil && kind != "empty" || strings.Contains(r.Output, canaryText) || r.Took > 40*time.Second {
			l.Errorf("%s: after %s: %q %v", kind, r.Took, r.Output, r.Err)
		}
	}
	for _, file := range []string{"text", "pipe", "../manifest.json", l.v.File, "artifacts/../../../x"} {
		r := l.run(l.Context(), l.who, "files", l.p.command()+" explain --file "+file)
		if r.Err == nil || strings.Contains(r.Output, canaryText) || r.Took > 10*time.Second {
			l.Errorf("explain %s: after %s: %q %v", file, r.Took, r.Output, r.Err)
		}
	}
	if _, err := os.Lstat(filepath.Join(l.v.Dir, "made")); err == nil {
		l.Error("something was made outside")
	}
}
