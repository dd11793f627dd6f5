package email

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-message"
	_ "github.com/emersion/go-message/charset" // all charsets
	"github.com/emersion/go-message/mail"

	"github.com/junctor-run/junctor/internal/chat/channels"
)

const defaultName = "attachment"

var (
	// addressForm is the one form of an address that is taken: lower-case, without quotes or a name.
	addressForm = regexp.MustCompile(`^[a-z0-9!#$&'*+=^_{|}~-]+(\.[a-z0-9!#$&'*+=^_{|}~-]+)*@[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$`)

	errHeader    = errors.New("the header of a part is too long")
	errMalformed = errors.New("the sender of the mail is not one address")
)

// envelope is what the header of a mail contains.
type envelope struct {
	from, name  string
	id, subject string
	parents     []string // ids of the mails that it answers, the newest last
	date        time.Time
	automatic   bool // a program sent it, or a mailing list
}

// thread returns the id of the first mail of a conversation.
func (e *envelope) thread() string {
	if len(e.parents) > 0 {
		return e.parents[0]
	}
	return e.id
}

// readEnvelope reads the header of a mail. The error is errMalformed if the mail does not have
// exactly one sender.
func readEnvelope(m *message.Entity) (e envelope, err error) {
	h := mail.Header{Header: m.Header}
	e.automatic = automatic(&h)
	e.subject, _ = h.Subject()
	e.date, _ = h.Date()
	if ids := ids(h.Get("Message-Id")); len(ids) > 0 {
		e.id = ids[0]
	}
	e.parents = ids(h.Get("References"))
	for _, id := range ids(h.Get("In-Reply-To")) {
		if !slices.Contains(e.parents, id) {
			e.parents = append(e.parents, id)
		}
	}
	from, err := h.AddressList("From")
	if err != nil || len(from) != 1 || count(&h, "From") != 1 || count(&h, "Sender") > 1 {
		return e, errMalformed
	}
	e.from, e.name = strings.ToLower(from[0].Address), from[0].Name
	if !addressForm.MatchString(e.from) || len(e.from) > maxID {
		return e, errMalformed
	}
	if count(&h, "Sender") == 1 {
		by, err := h.AddressList("Sender")
		if err != nil || len(by) != 1 || strings.ToLower(by[0].Address) != e.from {
			return e, errMalformed
		}
	}
	return e, nil
}

func count(h *mail.Header, key string) int {
	fields := h.FieldsByKey(key)
	return fields.Len()
}

// ids returns the ids of mails in a header, without brackets.
func ids(header string) (list []string) {
	for found := true; found && len(list) < maxParents; {
		var id string
		_, header, _ = strings.Cut(header, "<")
		if id, header, found = strings.Cut(header, ">"); found && validID(id) {
			list = append(list, id)
		}
	}
	return list
}

func validID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' || r == '<' || r == '>' })
}

// automatic reports whether a program or a mailing list sent a mail, so that answers would go round
// for ever or to many people (RFC 3834).
func automatic(h *mail.Header) bool {
	auto := strings.ToLower(strings.TrimSpace(h.Get("Auto-Submitted")))
	kind, _, _ := h.ContentType()
	if auto != "" && auto != "no" || kind == "multipart/report" || strings.TrimSpace(h.Get("Return-Path")) == "<>" {
		return true
	}
	switch strings.ToLower(strings.TrimSpace(h.Get("Precedence"))) {
	case "bulk", "junk", "list", "auto_reply":
		return true
	}
	marks := []string{"List-Id", "List-Post", "List-Unsubscribe", "X-Autoreply", "X-Autorespond", "X-Failed-Recipients"}
	return slices.ContainsFunc(marks, h.Has)
}

// guard bounds the headers of parts, which the library reads whole.
type guard struct {
	r    io.Reader
	left int64
}

func (g *guard) Read(p []byte) (int, error) {
	if g.left <= 0 {
		return 0, errHeader
	}
	n, err := g.r.Read(p[:min(int64(len(p)), g.left)])
	g.left -= int64(n)
	return n, err
}

// decoder reads the parts of one mail. Parts that cannot be decoded are read as far as they can be.
type decoder struct {
	guard       *guard
	parts       int
	plain, html bytes.Buffer
	files       []channels.File
	want        int // index of the file whose content is kept; -1: none
	limit       int
	failure     error // of reading that file
}

