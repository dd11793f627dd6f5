package browser

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

// check validates a request before anything is started: invalid_input, reason
// unsupported_runner or invalid_args.
func (req *Request) check() error {
	if !slices.Contains(actions(), req.Action) {
		return fault.UnsupportedRunner("browser."+req.Action, []string{"browser." + strings.Join(actions(), ", browser.")})
	}
	if err := req.Policy.Check(); err != nil {
		return capability.Wrap(capability.CodeInvalidInput, op, "the hosts that the extension declares cannot be read", err).With("invalid_args",
			"")
	}
	switch {
	case req.URL == "" && req.Action == "navigate":
		return fault.InvalidArgs("", "the address is missing")
	case req.URL == "" && req.Session == "":
		return fault.InvalidArgs("", "without a session no page is open: give the address with --url")
	case req.Action == "click" && req.Selector == "":
		return fault.InvalidArgs("", "the CSS selector of what to click is missing")
	case req.Action == "fill_form" && len(req.Fields) == 0:
		return fault.InvalidArgs("", "there is nothing to fill in: write selector=value")
	case len(req.Fields) > maxFields:
		return fault.InvalidArgs("", "a call fills %d fields at most", maxFields)
	case req.Action == "extract" && !slices.Contains([]string{"text", "links", "table"}, req.What):
		return fault.InvalidArgs("", "what is extracted is text, links or table")
	}
	return nil
}

func actions() []string {
	return []string{"navigate", "screenshot", "fill_form", "click", "extract", "pdf"}
}

// do opens req.URL if it is set, runs the action on the page, and returns its output
// with the page's address, title and status.
func (x *instance) do(ctx context.Context, req Request) (Result, error) {
	if err := x.exact(req); err != nil {
		return Result{}, err
	}
	if req.URL != "" {
		if err := x.navigate(ctx, req.URL); err != nil {
			return Result{}, err
		}
	}
	var out string
	var made []Artifact
	var err error
	switch req.Action {
	case "navigate":
	case "click":
		out, err = x.click(ctx, req.Selector)
	case "fill_form":
		out, err = x.fill(ctx, req.Fields)
	case "extract":
		out, err = x.extract(ctx, req)
	case "screenshot":
		made, err = x.picture(ctx, req)
	case "pdf":
		made, err = x.document(ctx, req)
	}
	if err != nil {
		return Result{}, err
	}
	var at struct{ URL, Title string }
	if err := x.script(ctx, whereScript, nil, &at); err != nil {
		return Result{}, err
	}
	x.mu.Lock()
	status := x.status
	x.mu.Unlock()
	// Redacted before they are cut, because the cut could leave the beginning of a secret.
	address, title := text.ValidBytes(x.redact(at.URL), maxURL), fault.OneLine(text.ValidBytes(x.redact(at.Title), 500))
	meta := map[string]any{"url": address, "title": title}
	if status != 0 {
		meta["status"] = status
	}
	for _, a := range made {
		out += fmt.Sprintf("artifacts/%s (%s, %d bytes)\n", a.Name, a.MIME, a.Size)
	}
	if req.Action != "extract" {
		out += strings.TrimSpace(title+"\n"+address) + "\n"
	}
	return Result{out, meta, made}, nil
}

// redact removes the values that were filled in as secrets from s, in the forms of [secret.Redactor].
func (x *instance) redact(s string) string {
	for _, redact := range x.redactors {
		s = redact(s)
	}
	return s
}

// partial matches the operators of selectors that compare a part of an attribute.
var partial = regexp.MustCompile(`[*^$|~]=`)

// exact returns invalid_input if a selector compares parts of attributes while a secret is filled in: whether it
// fits would give the secret letter by letter.
func (x *instance) exact(req Request) error {
	fields := append(slices.Clone(req.Fields), Field{Selector: req.Selector})
	if (len(x.secrets) > 0 || slices.ContainsFunc(fields, func(f Field) bool { return !f.Secret.Empty() })) &&
		slices.ContainsFunc(fields, func(f Field) bool { return partial.MatchString(f.Selector) }) {
		return fault.InvalidArgs("", "once a secret was filled in, a selector compares whole attributes, "+
			"as in [name=value]: without * ^ $ | ~ before =")
	}
	return nil
}

// unshown returns an error if the page shows a value that was filled in as a secret: a picture of it
// cannot be redacted.
func (x *instance) unshown(ctx context.Context) error {
	if len(x.secrets) == 0 {
		return nil
	}
	var got struct {
		Text string
		More bool
	}
	if err := x.script(ctx, shownScript, map[string]any{"most": maxShown}, &got); err != nil {
		return err
	}
	if !got.More && x.redact(got.Text) == got.Text {
		return nil
	}
	return capability.Errorf(capability.CodeDenied, op, "the page shows a secret that was filled in, or too much text to be sure").
		With("secret_shown", "go on to another page first")
}

// conceal adds a value to those that redact removes, if it has at least minSecret bytes.
func (x *instance) conceal(value string) {
	if len(value) >= minSecret && !slices.Contains(x.secrets, value) {
		x.secrets, x.redactors = append(x.secrets, value), append(x.redactors, secret.Redactor("[redacted]", value))
		x.longest = max(x.longest, len(value))
	}
}

