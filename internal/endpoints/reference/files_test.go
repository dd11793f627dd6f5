package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestFilesStayBeneathTheRoot(t *testing.T) {
	r := start(t)
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(r.root, "out")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"../x", "a/../../x", "/etc/hostname", outside + "/secret", "out/secret"} {
		if _, err := r.try("fs.readText", "", `"path":"`+p+`"`); err == nil {
			t.Errorf("%s was read; want an error", p)
		}
		if _, err := r.try("fs.writeText", "", `"path":"`+p+`","text":"x"`); err == nil {
			t.Errorf("%s was written; want an error", p)
		} else if strings.Contains(err.Error(), r.root) {
			t.Errorf("the root's host path is in %v; want err.Error() without %v", err, r.root)
		}
	}
	if _, err := r.try("fs.writeText", "", `"path":"out","text":"x"`); codeOf(t, err) != capability.CodeDenied {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeDenied", err)
	}
	if _, err := r.try("fs.readText", "", `"path":"a\u0000b"`); codeOf(t, err) != capability.CodeInvalidInput {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeInvalidInput", err)
	}
}

func TestFilesAreWrittenReadAndListed(t *testing.T) {
	r := start(t)
	if out := r.call("fs.writeText", "", `"path":"docs/été.txt","text":"déjà vu"`); out["bytesWritten"] != 9.0 ||
		out["path"] != "docs/été.txt" {
		t.Errorf(`%v; want out["bytesWritten"] = 9.0, out["path"] = "docs/été.txt"`, out)
	}
	if _, err := r.try("fs.writeText", "", `"path":"docs/été.txt","text":"x","overwrite":false`); codeOf(t, err) != capability.CodeConflict {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeConflict", err)
	}
	r.call("fs.writeText", "", `"path":"new.txt","text":"x","overwrite":false`)
	if _, err := r.try("fs.writeText", "", `"path":"no/such/x","text":"x","createDirectories":false`); codeOf(t,
		err) != capability.CodeNotFound {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeNotFound", err)
	}
	// The cut would fall inside a letter.
	if out := r.call("fs.readText", "", `"path":"docs/été.txt","maxBytes":2`); out["text"] != "d" || out["truncated"] != true ||
		out["size"] != 9.0 {
		t.Errorf(`%v; want out["text"] = "d", out["truncated"] = true, out["size"] = 9.0`, out)
	}
	if out := r.call("fs.readText", "", `"path":"`+filepath.ToSlash(r.root)+`/new.txt"`); out["text"] != "x" || out["path"] != "new.txt" {
		t.Errorf(`%v; want out["text"] = "x", out["path"] = "new.txt"`, out)
	}
	if _, err := r.try("fs.readText", "", `"path":"docs"`); codeOf(t, err) != capability.CodeInvalidInput {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeInvalidInput", err)
	}
	big := make([]byte, maxRead+1)
	for i := range big {
		big[i] = 'a'
	}
	for name, data := range map[string][]byte{"big": big, "bin": {0xff, 0xfe}, ".hid": nil, "b.o": nil} {
		if err := os.WriteFile(filepath.Join(r.root, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.try("fs.readText", "", `"path":"big"`); codeOf(t, err) != capability.CodeTooLarge {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeTooLarge", err)
	}
	if _, err := r.try("fs.readText", "", `"path":"bin"`); codeOf(t, err) != capability.CodeFailed {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeFailed", err)
	}
	names := func(members string) string {
		out := r.call("fs.list", "", members)
		var list []string
		for _, e := range out["entries"].([]any) {
			list = append(list, at(e, "path").(string))
		}
		if out["truncated"] == true {
			list = append(list, "…")
		}
		return strings.Join(list, " ")
	}
	for members, want := range map[string]string{
		``:                                   "b.o big bin docs new.txt",
		`"path":"docs"`:                      "docs/été.txt",
		`"limit":2`:                          "b.o big …",
		`"ignore":["*.o","b?n","do*"]`:       "big new.txt",
		`"includeHidden":true`:               ".hid b.o big bin docs new.txt",
		`"path":"docs","ignore":["docs/**"]`: "",
	} {
		if got := names(members); got != want {
			t.Errorf("%s: %s, want %s", members, got, want)
		}
	}
}