// decode reads a mail. It keeps the content of the file with the index want, unless that is -1; the
// content is cut behind limit bytes.
func decode(r io.Reader, want, limit int) (*message.Entity, *decoder, error) {
	d := &decoder{guard: &guard{r: bufio.NewReader(r), left: math.MaxInt64}, want: want, limit: limit}
	m, err := message.ReadWithOptions(d.guard, &message.ReadOptions{MaxHeaderBytes: maxHeader})
	if m == nil {
		return nil, nil, err
	}
	d.walk(m, 0)
	return m, d, nil
}

// walk reads a part and those in it, and reports whether others can follow.
func (d *decoder) walk(m *message.Entity, depth int) bool {
	if d.parts++; d.parts > maxParts || depth > maxDepth {
		return false
	}
	if parts := m.MultipartReader(); parts != nil {
		for {
			d.guard.left = maxHeader
			part, err := parts.NextPart()
			d.guard.left = math.MaxInt64
			if part == nil {
				return errors.Is(err, io.EOF)
			}
			if !d.walk(part, depth+1) {
				return false
			}
		}
	}
	kind, params, _ := m.Header.ContentType()
	how, more, _ := m.Header.ContentDisposition()
	name := cmp.Or(more["filename"], params["name"])
	if how != "attachment" && name == "" {
		switch kind {
		case "text/plain", "":
			return appendText(&d.plain, m.Body)
		case "text/html":
			return appendText(&d.html, m.Body)
		}
	}
	var kept *bytes.Buffer
	body := m.Body
	if len(d.files) == d.want {
		kept = &bytes.Buffer{}
		body = io.TeeReader(body, &limitedWriter{kept, d.limit + 1})
	}
	size, err := io.Copy(io.Discard, body)
	if len(d.files) < maxFiles {
		f := channels.File{Name: cmp.Or(name, defaultName), Size: size}
		if kept != nil {
			f.Data, d.failure = kept.Bytes(), err
		}
		d.files = append(d.files, f)
	}
	return err == nil || drain(m.Body)
}

// limitedWriter drops what is written behind left bytes.
type limitedWriter struct {
	to   *bytes.Buffer
	left int
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.to.Write(p[:n])
	return len(p), nil
}

// drain reads on behind an error of the encoding. NextPart skips what it leaves.
func drain(r io.Reader) bool {
	_, _ = io.Copy(io.Discard, r)
	return true
}

func appendText(to *bytes.Buffer, r io.Reader) bool {
	if to.Len() > 0 {
		to.WriteByte('\n')
	}
	_, _ = io.CopyN(to, r, int64(max(0, maxText-to.Len())))
	return drain(r)
}

// text returns what the person wrote: without what is quoted, and without the signature. A command
// is the first line of the mail; what follows it, such as the name of a telephone, is left out.
func (d *decoder) text() string {
	said := d.plain.String()
	if strings.TrimSpace(said) == "" {
		said = plainText(d.html.String())
	}
	first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
	said = strings.TrimSpace(unquoted(said))
	if strings.HasPrefix(said, "/") {
		if !strings.HasPrefix(strings.TrimSpace(first), "/") {
			// A program that wraps quoted lines leaves parts of them without a mark: what follows a
			// quotation may be the agent's words.
			return "[below a quotation] " + said
		}
		said, _, _ = strings.Cut(said, "\n")
	}
	return strings.TrimSpace(said)
}

var (
	// quoteStart matches a line behind which a mail program repeats the mail that is answered.
	quoteStart = regexp.MustCompile(`^(-{2,} ?(Original|Forwarded|Ursprüngliche|Weitergeleitete|Message d'origine).*|Begin forwarded message:|_{10,}|(On|Am|Le|El) .+(wrote|schrieb|a écrit|escribió).*:)$`)
	// attribution matches the lines in front of a marked quotation that introduce it.
	attribution = regexp.MustCompile(`(wrote|schrieb|a écrit|escribió|@|[0-9]{4}).*:$`)
	// headerLine matches the first line of a header that a mail program repeats in front of the mail
	// that is answered, and nextLine the one behind it.
	headerLine = regexp.MustCompile(`^\*?(From|Von|De):\*? .+`)
	nextLine   = regexp.MustCompile(`^\*?(Sent|Date|To|Subject|Gesendet|Datum|An|Betreff|Envoyé|À|Objet|Enviado|Para|Asunto):\*? .+`)
)

