package channels

import (
	"fmt"
	"html"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// HTML returns a text in CommonMark as HTML with the tags b, i, code, pre and blockquote, which chat
// services accept. br is a line break. Links show their address, so that their text does not hide it,
// and HTML in the text is shown letter by letter. The result is "" for a text that is so long, or nested so deep, that it is better sent as it is.
func HTML(md, br string) string {
	if len(md) > maxMarkdown {
		return ""
	}
	// Without its transformers, the parser leaves definitions of links where they are.
	p := parser.NewParser(parser.WithBlockParsers(parser.DefaultBlockParsers()...), parser.WithInlineParsers(parser.DefaultInlineParsers()...))
	w := markdown{src: []byte(md), br: br}
	w.blocks(p.Parse(text.NewReader(w.src)), "")
	if w.out.Len() > 4*len(md)+maxMarkup {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimSuffix(w.out.String(), br), br))
}

type markdown struct {
	src    []byte
	br     string
	out    strings.Builder
	quoted bool // services do not nest blockquotes
}

// blocks writes the blocks of a node. indent begins each line of a list in a list.
func (w *markdown) blocks(of ast.Node, indent string) {
	for n := of.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Heading:
			w.wrap("b", n)
			w.gap(of)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			w.out.WriteString("<pre>")
			w.lines(n)
			w.out.WriteString("</pre>" + w.br)
		case *ast.HTMLBlock:
			w.lines(n)
			if n.HasClosure() {
				w.out.WriteString(html.EscapeString(string(n.ClosureLine.Value(w.src))))
			}
			w.out.WriteString(w.br)
		case *ast.Blockquote:
			if w.quoted {
				w.out.WriteString("&gt; ")
				w.blocks(n, indent)
				continue
			}
			w.quoted = true
			w.out.WriteString("<blockquote>")
			w.blocks(n, indent)
			w.out.WriteString("</blockquote>" + w.br)
			w.quoted = false
		case *ast.List:
			number := n.Start
			for item := n.FirstChild(); item != nil; item = item.NextSibling() {
				mark := "• "
				if n.IsOrdered() {
					mark = fmt.Sprintf("%d. ", number)
					number++
				}
				w.out.WriteString(indent + mark)
				w.blocks(item, indent+"   ")
			}
			w.gap(n.Parent())
		case *ast.ThematicBreak:
			w.out.WriteString("———" + w.br)
		default: // a paragraph
			w.inlines(n)
			w.gap(of)
		}
	}
}

// gap ends a block: with an empty line, except in a list.
func (w *markdown) gap(in ast.Node) {
	want := w.br
	if in.Kind() != ast.KindListItem {
		want += w.br
	}
	for !strings.HasSuffix(w.out.String(), want) {
		w.out.WriteString(w.br)
	}
}

func (w *markdown) lines(n ast.Node) {
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		w.out.WriteString(html.EscapeString(string(line.Value(w.src))))
	}
}

func (w *markdown) wrap(tag string, n ast.Node) {
	w.out.WriteString("<" + tag + ">")
	w.inlines(n)
	w.out.WriteString("</" + tag + ">")
}

func (w *markdown) inlines(of ast.Node) {
	for n := of.FirstChild(); n != nil; n = n.NextSibling() {
		switch n := n.(type) {
		case *ast.Text:
			value := n.Value(w.src)
			if !n.IsRaw() {
				value = util.UnescapePunctuations(value)
			}
			w.out.WriteString(html.EscapeString(html.UnescapeString(string(value))))
			if n.HardLineBreak() || n.SoftLineBreak() {
				w.out.WriteString(w.br)
			}
		case *ast.String:
			w.out.WriteString(html.EscapeString(string(n.Value)))
		case *ast.CodeSpan:
			w.out.WriteString("<code>")
			for c := n.FirstChild(); c != nil; c = c.NextSibling() {
				if t, ok := c.(*ast.Text); ok {
					w.out.WriteString(html.EscapeString(strings.ReplaceAll(string(t.Value(w.src)), "\n", " ")))
				}
			}
			w.out.WriteString("</code>")
		case *ast.Emphasis:
			w.wrap(map[int]string{1: "i", 2: "b"}[n.Level], n)
		case *ast.Link:
			w.inlines(n)
			w.out.WriteString(" (" + html.EscapeString(string(n.Destination)) + ")")
		case *ast.Image:
			w.inlines(n)
			w.out.WriteString(" (" + html.EscapeString(string(n.Destination)) + ")")
		case *ast.AutoLink:
			w.out.WriteString(html.EscapeString(string(n.URL(w.src))))
		case *ast.RawHTML:
			for i := range n.Segments.Len() {
				segment := n.Segments.At(i)
				w.out.WriteString(html.EscapeString(string(segment.Value(w.src))))
			}
		default:
			w.inlines(n)
		}
	}
}
