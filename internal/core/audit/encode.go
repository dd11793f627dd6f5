package audit

import (
	"bytes"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// limits bounds the fields of one record, in bytes of escaped output. The limits tight apply if a
// record written with the normal ones would exceed MaxLine; with them every record fits.
type limits struct{ text, errText, list int }

const (
	timeLayout = "2006-01-02T15:04:05.000Z"
	// chainRoom is the size of the members that the chain adds behind the error member.
	chainRoom = 256
	hexDigits = "0123456789abcdef"
)

// encoder encodes records. It has no state except the redactor, so that callers encode without
// holding a lock.
type encoder struct {
	red     *redactor
	gateway string
}

// encode appends r up to and including its error member; the writer appends the chain's
// members and the closing brace. It encodes twice if a field had to be cut, because the flag
// precedes the fields it is about.
func (e *encoder) encode(b []byte, r *Record) []byte {
	start := len(b)
	for _, lim := range [...]limits{{1024, 4096, 64}, {96, 1024, 12}} {
		w := writer{b: b, red: e.red, lim: lim}
		w.record(r, e.gateway, r.Metadata.Truncated)
		if w.cut && !r.Metadata.Truncated {
			w = writer{b: w.b[:start], red: e.red, lim: lim}
			w.record(r, e.gateway, true)
		}
		if len(w.b)-start <= MaxLine-chainRoom {
			return w.b
		}
		b = w.b[:start]
	}
	// Not reachable with the limits above, but a line must never be too long.
	w := writer{b: b[:start], red: e.red, lim: limits{64, 256, 2}}
	w.record(&Record{Time: r.Time, Level: r.Level, Event: r.Event, Success: r.Success, Metadata: Metadata{RunID: r.Metadata.RunID}},
		e.gateway, true)
	return w.b
}

type writer struct {
	b   []byte
	red *redactor
	lim limits
	cut bool
}

// record appends all members of a record except those of the chain.
func (w *writer) record(r *Record, gateway string, truncated bool) {
	w.b = append(w.b, `{"timestamp": "`...)
	w.b = r.Time.UTC().AppendFormat(w.b, timeLayout)
	w.b = append(w.b, `", "level": "`...)
	w.b = append(w.b, r.Level...)
	w.b = append(w.b, '"')
	w.null("logger", r.Logger)
	w.null("event", string(r.Event))
	w.null("extension_id", r.Extension)
	w.null("command", r.Command)
	w.null("action", r.Action)
	w.null("runner", r.Runner)
	w.null("session_id", r.Session)
	w.null("user_id", r.User)
	w.b = append(w.b, `, "success": `...)
	switch r.Success {
	case OutcomeSuccess:
		w.b = append(w.b, "true"...)
	case OutcomeFailure:
		w.b = append(w.b, "false"...)
	default:
		w.b = append(w.b, "null"...)
	}
	w.b = append(w.b, `, "duration_seconds": `...)
	w.b = strconv.AppendFloat(w.b, r.Duration.Seconds(), 'f', -1, 64)
	w.b = append(w.b, `, "exit_code": `...)
	if r.ExitCode != nil {
		w.b = strconv.AppendInt(w.b, int64(*r.ExitCode), 10)
	} else {
		w.b = append(w.b, "null"...)
	}
	w.b = append(w.b, `, "metadata": {`...)
	w.metadata(r, gateway, truncated)
	w.b = append(w.b, `}, "error": `...)
	if r.Error == "" {
		w.b = append(w.b, "null"...)
	} else {
		w.quote(w.red.clean(r.Error), w.lim.errText)
	}
}

// metadata appends the members of the object "metadata".
func (w *writer) metadata(r *Record, gateway string, truncated bool) {
	m, start := &r.Metadata, len(w.b)
	w.b = append(w.b, `"tool": `...)
	w.orNull(m.Tool)
	w.int("args_count", int64(m.ArgsCount))
	w.null("work_dir", m.WorkDir)
	w.opt("args_hash", m.ArgsHash)
	w.opt("stdout_hash", m.StdoutHash)
	w.opt("stderr_hash", m.StderrHash)
	w.null("run_id", m.RunID)
	w.b = append(w.b, `, "permissions": `...)
	w.list(m.Permissions)
	w.decision(&m.Decision)
	w.null("sandbox", m.Sandbox)
	w.b = append(w.b, `, "duration_ms": `...)
	w.ms(r.Duration)
	w.null("state", m.State)
	w.bool("truncated", truncated)

	w.opt("capability_id", m.CapabilityID)
	w.opt("canonical_action", m.CanonicalAction)
	w.opt("provider", m.Provider)
	w.opt("surface", m.Surface)
	if p := &m.Principal; p.ID != "" {
		w.open("principal")
		w.first("id", p.ID)
		w.null("role", string(p.Role))
		w.opt("on_behalf_of", p.OnBehalfOf)
		w.b = append(w.b, '}')
	}
	w.opt("effect", string(m.Effect))
	w.opt("view", m.View)
	w.opt("client", m.Client)
	w.opt("trace_id", m.TraceID)
	w.opt("parent", m.Parent)
	w.opt("task", m.Task)
	if m.Gateway != "" {
		gateway = m.Gateway
	}
	w.opt("gateway", gateway)
	if s := &m.Selection; *s != (Selection{}) {
		w.open("selection")
		w.b = append(w.b, `"step": `...)
		w.b = strconv.AppendInt(w.b, int64(s.Step), 10)
		w.null("decided_by", s.DecidedBy)
		w.bool("fallback", s.Fallback)
		w.null("explanation_id", s.ExplanationID)
		w.b = append(w.b, '}')
	}
	w.opt("pin", m.Pin)
	w.opt("upstream_call_id", m.UpstreamCallID)
	if m.BytesIn != 0 || m.BytesOut != 0 {
		w.b = append(w.b, `, "bytes": {"in": `...)
		w.b = strconv.AppendInt(w.b, m.BytesIn, 10)
		w.int("out", m.BytesOut)
		w.b = append(w.b, '}')
	}
	if t := m.Timings; t != (Timings{}) {
		w.b = append(w.b, `, "timings": {"queue": `...)
		w.ms(t.Queue)
		w.b = append(w.b, `, "consent": `...)
		w.ms(t.Consent)
		w.b = append(w.b, `, "provider": `...)
		w.ms(t.Provider)
		w.b = append(w.b, '}')
	}
	w.node(&m.Node)
	w.opt("code", string(m.Code))
	w.opt("reason", m.Reason)
	if len(m.Attrs) == 0 {
		return
	}
	taken := names(w.b[start:])
	for i := range m.Attrs {
		if i == min(32, w.lim.list) {
			w.cut = true
			break
		}
		key := m.Attrs[i].Key
		for slices.Contains(taken, key) { // a name twice would be a line that others do not read
			key = "attr_" + key
		}
		taken = append(taken, key)
		w.b = append(w.b, ", "...)
		w.quote(key, 64)
		w.b = append(w.b, ": "...)
		w.quote(w.red.clean(m.Attrs[i].Value), w.lim.text)
	}
}

// names returns the names of the members in members, which is the inside of an object.
func names(members []byte) []string {
	d := jsontext.NewDecoder(bytes.NewReader(slices.Concat([]byte("{"), members, []byte("}"))))
	var out []string
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		out = append(out, name.String())
		if d.SkipValue() != nil {
			break
		}
	}
	return out
}

