package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/protocol/modelwire"
)

// Segment is one part of a request to the model, by a readable name and the digest of its content.
type Segment struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

// markerText matches the random marker of a summary, which differs in every run.
var markerText = regexp.MustCompile(`\b[0-9a-f]{12}\b`)

// segmentsOf returns the parts of a request, in order.
func segmentsOf(req modelwire.Request) (out []Segment) {
	add := func(name string, parts ...string) {
		sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
		out = append(out, Segment{name, hex.EncodeToString(sum[:8])})
	}
	for i, s := range req.System {
		add(fmt.Sprintf("system text %d", i+1), s)
	}
	for _, t := range req.Tools {
		add("tool "+t.Name, t.Description, string(t.Schema))
	}
	if req.Choice != modelwire.MayCall {
		add("choice of tools", string(req.Choice))
	}
	for i, m := range req.Messages {
		for _, b := range m.Blocks {
			at := fmt.Sprintf("message %d, ", i+1)
			switch b.Kind {
			case modelwire.Call:
				add(at+"call of "+b.Name, b.Name, b.Input)
			case modelwire.Result:
				add(at+"result of "+b.Name, b.Text, fmt.Sprint(b.Failed))
			case modelwire.Text:
				what, body := "text of the "+string(m.Role), b.Text
				if label, _, ok := strings.Cut(b.Text, "\n"); ok && strings.HasPrefix(label, "[") && m.Role == modelwire.User {
					what, _, _ = strings.Cut(strings.Trim(label, "[]"), ", data ")
					if strings.HasPrefix(what, "summary") {
						body = markerText.ReplaceAllString(body, "")
					}
				} else if strings.HasPrefix(b.Text, "[junctor: ") {
					what = "note of the limits"
				}
				add(at+what, body)
			}
		}
	}
	return out
}

// difference returns where two requests differ first, in words, or "".
func difference(recorded, now []Segment) string {
	was := make(map[string]string)
	for _, s := range recorded {
		was[s.Name] = s.Digest
	}
	for i, s := range now {
		if i < len(recorded) && recorded[i] == s {
			continue
		}
		switch digest, known := was[s.Name]; {
		case known && digest != s.Digest:
			return s.Name + " changed"
		case !known:
			return s.Name + " is new"
		case i < len(recorded) && !slices.ContainsFunc(now, func(s Segment) bool { return s.Name == recorded[i].Name }):
			return recorded[i].Name + " is missing"
		}
		return s.Name + " is at another place"
	}
	if len(recorded) > len(now) {
		return recorded[len(now)].Name + " is missing"
	}
	return ""
}
