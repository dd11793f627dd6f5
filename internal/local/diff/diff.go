// Package diff implements diff.render: the difference between two texts as a unified diff
// or as a self-contained HTML page without scripts.
package diff

import (
	"context"
	"encoding/base64"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

const opRender = "diff.render"

// Config configures Functions.
type Config struct {
	// Keep stores a rendering and returns its artifactRef. If nil, the result holds a
	// data: URL, which needs no store.
	Keep func(ctx context.Context, name, mediaType string, data []byte) (string, error)
}

// Functions returns diff.render, to be registered on a host.
func Functions(cfg Config) []host.Function {
	r := &renderer{cfg}
	return []host.Function{{
		ID: opRender, Action: opRender, Effect: capability.EffectRead, Timeout: handleTimeout, Handle: r.render,
	}}
}

type renderer struct{ cfg Config }

// result is the result of diff.render: besides the reference, the counts of lines and, for
// a unified diff, the text, for readers that cannot open a URL.
type result struct {
	URL         string  `json:"url,omitempty"`
	ArtifactRef string  `json:"artifactRef,omitempty"`
	Added       int     `json:"added"`
	Removed     int     `json:"removed"`
	Text        *string `json:"text,omitzero"`
}

// render compares the two texts and returns the difference in the requested format. After
// diffTimeout the texts count as replaced except for their common beginning and end.
// Errors: invalid_input; too_large for a text above MaxText; ctx's; that of Config.Keep.
func (r *renderer) render(ctx context.Context, c capability.Call) (capability.Result, error) {
	var p struct {
		Before string `json:"before"`
		After  string `json:"after"`
		Format string `json:"format"`
	}
	if err := jsonx.Unmarshal(c.Input, &p); err != nil {
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, opRender, "the input does not fit: %v", err)
	}
	for _, side := range []struct{ name, text string }{{"before", p.Before}, {"after", p.After}} {
		if len(side.text) > MaxText {
			return capability.Result{}, capability.Errorf(capability.CodeTooLarge, opRender, "%s has %d bytes; the limit is %d", side.name,
				len(side.text), MaxText)
		}
	}
	a, b := split(p.Before), split(p.After)
	working, cancel := context.WithTimeout(ctx, diffTimeout)
	defer cancel()
	ops, err := compare(working, a, b)
	if ctx.Err() != nil {
		return capability.Result{}, capability.AsError(ctx.Err())
	}
	if err != nil { // out of time: everything but the common ends counts as replaced
		ops = whole(a, b)
	}
	var out result
	for _, o := range ops {
		out.Removed += o.a1 - o.a0
		out.Added += o.b1 - o.b0
	}
	var name, mediaType string
	var data []byte
	switch p.Format {
	case "", "unified":
		name, mediaType, data = "changes.diff", "text/x-diff; charset=utf-8", unified(a, b, ops)
		text := string(data)
		out.Text = &text
	case "html":
		name, mediaType, data = "changes.html", "text/html; charset=utf-8", page(a, b, ops, out)
	default:
		return capability.Result{}, capability.Errorf(capability.CodeInvalidInput, opRender, "%.40q is not a format of this renderer", p.Format).
			With("unsupported_format", "use html or unified")
	}
	if r.cfg.Keep != nil {
		if out.ArtifactRef, err = r.cfg.Keep(ctx, name, mediaType, data); err != nil {
			return capability.Result{}, capability.Wrap(capability.CodeFailed, opRender, "the rendering could not be stored", err)
		}
	} else {
		out.URL = "data:" + mediaType[:len(mediaType)-len("; charset=utf-8")] + ";charset=utf-8;base64," + base64.StdEncoding.EncodeToString(data)
	}
	doc, err := jsonx.Marshal(out)
	if err != nil {
		return capability.Result{}, capability.Wrap(capability.CodeFailed, opRender, "the result cannot be written as JSON", err)
	}
	return capability.Result{Value: doc}, nil
}

// whole returns at most one op: everything between the common beginning and the common end
// is replaced. It is the result for texts that take too long to compare.
func whole(a, b []string) []op {
	o := op{a1: len(a), b1: len(b)}
	for o.a0 < o.a1 && o.b0 < o.b1 && a[o.a0] == b[o.b0] {
		o.a0++
		o.b0++
	}
	for o.a0 < o.a1 && o.b0 < o.b1 && a[o.a1-1] == b[o.b1-1] {
		o.a1--
		o.b1--
	}
	if o.a0 == o.a1 && o.b0 == o.b1 {
		return nil
	}
	return []op{o}
}

// hunk is a group of changes; its own range includes the context lines around them.
type hunk struct {
	op
	ops []op
}

// hunks groups changes whose context lines touch or overlap.
func hunks(a, b []string, ops []op) []hunk {
	var out []hunk
	for _, o := range ops {
		from, to := min(around, o.a0), min(around, len(a)-o.a1)
		if n := len(out); n > 0 && o.a0-out[n-1].ops[len(out[n-1].ops)-1].a1 <= 2*around {
			h := &out[n-1]
			h.ops, h.a1, h.b1 = append(h.ops, o), o.a1+to, o.b1+to
			continue
		}
		out = append(out, hunk{op{o.a0 - from, o.a1 + to, o.b0 - from, o.b1 + to}, []op{o}})
	}
	return out
}

// each calls line for every line of a hunk in order. sign is ' ', '-' or '+'; before and
// after are the line's numbers in the two texts, 0 in a text that lacks it.
func (h hunk) each(a, b []string, line func(sign byte, before, after int, text string)) {
	i, j := h.a0, h.b0
	same := func(to int) {
		for ; i < to; i, j = i+1, j+1 {
			line(' ', i+1, j+1, a[i])
		}
	}
	for _, o := range h.ops {
		same(o.a0)
		for ; i < o.a1; i++ {
			line('-', i+1, 0, a[i])
		}
		for ; j < o.b1; j++ {
			line('+', 0, j+1, b[j])
		}
	}
	same(h.a1)
}

// cut shortens a line to at most most bytes, at a character boundary, and reports whether it
// was longer.
func cut(s string, most int) (string, bool) {
	return text.CutBytes(s, most), len(s) > most
}