func (w *writer) decision(d *Decision) {
	w.b = append(w.b, `, "decision": `...)
	if d.Effect == "" && len(d.PolicyIDs) == 0 && d.Grant == "" && d.Approval == "" {
		w.b = append(w.b, "null"...)
		return
	}
	w.b = append(w.b, `{"effect": `...)
	w.orNull(d.Effect)
	w.b = append(w.b, `, "policy_ids": `...)
	w.list(d.PolicyIDs)
	w.opt("grant", d.Grant)
	w.opt("approval", d.Approval)
	w.b = append(w.b, '}')
}

func (w *writer) node(n *Node) {
	if *n == (Node{}) {
		return
	}
	w.opt("node", n.ID)
	if n.Epoch != 0 {
		w.b = append(w.b, `, "epoch": `...)
		w.b = strconv.AppendUint(w.b, n.Epoch, 10)
	}
	w.opt("function", n.Function)
	w.opt("skill", n.Skill)
	w.opt("payload_digest", n.PayloadDigest)
	w.opt("module_digest", n.ModuleDigest)
}

// The methods below write members: null and first always, opt only if the value is set.

func (w *writer) key(k string) {
	w.b = append(w.b, `, "`...)
	w.b = append(w.b, k...)
	w.b = append(w.b, `": `...)
}

