package messaging

import (
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Escape converts any text to one token of a subject or key: each byte outside [A-Za-z0-9_-]
// becomes = and two upper-case hex digits. Different texts have different tokens.
func Escape(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func plain(c byte) bool {
	return c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// CheckSubject fails for subjects that messages cannot be published to: those with empty
// tokens, wildcards, control characters, spaces or more than MaxSubject bytes, and those
// beginning with $, which belong to the bus.
func CheckSubject(subject string) error { return check(subject, false) }

// CheckPattern is CheckSubject for patterns of subscriptions, in which * may be a token
// and > the last one.
func CheckPattern(pattern string) error { return check(pattern, true) }

func check(s string, wild bool) error {
	bad := func(why string) error {
		return capability.Errorf(capability.CodeInvalidInput, "bus.subject", "%.100q cannot be a subject: %s", s, why)
	}
	switch {
	case s == "":
		return bad("it is empty")
	case len(s) > MaxSubject:
		return capability.Errorf(capability.CodeInvalidInput, "bus.subject", "a subject has at most %d bytes, this one %d", MaxSubject, len(s))
	case s[0] == '$':
		return bad("those beginning with $ belong to the bus")
	}
	rest, more := s, true
	for more {
		var token string
		token, rest, more = strings.Cut(rest, ".")
		if token == "" {
			return bad("a part between dots is empty")
		}
		if token == "*" || token == ">" {
			if !wild {
				return bad("wildcards are for subscriptions")
			}
			if token == ">" && more {
				return bad("> stands at the end only")
			}
			continue
		}
		for i := range len(token) {
			if c := token[i]; c <= ' ' || c == 0x7f || c == '*' || c == '>' {
				return bad("spaces, control characters, * and > are not part of names")
			}
		}
	}
	return nil
}

// CheckQueue fails for invalid names of queue groups.
func CheckQueue(name string) error {
	if name == "" || len(name) <= 64 && Escape(name) == name {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "bus.subscribe",
		"%.100q cannot name a queue: use 1 to 64 of A-Z, a-z, 0-9, _ and -", name)
}

// CheckMessage fails for messages that exceed the limits or are invalid.
func CheckMessage(m Message) error {
	if err := CheckSubject(m.Subject); err != nil {
		return err
	}
	if m.Reply != "" {
		if err := CheckSubject(m.Reply); err != nil {
			return err
		}
	}
	if len(m.Data) > MaxPayload {
		return tooLarge("a message carries at most %d bytes, this one has %d", MaxPayload, len(m.Data))
	}
	sum := 0
	for k, v := range m.Header {
		sum += len(k) + len(v)
		if k == "" || strings.ContainsFunc(k, func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f }) ||
			strings.ContainsAny(v, "\r\n") || strings.TrimSpace(v) != v {
			return capability.Errorf(capability.CodeInvalidInput, "bus.publish", "the header %.100q has a name or value that cannot travel", k)
		}
	}
	if sum > MaxHeader {
		return tooLarge("the headers of a message have at most %d bytes, these have %d", MaxHeader, sum)
	}
	return nil
}

// CheckReply fails if the message's Reply is not below inbox, the sender's inbox. The bus
// checks where a session publishes and subscribes, but not the Reply of its messages: a
// gateway that answers any Reply would let one node send messages to another.
func CheckReply(m Message, inbox string) error {
	if strings.HasPrefix(m.Reply, inbox+".") && CheckSubject(m.Reply) == nil {
		return nil
	}
	return capability.Errorf(capability.CodeDenied, "bus.answer", "the answer to %s is wanted on %.100q, which is not below %s", m.Subject,
		m.Reply, inbox).
		With(ReasonSubjectDenied, "")
}

func tooLarge(format string, limit, n int) error {
	return capability.Errorf(capability.CodeTooLarge, "bus.publish", format, limit, n).
		With(ReasonTooLarge, "send large values as assets")
}

// CheckBucket fails for invalid options of a bucket.
func CheckBucket(o BucketOptions) error {
	if o.Name == "" || len(o.Name) > 64 || Escape(o.Name) != o.Name {
		return capability.Errorf(capability.CodeInvalidInput, "bus.bucket", "%.100q cannot name a bucket: use 1 to 64 of A-Z, a-z, 0-9, _ and -",
			o.Name)
	}
	if o.TTL < 0 || o.TTL > 0 && o.TTL < time.Second {
		return capability.Errorf(capability.CodeInvalidInput, "bus.bucket", "entries live for at least a second, not %s", o.TTL)
	}
	return nil
}

// CheckEntry fails for keys and values that a bucket cannot hold.
func CheckEntry(key string, value []byte) error {
	if len(key) > MaxSubject/2 {
		return capability.Errorf(capability.CodeInvalidInput, "bus.bucket", "a key has at most %d bytes, this one %d", MaxSubject/2, len(key))
	}
	for token := range strings.SplitSeq(key, ".") {
		if strings.ReplaceAll(token, "=", "") == "" || Escape(strings.ReplaceAll(token, "=", "")) != strings.ReplaceAll(token, "=", "") {
			return capability.Errorf(capability.CodeInvalidInput, "bus.bucket", "%.100q cannot be a key: escape its parts", key)
		}
	}
	if len(value) > MaxValue {
		return tooLarge("an entry has at most %d bytes, this one %d", MaxValue, len(value))
	}
	return nil
}
