package diff

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
)

var update = flag.Bool("update", false, "write the golden files")

func call(t testing.TB, cfg Config, before, after, format string) (result, error) {
	t.Helper()
	h := host.New(host.Config{})
	if err := h.Register(Functions(cfg)...); err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(map[string]string{"before": before, "after": after, "format": format})
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.Invoke(t.Context(), capability.Call{Action: "diff.render", Input: in})
	var out result
	if err == nil {
		err = json.Unmarshal(res.Value, &out)
	}
	return out, err
}

func decodeURL(t testing.TB, url, mediaType string) string {
	t.Helper()
	data, found := strings.CutPrefix(url, "data:"+mediaType+";charset=utf-8;base64,")
	doc, err := base64.StdEncoding.DecodeString(data)
	if !found || err != nil {
		t.Fatalf("%.60s: %v; want found = true, no error", url, err)
	}
	return string(doc)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	long := func(change string) string {
		var b strings.Builder
		for i := range 40 {
			line := "line " + string(rune('a'+i%26))
			if i == 5 || i == 9 || i == 30 {
				line += change
			}
			b.WriteString(line + "\n")
		}
		return b.String()
	}
	for name, c := range map[string]struct{ before, after string }{
		"equal":   {"same\n", "same\n"},
		"new":     {"", "one\ntwo\n"},
		"gone":    {"one\ntwo\n", ""},
		"newline": {"one\ntwo", "one\ntwo\n"},
		"hunks":   {long(""), long(" changed")},
		"markup":  {"<script>alert(1)</script>\n&amp;\r\n", "<img src=x onerror=alert(1)>\n&amp;\r\n\"quotes\" 'n' ünïcode \u202e\n"},
	} {
		for format, mediaType := range map[string]string{"unified": "text/x-diff", "html": "text/html"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				t.Parallel()
				out, err := call(t, Config{}, c.before, c.after, format)
				if err != nil {
					t.Fatal(err)
				}
				got := decodeURL(t, out.URL, mediaType)
				if format == "unified" && *out.Text != got {
					t.Error(`the text is not what the URL holds; want not (format == "unified" && *out.Text != got)`)
				}
				file := "testdata/" + name + "." + format
				if *update {
					if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), got); diff != "" {
					t.Errorf("diff (-want +got):\n%s", diff)
				}
				if format == "html" && (strings.Contains(got, "<script") || strings.Contains(got, "<img")) {
					t.Error(`markup of the texts is markup of the page; want not (format == "html" && (strings.Contains(got, ` +
						`"<script") || strings.Contains(got, "<img")))`)
				}
			})
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, format string
		code           capability.Code
	}{
		"large": {strings.Repeat("x", MaxText+1), "", capability.CodeTooLarge}, "png": {"x", "png", capability.CodeInvalidInput},
		"other": {"x", "pdf", capability.CodeInvalidInput},
	} {
		if _, err := call(t, Config{}, c.before, "y", c.format); err == nil || capability.AsError(err).Code != c.code {
			t.Errorf("%s: %v; want an error, capability.AsError(err).Code = %v", name, err, c.code)
		}
	}
	full := Config{Keep: func(context.Context, string, string, []byte) (string, error) { return "", errors.New("disk full") }}
	if _, err := call(t, full, "x", "y", "html"); err == nil || capability.AsError(err).Code != capability.CodeFailed {
		t.Errorf("%v; want an error, capability.AsError(err).Code = capability.CodeFailed", err)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	var name, media string
	out, err := call(t, Config{Keep: func(_ context.Context, n, m string, data []byte) (string, error) {
		name, media = n, m
		return "blob:1", nil
	}}, "x\n", "y\nz\n", "html")
	if err != nil || out.ArtifactRef != "blob:1" || out.URL != "" || name != "changes.html" || media != "text/html; charset=utf-8" ||
		out.Added != 2 || out.Removed != 1 {
		t.Errorf("out = %+v, name = %q, media = %q, err = %v; want blob:1, changes.html, HTML, 2 added, 1 removed", out, name, media, err)
	}
}

// apply rebuilds after from before and the ops.
func apply(a, b []string, ops []op) []string {
	var out []string
	at := 0
	for _, o := range ops {
		out = append(append(out, a[at:o.a0]...), b[o.b0:o.b1]...)
		at = o.a1
	}
	return append(out, a[at:]...)
}

// longest is the length of the longest common subsequence, the slow way.
func longest(a, b []string) int {
	row := make([]int, len(b)+1)
	for i := range a {
		corner := 0
		for j := range b {
			above := row[j+1]
			if a[i] == b[j] {
				row[j+1] = corner + 1
			} else {
				row[j+1] = max(row[j+1], row[j])
			}
			corner = above
		}
	}
	return row[len(b)]
}

func TestTheScriptIsShortest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		make := func() []string {
			out := make([]string, rng.IntN(30))
			for i := range out {
				out[i] = string(rune('a' + rng.IntN(1+rng.IntN(6))))
			}
			return out
		}
		a, b := make(), make()
		ops, err := compare(t.Context(), a, b)
		if err != nil || !slices.Equal(apply(a, b, ops), b) {
			t.Fatalf("%q %q: %v %v; want no error, apply(a, b, ops) = %v", a, b, ops, err, b)
		}
		kept := len(a)
		for _, o := range ops {
			kept -= o.a1 - o.a0
		}
		if want := longest(a, b); kept != want {
			t.Fatalf("%q %q: %d lines kept, %d could be; want kept = %v", a, b, kept, want, want)
		}
	}
}

func TestTextsThatHaveNothingInCommonEndInTime(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	text := func() string {
		b := make([]byte, MaxText)
		for i := range b {
			b[i] = "\nab"[rng.IntN(3)]
		}
		return string(b)
	}
	before, after := text(), text()
	for _, format := range []string{"unified", "html"} {
		out, err := call(t, Config{}, before, after, format)
		if err != nil || len(out.URL) > 16<<20 {
			t.Errorf("err = %v, want nil; len(out.URL) = %v, want at most 16<<20; format = %q", err, len(out.URL), format)
		}
	}
	a, b := split(before), split(after)
	ops, err := compare(t.Context(), a, b)
	if err != nil || !slices.Equal(apply(a, b, ops), b) {
		t.Errorf("the texts cannot be rebuilt %v; want no error, apply(a, b, ops) = %v", err, b)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := compare(ended, a, b); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want err is context.Canceled", err)
	}
	if ops := whole(a, b); !slices.Equal(apply(a, b, ops), b) {
		t.Errorf("not rebuilt from the whole; want apply(a, b, ops) = %v", b)
	}
}

func FuzzCompare(f *testing.F) {
	f.Add("a\nb\n", "b\nc")
	f.Fuzz(func(t *testing.T, before, after string) {
		a, b := split(before), split(after)
		if strings.Join(a, "") != before {
			t.Fatalf(`lines lost; want strings.Join(a, "") = %v`, before)
		}
		ops, err := compare(t.Context(), a, b)
		if err != nil || !slices.Equal(apply(a, b, ops), b) {
			t.Fatalf("%v %v; want no error, apply(a, b, ops) = %v", ops, err, b)
		}
		unified(a, b, ops)
		page(a, b, ops, result{})
	})
}

func BenchmarkCompare(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	var before, after []string
	for range 20_000 {
		line := strings.Repeat("x", 20+rng.IntN(20))
		before = append(before, line)
		if rng.IntN(50) > 0 {
			after = append(after, line)
		}
	}
	for b.Loop() {
		if _, err := compare(b.Context(), before, after); err != nil {
			b.Fatal(err)
		}
	}
}