func (w *writer) open(k string) {
	w.key(k)
	w.b = append(w.b, '{')
}

func (w *writer) first(k, v string) {
	w.b = append(w.b, '"')
	w.b = append(w.b, k...)
	w.b = append(w.b, `": `...)
	w.orNull(v)
}

func (w *writer) null(k, v string) { w.key(k); w.orNull(v) }

func (w *writer) opt(k, v string) {
	if v != "" {
		w.null(k, v)
	}
}

func (w *writer) orNull(v string) {
	if v == "" {
		w.b = append(w.b, "null"...)
		return
	}
	w.quote(w.red.clean(v), w.lim.text)
}

func (w *writer) int(k string, n int64) {
	w.key(k)
	w.b = strconv.AppendInt(w.b, n, 10)
}

func (w *writer) bool(k string, v bool) {
	w.key(k)
	w.b = strconv.AppendBool(w.b, v)
}

// ms writes milliseconds with microsecond resolution.
func (w *writer) ms(d time.Duration) {
	w.b = strconv.AppendFloat(w.b, float64(d.Microseconds())/1e3, 'f', -1, 64)
}

func (w *writer) list(items []string) {
	w.b = append(w.b, '[')
	for i, s := range items {
		if i == w.lim.list {
			w.cut = true
			break
		}
		if i > 0 {
			w.b = append(w.b, ", "...)
		}
		w.quote(w.red.clean(s), min(128, w.lim.text))
	}
	w.b = append(w.b, ']')
}

// quote appends s as a JSON string of at most limit bytes between the quotes. Beyond what
// JSON requires it escapes DEL, the C1 controls and the Unicode line separators, so that a
// record cannot control a terminal or a line reader.
func (w *writer) quote(s string, limit int) {
	b := append(w.b, '"')
	end := len(b) + limit
	from := 0 // s[from:i] is clean and not yet copied
	full := false
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		size := 1
		var esc rune
		if c < utf8.RuneSelf {
			esc = rune(c)
		} else {
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				esc = utf8.RuneError
			case r < 0xa0 || r == 0x2028 || r == 0x2029:
				esc = r
			default:
				i += size
				continue
			}
		}
		if len(b)+i-from+6 > end { // no room for the clean run and an escape
			full = true
			break
		}
		b = append(b, s[from:i]...)
		b = appendEscape(b, esc)
		i += size
		from = i
	}
	rest := s[from:]
	if room := end - len(b); full || len(rest) > room {
		rest = rest[:cleanPrefix(rest, room)]
		w.cut = true
	}
	b = append(b, rest...)
	w.b = append(b, '"')
}

// cleanPrefix returns the length of the longest prefix of s, of at most limit bytes, that needs no
// escape and splits no character.
func cleanPrefix(s string, limit int) int {
	i := 0
	for i < len(s) {
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		if i+size > limit || r < 0x20 || r == '"' || r == '\\' || 0x7f <= r && r < 0xa0 ||
			r == 0x2028 || r == 0x2029 || r == utf8.RuneError && size == 1 {
			break
		}
		i += size
	}
	return i
}

func appendEscape(b []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(b, '\\', byte(r))
	case '\n':
		return append(b, '\\', 'n')
	case '\t':
		return append(b, '\\', 't')
	case '\r':
		return append(b, '\\', 'r')
	}
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
