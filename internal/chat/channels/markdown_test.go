package channels_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/chat/channels"
)

func TestMarkdownAsHTML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ md, want string }{
		{"plain & <text>", "plain &amp; &lt;text&gt;"},
		{"# Result\n\nIt is **green**, *really*.", "<b>Result</b>\n\nIt is <b>green</b>, <i>really</i>."},
		{"run `a < b`:\n\n```go\nif a < b {\n}\n```\nend", "run <code>a &lt; b</code>:\n\n<pre>if a &lt; b {\n}\n</pre>\nend"},
		{"- one\n- two\n  - three\n\n1. a\n2. b", "• one\n• two\n   • three\n\n1. a\n2. b"},
		{"> said\n> > before", "<blockquote>said\n\n&gt; before\n\n</blockquote>"},
		{"[the bank](https://evil.example/?a=1&b)", "the bank (https://evil.example/?a=1&amp;b)"},
		{"<https://example.org> ![logo](x.png)", "https://example.org logo (x.png)"},
		{"[ref]: https://example.org 'hidden'\n\n[ref]", "[ref]: https://example.org &#39;hidden&#39;\n\n[ref]"},
		{"<b onclick=1>x</b>\n<!-- hidden -->", "&lt;b onclick=1&gt;x&lt;/b&gt;\n\n&lt;!-- hidden --&gt;"},
		{"2 \\* 3 &lt; 7  \nnext_word_here", "2 * 3 &lt; 7\nnext_word_here"},
		{"<script>\nalert(1)\n</script>", "&lt;script&gt;\nalert(1)\n&lt;/script&gt;"},
		{"a | b\n--|--\n1 | 2", "a | b\n--|--\n1 | 2"},
		{"", ""},
	} {
		if got := channels.HTML(c.md, "\n"); got != c.want {
			t.Errorf("%q: got %q, want %q", c.md, got, c.want)
		}
	}
	for _, long := range []string{strings.Repeat("1. ", 1000), strings.Repeat("a", 10_000)} {
		if got := channels.HTML(long, "\n"); got != "" {
			t.Errorf("%.10q…: got %d bytes, want none", long, len(got))
		}
	}
	if got, want := channels.HTML("a\nb\n\nc", "<br>"), "a<br>b<br><br>c"; got != want {
		t.Errorf("line breaks: got %q, want %q", got, want)
	}
}

var tag = regexp.MustCompile(`</?[^>]*>`)

// FuzzMarkdown requires that the tags are of the known ones and closed in order.
func FuzzMarkdown(f *testing.F) {
	for _, s := range []string{"# a\n> b\n>> c\n- d\n  1. `e`\n***\n~~f~~ [g](h \"i\") <j@k.l> &amp; <m>", "```x\ny", "**a *b** c*", "\x00\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, md string) {
		if len(md) > 4096 {
			return
		}
		got := channels.HTML(md, "\n")
		var open []string
		for _, one := range tag.FindAllString(got, -1) {
			name, closes := strings.CutPrefix(strings.Trim(one, "<>"), "/")
			switch {
			case !slices.Contains([]string{"b", "i", "code", "pre", "blockquote"}, name):
				t.Fatalf("%q: got the tag %s, want one of the known ones", md, one)
			case !closes:
				open = append(open, name)
			case len(open) == 0 || open[len(open)-1] != name:
				t.Fatalf("%q: got %s inside of %v, want tags closed in order", md, one, open)
			default:
				open = open[:len(open)-1]
			}
		}
		if len(open) > 0 {
			t.Fatalf("%q: got %v open at the end, want none", md, open)
		}
	})
}
