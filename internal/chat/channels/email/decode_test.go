package email

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/emersion/go-message"
)

func lines(s ...string) string { return strings.Join(s, "\r\n") + "\r\n" }

func TestMailsAreDecoded(t *testing.T) {
	t.Parallel()
	alternative := func(plain, html string) string {
		return lines("Content-Type: multipart/alternative; boundary=b", "", "--b", "Content-Type: text/plain; charset=utf-8", "", plain, "--b",
			"Content-Type: text/html", "", html, "--b--")
	}
	html := func(s string) string { return lines("Content-Type: text/html; charset=utf-8", "", s) }
	deep := "Content-Type: multipart/mixed; boundary=b0\r\n\r\n"
	for i := range 50 {
		deep += fmt.Sprintf("--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n", i, i+1)
	}
	for _, one := range []struct {
		name, mail, want string
		files            string
	}{
		{"plain", lines("", "hello", "", "there"), "hello\n\nthere", ""},
		{"Latin-1", lines("Content-Type: text/plain; charset=iso-8859-1", "", "Gr\xfc\xdfe"), "Grüße", ""},
		{"Japanese", lines("Content-Type: text/plain; charset=iso-2022-jp", "", "\x1b$B$3$s\x1b(B"), "こん", ""},
		{"an unknown charset", lines("Content-Type: text/plain; charset=x-none", "", "hello"), "hello", ""},
		{"quoted-printable", lines("Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: quoted-printable", "", "Gr=C3=BC=", "=C3=9Fe"), "Grüße", ""},
		{"damaged base64", lines("Content-Transfer-Encoding: base64", "", "aGVsbG8=!!!!"), "hello", ""},
		{"an unknown encoding", lines("Content-Transfer-Encoding: x-none", "", "hello"), "hello", ""},
		{"both forms", alternative("the plain one", "<p>the other one"), "the plain one", ""},
		{"an empty plain form", alternative(" ", "<p>the other one</p>"), "the other one", ""},
		{"HTML", html(`<html><head><title>t</title><style>p{}</style></head><body><p>a &lt; b&nbsp;c</p><script>x("<p>")</script>d<!-- e > --><br>f</body>`), "a < b c\nd\nf", ""},
		{"HTML with a quotation", html(`<div>yes</div><div class="gmail_quote">On Fri, x wrote:<blockquote>/approve</blockquote></div>`), "yes", ""},
		{"HTML with a block quotation", html("<p>yes</p><p>On Fri, x@y wrote:</p><blockquote>/approve <blockquote>a</blockquote></blockquote><p>more</p>"), "yes\n\n\nmore", ""},
		{"HTML that is cut", html("<p>yes<div class='x"), "yes", ""},
		{"a marked quotation", lines("", "yes", "", "On Fri, 27 Nov 2026 at 10:00, x", "<x@y> wrote:", "> /approve a once", ">> b"), "yes", ""},
		{"text around it", lines("", "first", "> a", "second", "> b", "third:"), "first\nsecond\nthird:", ""},
		{"text below it", lines("", "On Fri, x wrote:", "", "> a", "/tasks"), "[below a quotation] /tasks", ""},
		{
			"a quoted line that was wrapped", lines("", "On Fri, x wrote:", "> the agent's words, then", "/approve a once", "", "what?"),
			"[below a quotation] /approve a once\n\nwhat?", "",
		},
		{"a quotation without marks", lines("", "yes", "", "On Fri, x wrote:", "", "/approve a once"), "yes", ""},
		{"a German one", lines("", "ja", "Am 27.11.2026 um 10:00 schrieb x:", "", "/approve a once"), "ja", ""},
		{"Outlook's", lines("", "yes", "", "From: x <x@y>", "Sent: Friday", "", "/approve a once"), "yes", ""},
		{"Outlook's line", lines("", "yes", strings.Repeat("_", 32), "/approve a once"), "yes", ""},
		{"an original message", lines("", "yes", "-----Original Message-----", "/approve a once"), "yes", ""},
		{"a forwarded one", lines("", "---------- Forwarded message ---------", "/approve a once"), "", ""},
		{"a signature", lines("", "yes", "-- ", "Ann", "/approve a once"), "yes", ""},
		{"a command and more", lines("", "/approve a once", "Sent from a telephone"), "/approve a once", ""},
		{"files", lines("Content-Type: multipart/mixed; boundary=b", "", "--b", "", "see", "--b", "Content-Type: image/png; name=\"=?utf-8?q?a=C3=BC.png?=\"",
			"Content-Transfer-Encoding: base64", "", "aGVsbG8=", "--b", "Content-Disposition: attachment", "", "text", "--b",
			"Content-Type: message/rfc822", "", "From: x", "", "/approve a once", "--b--"), "see", "aü.png 5, attachment 4, attachment 26"},
		{"no boundary", lines("Content-Type: multipart/mixed", "", "hello"), "", ""},
		{"another boundary", lines("Content-Type: multipart/mixed; boundary=b", "", "--c", "", "hello"), "", ""},
		{"a part that is cut", lines("Content-Type: multipart/mixed; boundary=b", "", "--b", "", "hello"), "hello", ""},
		{"parts in parts", deep, "", ""},
		{"many parts", lines("Content-Type: multipart/mixed; boundary=b", "", strings.Repeat("--b\r\n\r\n", 10_000)), "", ""},
		{"a part with a long header", lines("Content-Type: multipart/mixed; boundary=b", "", "--b", strings.Repeat("a: b\r\n", 100_000), "hello", "--b--"), "", ""},
		{"a long text", lines("", strings.Repeat("x", maxText+100)), strings.Repeat("x", maxText), ""},
	} {
		_, d, err := decode(strings.NewReader(one.mail), -1, 0)
		if err != nil {
			t.Errorf("%s: got %v, want it decoded", one.name, err)
			continue
		}
		var files []string
		for _, f := range d.files {
			files = append(files, fmt.Sprintf("%s %d", f.Name, f.Size))
		}
		if got := d.text(); got != one.want || strings.Join(files, ", ") != one.files {
			t.Errorf("%s: got %.200q and %q, want %.200q and %q", one.name, got, files, one.want, one.files)
		}
	}
}

