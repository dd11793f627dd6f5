package browser

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// event handles one event of the browser. It never waits for an answer, because the
// listen goroutine calls it.
func (x *instance) event(session, method string, params json.RawMessage) {
	switch method {
	case "Target.attachedToTarget":
		x.attached(members[attachedTo](params))
	case "Fetch.requestPaused":
		x.paused(session, members[paused](params))
	case "Fetch.authRequired":
		id := members[paused](params).ID
		x.tell(session, "Fetch.continueWithAuth", map[string]any{
			"requestId":             id,
			"authChallengeResponse": map[string]any{"response": "CancelAuth"},
		})
	case "Page.javascriptDialogOpening":
		kind := members[struct {
			Type string `json:"type"`
		}](params).Type
		x.tell(session, "Page.handleJavaScriptDialog", map[string]any{"accept": kind == "beforeunload"})
	case "Page.frameStartedLoading", "Page.frameStoppedLoading", "Inspector.targetCrashed", "Network.responseReceived":
		x.progress(session, method, params)
	}
}

type attachedTo struct {
	Session string `json:"sessionId"`
	Info    struct {
		ID   string `json:"targetId"`
		Type string `json:"type"`
		URL  string `json:"url"`
	} `json:"targetInfo"`
}

// attached enables request interception for a new page, frame or worker, and lets it
// run. The first page is the browser's; any later page is closed at once.
func (x *instance) attached(a attachedTo) {
	x.mu.Lock()
	first := a.Info.Type == "page" && x.page == ""
	if first {
		x.page, x.target = a.Session, a.Info.ID
	}
	x.mu.Unlock()
	if a.Info.Type == "page" && !first {
		if len(x.closing) > 1000 {
			x.stop() // a page that keeps opening others
		}
		x.closing[a.Session] = true
	}
	x.tell(a.Session, "Target.setAutoAttach", attach())
	if a.Info.Type == "browser_ui" { // the browser's own menus
		x.tell(a.Session, "Runtime.runIfWaitingForDebugger", struct{}{})
		return
	}
	x.tell(a.Session, "Fetch.enable", map[string]any{"patterns": []any{map[string]any{"urlPattern": "*"}}, "handleAuthRequests": true})
	for _, domain := range []string{"Page.enable", "Inspector.enable", "Network.enable"} { // not every target has all of them
		x.tell(a.Session, domain, struct{}{})
	}
	x.tell(a.Session, "Runtime.runIfWaitingForDebugger", struct{}{}) // also for a page that is closed below: its opener may wait for it
	switch {
	case first:
		close(x.ready)
	case a.Info.Type == "page":
		x.tell("", "Target.closeTarget", map[string]any{"targetId": a.Info.ID})
	}
}

type paused struct {
	ID      string `json:"requestId"`
	Type    string `json:"resourceType"`
	Frame   string `json:"frameId"`
	Request struct {
		URL string `json:"url"`
	} `json:"request"`
}

// paused continues or fails one intercepted request, by its scheme and by the policy for
// its host. The proxy checks every connection again. A refused document of the main
// frame is recorded for refused.
func (x *instance) paused(session string, p paused) {
	why, d := x.judge(p.Request.URL)
	if why == "" && x.closing[session] {
		why = "there is one page"
	}
	if why == "" {
		x.tell(session, "Fetch.continueRequest", map[string]any{"requestId": p.ID})
		return
	}
	if d.Host != "" {
		x.decided(d)
	}
	if p.Type == "Document" && p.Frame == x.target { // a refused frame is only missing from the page
		x.mu.Lock()
		x.denied = why
		x.mu.Unlock()
	}
	x.tell(session, "Fetch.failRequest", map[string]any{"requestId": p.ID, "errorReason": "BlockedByClient"})
}

// judge returns why an address is refused, with the egress decision if the policy
// refused its host, or "".
func (x *instance) judge(address string) (string, egress.Decision) {
	scheme, _, _ := strings.Cut(address, ":")
	switch strings.ToLower(scheme) {
	case "http", "https":
	case "data", "blob", "about": // no network access
		return "", egress.Decision{}
	default:
		return "addresses of the kind " + strconv.Quote(text.ValidBytes(scheme, 32)) + " are not opened", egress.Decision{}
	}
	u, err := url.Parse(address)
	if err != nil {
		return "the address cannot be read", egress.Decision{}
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		if port = 443; u.Scheme == "http" {
			port = 80
		}
	}
	if why := x.policy.Admits(u.Hostname(), port); why != "" {
		return "the host " + strconv.Quote(text.ValidBytes(u.Hostname(), 100)) + ": " + why,
			egress.Decision{Host: text.ValidBytes(u.Hostname(), 256), Port: port, Reason: why, At: time.Now()}
	}
	return "", egress.Decision{}
}

