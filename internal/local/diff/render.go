package diff

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"unicode"
)

// unified returns a unified diff that patch can apply, empty for equal texts.
func unified(a, b []string, ops []op) []byte {
	var out bytes.Buffer
	if len(ops) > 0 {
		out.WriteString("--- before\n+++ after\n")
	}
	for _, h := range hunks(a, b, ops) {
		fmt.Fprintf(&out, "@@ -%s +%s @@\n", span(h.a0, h.a1), span(h.b0, h.b1))
		h.each(a, b, func(sign byte, _, _ int, text string) {
			out.WriteByte(sign)
			out.WriteString(text)
			if !strings.HasSuffix(text, "\n") {
				out.WriteString("\n\\ No newline at end of file\n")
			}
		})
	}
	return out.Bytes()
}

// span returns the lines from:to, which count from 0, in the form of a hunk header.
func span(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

const style = `:root{color-scheme:light dark}
body{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;margin:1rem}
table{border-collapse:collapse;width:100%}
td{padding:0 .5rem;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere}
td.n{width:1%;text-align:right;opacity:.55;user-select:none;white-space:nowrap}
tr.add{background:#2da44e33}
tr.del{background:#cf222e33}
tr.hunk td{padding-top:.75rem;opacity:.7}
`

// page returns a self-contained HTML document. The texts are escaped, and a content policy
// forbids scripts and requests.
func page(a, b []string, ops []op, counts result) []byte {
	var out bytes.Buffer
	out.WriteString("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n" +
		"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n" +
		"<meta name=\"viewport\" content=\"width=device-width\">\n<title>Changes</title>\n<style>\n" + style + "</style></head>\n<body>\n")
	fmt.Fprintf(&out, "<p>%d added, %d removed</p>\n<table>\n", counts.Added, counts.Removed)
	rows, hidden := 0, 0
	for _, h := range hunks(a, b, ops) {
		if rows < maxRows {
			fmt.Fprintf(&out, "<tr class=\"hunk\"><td class=\"n\"></td><td class=\"n\"></td><td>@@ -%s +%s @@</td></tr>\n", span(h.a0, h.a1),
				span(h.b0, h.b1))
		}
		h.each(a, b, func(sign byte, before, after int, text string) {
			if rows++; rows > maxRows {
				hidden++
				return
			}
			class := map[byte]string{' ': "same", '-': "del", '+': "add"}[sign]
			text, short := cut(strings.TrimRight(text, "\r\n"), maxLine)
			if short {
				text += "…"
			}
			fmt.Fprintf(&out, "<tr class=\"%s\"><td class=\"n\">%s</td><td class=\"n\">%s</td><td>%c%s</td></tr>\n", class, digits(before),
				digits(after), sign, html.EscapeString(visible(text)))
		})
	}
	out.WriteString("</table>\n")
	if len(ops) == 0 {
		out.WriteString("<p>The texts are equal.</p>\n")
	}
	if hidden > 0 {
		fmt.Fprintf(&out, "<p>%d more lines are not shown.</p>\n", hidden)
	}
	out.WriteString("</body></html>\n")
	return out.Bytes()
}

// visible replaces control characters (except tab) and those that change the direction of
// text with U+FFFD, so that a line is shown as it is stored.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) || r < ' ' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, s)
}

// digits returns n in decimal, "" for 0.
func digits(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