// click clicks the first element of the selector and waits until the load that this may
// start is over. Errors: not_found; denied, if the click opened a refused address.
func (x *instance) click(ctx context.Context, selector string) (string, error) {
	var got struct{ Found bool }
	if err := x.script(ctx, clickScript, selector, &got); err != nil {
		return "", err
	}
	if !got.Found {
		return "", missing(selector)
	}
	// A load that the click causes starts only after the click event was handled.
	var none any
	if err := x.script(ctx, restScript, nil, &none); err != nil && ctx.Err() != nil ||
		err == errGone { //nolint:errorlint // our own, never wrapped
		return "", err
	}
	if err := x.settle(ctx); err != nil {
		return "", err
	}
	if why := x.refused(); why != "" {
		return "", fault.SecurityViolation(why)
	}
	return "clicked " + fault.OneLine(text.ValidBytes(selector, 200)) + "\n", nil
}

func missing(selector string) error {
	return capability.Errorf(capability.CodeNotFound, op, "nothing on the page fits the selector %.200q", selector).With("not_found",
		"extract shows what is there")
}

// fill fills in the fields in order and stops at the first error; earlier fields stay
// filled. Its output names the selectors and not the values.
func (x *instance) fill(ctx context.Context, fields []Field) (string, error) {
	var b strings.Builder
	for _, f := range fields {
		value := f.Value
		if !f.Secret.Empty() {
			value = f.Secret.Reveal()
			x.conceal(value)
		}
		var got struct {
			Found    bool
			Fillable bool
			Hidden   bool
		}
		if err := x.script(ctx, fillScript, map[string]any{"selector": f.Selector, "value": value}, &got); err != nil {
			return "", err
		}
		switch {
		case !got.Found:
			return "", missing(f.Selector)
		case !got.Fillable:
			return "", fault.InvalidArgs("", "what fits the selector %.200q cannot be filled in, or has no such choice", f.Selector)
		case got.Hidden && len(x.secrets) < maxPasswords: // a password, from any source
			x.conceal(value)
		}
		b.WriteString("filled " + fault.OneLine(text.ValidBytes(f.Selector, 200)) + " with •••\n")
	}
	return b.String(), nil
}

// extract returns text, links or a table of the selected part of the page, redacted and
// cut to maxText characters.
func (x *instance) extract(ctx context.Context, req Request) (string, error) {
	var got struct {
		Found bool
		Text  string
		More  bool
	}
	if err := x.script(ctx, extractScript, map[string]any{"selector": req.Selector, "what": req.What, "most": maxText}, &got); err != nil {
		return "", err
	}
	if !got.Found {
		return "", missing(req.Selector)
	}
	out := x.redact(got.Text)
	if got.More { // it may end within a secret
		out = text.ValidBytes(out, max(0, len(out)-maxExpansion*x.longest))
	}
	out = fault.Clean(text.ValidBytes(out, 4*maxText))
	if !strings.HasSuffix(out, "\n") {
		out += "\n"
	}
	if got.More {
		out += "[… there is more than is shown]\n"
	}
	return out, nil
}

// picture writes a PNG screenshot of the window or, with Full, of the whole page.
func (x *instance) picture(ctx context.Context, req Request) ([]Artifact, error) {
	params := map[string]any{"format": "png"}
	if req.Full {
		var size struct {
			Content struct{ Width, Height float64 } `json:"cssContentSize"`
		}
		if err := x.call(ctx, x.page, "Page.getLayoutMetrics", struct{}{}, &size); err != nil {
			return nil, err
		}
		params["captureBeyondViewport"] = true
		params["clip"] = map[string]any{
			"x": 0, "y": 0, "width": min(max(size.Content.Width, 1), maxHeight),
			"height": min(max(size.Content.Height, 1), maxHeight), "scale": 1,
		}
	}
	return x.artifact(ctx, req, "Page.captureScreenshot", params, "screenshot", "png", "image/png")
}

func (x *instance) document(ctx context.Context, req Request) ([]Artifact, error) {
	return x.artifact(ctx, req, "Page.printToPDF", map[string]any{"printBackground": true}, "page", "pdf", "application/pdf")
}

// artifact runs a DevTools method that returns a file in base64, and writes the file to
// the work directory as name-RUN.suffix.
func (x *instance) artifact(ctx context.Context, req Request, method string, params any, name, suffix, mime string) ([]Artifact, error) {
	if err := x.unshown(ctx); err != nil {
		return nil, err
	}
	var got struct {
		Data string `json:"data"`
	}
	if err := x.call(ctx, x.page, method, params, &got); err != nil {
		return nil, err
	}
	data, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil || len(data) == 0 {
		return nil, capability.Errorf(capability.CodeFailed, op, "the browser made nothing that can be read").With("execution_failed", "")
	}
	one, err := keep(req.Work, cmp.Or(req.User, sandbox.DefaultUID), name+"-"+req.Run+"."+suffix, mime, data)
	return []Artifact{one}, err
}