// progress records the loading state and HTTP status of the main frame and wakes
// settle. A crash of the page stops the browser.
func (x *instance) progress(session, method string, params json.RawMessage) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if session != x.page {
		return // the main frame loads until the frames of other sites are loaded
	}
	main := members[struct {
		Frame    string `json:"frameId"`
		Type     string `json:"type"`
		Response struct {
			Status int `json:"status"`
		} `json:"response"`
	}](params)
	switch method {
	case "Inspector.targetCrashed":
		x.why = capability.Errorf(capability.CodeFailed, op, "the page crashed, or took more memory than it may").With("resource_limit",
			"the next call starts another browser")
		x.stop() // ends all waits for the page
	case "Network.responseReceived":
		if main.Type == "Document" && main.Frame == x.target {
			x.status = main.Response.Status
		}
		return
	case "Page.frameStartedLoading":
		if main.Frame == x.target {
			x.loading = true
		}
		return
	case "Page.frameStoppedLoading":
		if main.Frame != x.target {
			return
		}
		x.loading = false
	}
	select {
	case x.loads <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// settle waits until the page has loaded, the browser has ended (errGone) or ctx ends.
func (x *instance) settle(ctx context.Context) error {
	for {
		x.mu.Lock()
		loading := x.loading
		x.mu.Unlock()
		if !loading {
			return nil
		}
		select {
		case <-x.loads:
		case <-x.done:
			return errGone
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// navigate opens an address and waits until it has loaded, at most loadTimeout. Errors:
// invalid_input (too long); denied, reason security_violation (scheme, or a host that
// the policy refuses, also after a redirect); timeout; failed.
func (x *instance) navigate(ctx context.Context, address string) error {
	if len(address) > maxURL {
		return fault.InvalidArgs("", "an address has %d bytes at most", maxURL)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return fault.SecurityViolation("a browser opens absolute http and https addresses without a user in them, and nothing else")
	}
	if why, d := x.judge(u.String()); why != "" {
		x.decided(d)
		return fault.SecurityViolation(why)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, errSlow)
	defer cancel()
	// The remaining events of the previous page arrive before the answer to this call.
	// The browser refuses it while it changes pages.
	if err := x.call(ctx, x.page, "Page.stopLoading", struct{}{}, nil); err != nil && !refusedBy(err) {
		return err
	}
	x.mu.Lock()
	x.denied, x.status, x.loading = "", 0, true
	x.mu.Unlock()
	var got struct {
		Error  string `json:"errorText"`
		Loader string `json:"loaderId"`
	}
	err = x.call(ctx, x.page, "Page.navigate", map[string]any{"url": u.String()}, &got)
	if err == nil && (got.Error != "" || got.Loader == "") { // an error, or a jump within the page
		x.mu.Lock()
		x.loading = false
		x.mu.Unlock()
	}
	if err == nil {
		err = x.settle(ctx)
	}
	if err != nil && context.Cause(ctx) == errSlow { //nolint:errorlint // our own, never wrapped
		return fault.TimedOut(loadTimeout)
	}
	if err != nil {
		return err
	}
	if why := x.refused(); why != "" {
		return fault.SecurityViolation(why)
	}
	if got.Error != "" {
		return capability.Errorf(capability.CodeFailed, op, "the page cannot be opened: %s",
			fault.OneLine(text.ValidBytes(got.Error, 100))).With("execution_failed", "")
	}
	return nil
}

func refusedBy(err error) bool {
	_, ok := errors.AsType[*refusal](err)
	return ok
}

// refused returns and clears the reason why the page's document was refused, or "".
func (x *instance) refused() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	why := x.denied
	x.denied = ""
	return why
}

// script calls a JavaScript function with one argument in an isolated world of the page, in which
// the page's scripts cannot change its globals, and decodes the return value into result.
func (x *instance) script(ctx context.Context, function string, argument, result any) error {
	var world struct {
		Context int64 `json:"executionContextId"`
	}
	if err := x.call(ctx, x.page, "Page.createIsolatedWorld", map[string]any{"frameId": x.target, "worldName": "junctor"},
		&world); err != nil {
		return err
	}
	doc, err := json.Marshal(argument)
	if err != nil {
		return err
	}
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err = x.call(ctx, x.page, "Runtime.evaluate", map[string]any{
		"expression": "(" + function + ")(" + string(doc) + ")", "contextId": world.Context, "returnByValue": true, "awaitPromise": true,
		"userGesture": true,
	}, &got)
	if err != nil {
		return err
	}
	if got.Exception != nil || len(got.Result.Value) == 0 {
		return capability.Errorf(capability.CodeFailed, op, "the page cannot be read").With("execution_failed", "is the selector a CSS selector?")
	}
	return json.Unmarshal(got.Result.Value, result)
}