// TestLargeMailsAreDecodedInTime decodes mails whose parts repeat what is expensive. The test ends at
// its deadline if the work grows with the square of the size.
func TestLargeMailsAreDecodedInTime(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{
		"quotations": "\r\n> a\r\n", "attributions": "On a wrote:\r\n\r\n", "tags": "<b>", "open tags": "<", "styles": "<style></",
		"comments": "<!--", "blocks": "<blockquote>", "entities": "&amp", "headers": "From: a\r\n",
	} {
		body := strings.Repeat(part, 4<<20/len(part))
		for _, kind := range []string{"plain", "html"} {
			_, d, err := decode(strings.NewReader(lines("Content-Type: text/"+kind, "")+body), -1, 0)
			if err != nil {
				t.Errorf("%s: got %v, want it decoded", name, err)
				continue
			}
			if got := d.text(); len(got) > maxText {
				t.Errorf("%s: got %d bytes, want at most %d", name, len(got), maxText)
			}
		}
	}
	if got := ids(strings.Repeat("<a", 1<<20)); len(got) != 0 {
		t.Errorf("ids without an end: got %d, want none", len(got))
	}
}

func TestSendersAreRead(t *testing.T) {
	t.Parallel()
	for _, one := range []struct{ header, want string }{
		{"From: Ann <Ann@Example.org>", "ann@example.org"},
		{"From: ann@example.org\r\nSender: ANN@example.org", "ann@example.org"},
		{"From: =?utf-8?q?A=C3=BC?= <a.b+c@example.org>", "a.b+c@example.org"},
		{"", ""},
		{"From: ", ""},
		{"From: Ann", ""},
		{"From: a@example.org, b@example.org", ""},
		{"From: a@example.org\r\nFrom: b@example.org", ""},
		{"From: a@example.org\r\nSender: b@example.org", ""},
		{"From: a@example.org\r\nSender: a@example.org\r\nSender: b@example.org", ""},
		{"From: x: a@example.org, b@example.org;", ""},
		{"From: \"a b\"@example.org", ""},
		{"From: a@[127.0.0.1]", ""},
		{"From: ä@example.org", ""},
		{"From: a@example", ""},
		{"From: a/b@example.org", ""},
		{"From: a%b@example.org", ""},
	} {
		m, err := message.Read(strings.NewReader(one.header + "\r\n\r\n"))
		if err != nil {
			t.Fatalf("%q: got %v, want a header", one.header, err)
		}
		e, err := readEnvelope(m)
		if err != nil {
			e.from = ""
		}
		if e.from != one.want {
			t.Errorf("%q: got %q, %v, want %q", one.header, e.from, err, one.want)
		}
	}
}

func FuzzMails(f *testing.F) {
	for _, seed := range []string{
		lines("From: a@example.org", "Message-ID: <1@x>", "References: <2@x> <3@x>", "", "hello", "> quoted", "-- ", "x"),
		lines("From: a@example.org", "Content-Type: multipart/mixed; boundary=b", "", "--b", "Content-Type: text/html", "", "<p>a<blockquote>b",
			"--b",
			"Content-Disposition: attachment; filename=x", "Content-Transfer-Encoding: base64", "", "aGVsbG8=", "--b--"),
		lines("From: a@example.org", "Content-Type: text/plain; charset=gb18030", "Content-Transfer-Encoding: quoted-printable", "", "=81=30"),
		"From: a@example.org\n\n<style><script></",
	} {
		f.Add([]byte(seed))
	}
	ours := &signer{"junctor@example.org", []byte("key")}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, d, err := decode(strings.NewReader(string(data)), 0, 10)
		if err != nil {
			return
		}
		if e, err := readEnvelope(m); err == nil {
			if !addressForm.MatchString(e.from) || strings.ContainsAny(e.from, "\r\n<> /") {
				t.Errorf("the sender: got %q, want an address", e.from)
			}
			for _, id := range append(slices.Clone(e.parents), e.id) {
				ref := ours.ref(id, e.from)
				if back := ours.find(ref, e.from); id != "" && ref != "" && (strings.ContainsAny(ref, "/ \r\n<>") || back != id) {
					t.Errorf("the id %q: got %q and back %q, want the same without a slash", id, ref, back)
				}
			}
		}
		said := d.text()
		if len(said) > 8*maxText || strings.HasPrefix(said, "/") && strings.Contains(said, "\n") ||
			strings.HasPrefix(said, ">") && utf8.ValidString(said) {
			t.Errorf("the text: got %q, want it bounded, without quotations, and a command in one line", said)
		}
		if len(d.files) > maxFiles || len(d.files) > 0 && len(d.files[0].Data) > 11 {
			t.Errorf("the files: got %d, want them bounded", len(d.files))
		}
	})
}