// unquoted returns a text without quotations and without the signature.
func unquoted(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	var out []string
	for i := 0; i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t\r")
		next := ""
		if i+1 < len(lines) {
			next = strings.TrimSpace(lines[i+1])
		}
		switch trimmed := strings.TrimSpace(line); {
		case line == "--": // a signature follows
			return joined(out)
		case strings.HasPrefix(trimmed, ">"):
			out = withoutAttribution(out)
			for i+1 < len(lines) && strings.HasPrefix(strings.TrimSpace(lines[i+1]), ">") {
				i++
			}
			continue
		case len(trimmed) < maxAttribution && (quoteStart.MatchString(trimmed) || quoteStart.MatchString(trimmed+" "+next)):
			if rest := quotedBelow(lines[i+1:]); rest > 0 {
				i += rest - 1 // the lines up to the quotation, behind which the person may have written
				continue
			}
			return joined(out)
		case len(trimmed) < maxAttribution && headerLine.MatchString(trimmed) && nextLine.MatchString(next):
			return joined(out)
		}
		out = append(out, line)
	}
	return joined(out)
}

// quotedBelow returns the number of the first line that is marked as quoted, from 1, if only a few
// others are in front of it; otherwise 0.
func quotedBelow(lines []string) int {
	for i, line := range lines[:min(len(lines), 4)] {
		if strings.HasPrefix(strings.TrimSpace(line), ">") {
			return i + 1
		}
	}
	return 0
}

// withoutAttribution removes the last lines, up to three, if they introduce a quotation.
func withoutAttribution(lines []string) []string {
	end := len(lines)
	for end > max(0, len(lines)-3) && lines[end-1] == "" {
		end--
	}
	if end == 0 || !strings.HasSuffix(lines[end-1], ":") {
		return lines
	}
	begin := end - 1
	for begin > 0 && end-begin < 3 && lines[begin-1] != "" {
		begin--
	}
	if !attribution.MatchString(strings.Join(lines[begin:end], " ")) {
		return lines
	}
	return lines[:begin]
}

func joined(lines []string) string { return strings.TrimSpace(strings.Join(lines, "\n")) }

var (
	blockTag = regexp.MustCompile(`^/?(p|div|br|tr|li|ul|ol|table|h[1-6]|hr|pre|section|article)$`)
	quoteTag = regexp.MustCompile(`(?i)(gmail_quote|gmail_extra|divRplyFwdMsg|appendonsend|yahoo_quoted)`)
)

// plainText returns the text of an HTML document, without what is quoted or not shown.
func plainText(s string) string {
	var b strings.Builder
	quotes := 0
	for s != "" {
		before, rest, tagged := strings.Cut(s, "<")
		if quotes == 0 {
			b.WriteString(strings.Join(strings.FieldsFunc(before, func(r rune) bool { return r == '\n' || r == '\r' }), " "))
		}
		if !tagged {
			break
		}
		if comment, found := strings.CutPrefix(rest, "!--"); found {
			_, s, _ = strings.Cut(comment, "-->")
			continue
		}
		tag, after, closed := strings.Cut(rest, ">")
		if !closed {
			break
		}
		s = after
		name, attributes, _ := strings.Cut(strings.ToLower(tag), " ")
		name = strings.TrimSuffix(name, "/")
		switch name {
		case "style", "script", "head", "title":
			end := closing(s, name)
			s = s[end:]
		case "blockquote":
			if quotes++; quotes == 1 {
				b.WriteString("\n> \n") // as in a text, so that what introduces it is found
			}
		case "/blockquote":
			quotes = max(0, quotes-1)
		}
		if quoteTag.MatchString(attributes) {
			break // the quotation is at the end
		}
		if quotes == 0 && blockTag.MatchString(name) {
			b.WriteByte('\n')
		}
	}
	return strings.ReplaceAll(html.UnescapeString(b.String()), "\u00a0", " ")
}

// closing returns the position of the tag that closes an element, or the end.
func closing(s, name string) int {
	for i := 0; ; {
		at := strings.Index(s[i:], "</")
		if at < 0 {
			return len(s)
		}
		i += at + 2
		if len(s)-i >= len(name) && strings.EqualFold(s[i:i+len(name)], name) {
			return i - 2
		}
	}
}
