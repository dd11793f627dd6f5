package browser_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/browser"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) {
	if sandbox.IsHelper(os.Args) {
		syscall.Exit(sandbox.HelperMain(os.Args)) // os.Exit waits a second with the race detector
	}
	goleak.VerifyTestMain(m)
}

// rig is a browser, a site it may reach and one that it may not.
type rig struct {
	*testing.T
	*browser.Browsers
	site, other *httptest.Server
	work        string

	mu    sync.Mutex
	asked []string // of either site
	heard []string
	ends  []sandbox.Result
}

func start(t *testing.T, change func(*browser.Config)) *rig {
	t.Helper()
	r := &rig{T: t, work: filepath.Join(t.TempDir(), "work")}
	box := sandbox.New(sandbox.Config{})
	if box.Facts().Tier < sandbox.T3 {
		t.Skip("a browser needs sandbox tier T3: ", box.Facts().NoT3)
	}
	cfg := browser.Config{Walls: box, OnEnd: func(got sandbox.Result) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ends = append(r.ends, got)
		if t.Failed() {
			t.Logf("exit %d %s: %s", got.ExitCode, got.Signal, got.Stderr.Text())
		}
	}}
	if change != nil {
		change(&cfg)
	}
	r.Browsers = browser.New(cfg)
	t.Cleanup(r.Close)
	if err := os.Mkdir(r.work, 0o700); err != nil {
		t.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, q.Host+q.URL.Path)
		r.mu.Unlock()
		r.answer(w, q)
	})
	r.site, r.other = httptest.NewServer(handler), httptest.NewServer(handler)
	t.Cleanup(r.site.Close)
	t.Cleanup(r.other.Close)
	return r
}

func (r *rig) answer(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := func(title, body string) {
		fmt.Fprintf(w, "<!doctype html><title>%s</title><body>%s", title, body)
	}
	switch q.URL.Path {
	case "/":
		page("Fruit", `<h1>Fruit</h1><p id=say>pears and   apples</p><a href="/next">Next page</a>
			<table><tr><th>name<th>n</tr><tr><td>pear<td>3</tr></table>
			<form action="/sent"><input name=user><input name=pass type=password><select name=kind><option value=a>Apple<option value=b>Pear</select><button id=go>Go</button></form>
			<script>setTimeout(() => document.getElementById("say").append(" too"), 0)</script>`)
	case "/sent":
		page("Sent", "user "+q.FormValue("user")+", kind "+q.FormValue("kind")+", word "+q.FormValue("pass")+
			` <a id=again href="/sent?`+html.EscapeString(q.URL.RawQuery)+`"></a>`)
	case "/redirect":
		http.Redirect(w, q, q.FormValue("to"), http.StatusFound)
	case "/shows":
		page("Shows", `<p id=p>nothing</p><iframe id=f srcdoc="<input id=i>"></iframe><script>const word = "hidden" + "-" + "word", p = document.getElementById("p");
			const f = document.getElementById("f"), ways = {
				nothing() {}, text() { p.textContent = word; }, capitals() { p.textContent = word.toUpperCase(); },
				spaces() { p.textContent = [...word].join("\u00a0"); }, joiners() { p.textContent = [...word].join("\u200d"); },
				shadow() { p.attachShadow({mode: "open"}).innerHTML = "<b>" + word + "</b>"; },
				frame() { f.onload = () => { f.contentDocument.getElementById("i").value = word; }; },
				field() { const i = document.createElement("textarea"); i.value = word; document.body.append(i); },
			};
			ways[location.search.slice(1)]();</script>`)
	case "/tall":
		page("Tall", `<div style="height: 3000px; background: linear-gradient(red, blue)">tall</div>`)
	case "/embeds":
		page("Embeds", fmt.Sprintf(`<iframe src="%s/framed"></iframe><iframe src="file:///etc/passwd"></iframe><iframe src="chrome://version"></iframe><img src="%s/image">
			<script>for (const a of ["%s/fetched", "file:///etc/passwd"]) fetch(a).catch(() => {});
			window.open("%s/opened"); window.open("/popup"); new WebSocket("%s/socket")</script>embedded`,
			r.other.URL, r.other.URL, r.other.URL, r.other.URL, strings.Replace(r.other.URL, "http", "ws", 1)))
	case "/leaves":
		page("Leaves", fmt.Sprintf(`<a id=out href="%s/away">out</a><a id=file href="file:///etc/passwd">file</a><a id=blank target=_blank href="%s/away">new</a>`, r.other.URL, r.other.URL))
	case "/dialog":
		page("Dialog", `<script>alert("hello")</script>after`)
	case "/hungry":
		page("Hungry", `<script>const all = []; for (;;) all.push(new Array(1000000).fill(Math.random()))</script>`)
	case "/slow":
		select {
		case <-q.Context().Done():
		case <-r.Context().Done():
		}
	default:
		page("Next", q.URL.Path)
	}
}

func port(t *testing.T, s *httptest.Server) string {
	t.Helper()
	_, p, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (r *rig) request(action, url string) browser.Request {
	return browser.Request{
		Action: action, URL: url, Principal: "agent:x", Session: "s", Extension: "tools.web", Digest: "1", Run: "run_1", What: "text",
		Work: r.work,
		Policy: egress.Policy{
			Allow:     []string{"127.0.0.1:" + port(r.T, r.site)},
			Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		},
		OnEgress: func(d egress.Decision) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.heard = append(r.heard, fmt.Sprint(d.Event(), " ", d.Host, ":", d.Port))
		},
	}
}

func (r *rig) do(req browser.Request) browser.Result {
	r.Helper()
	got, err := r.Do(r.Context(), req)
	if err != nil {
		r.Fatalf("%s %s: %v", req.Action, req.URL, err)
	}
	return got
}

func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	e := capability.AsError(err)
	return string(e.Code) + " " + e.Reason
}

func (r *rig) askedOther() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.asked {
		if strings.HasPrefix(a, r.other.Listener.Addr().String()) {
			out = append(out, a)
		}
	}
	return out
}

func TestASessionInABrowser(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	got := r.do(r.request("navigate", r.site.URL+"/"))
	if got.Output != "Fruit\n"+r.site.URL+"/\n" || got.Metadata["status"] != 200 || got.Metadata["title"] != "Fruit" {
		t.Errorf(`%+v; want got.Output = "Fruit\n" + r.site.URL + "/\n", got.Metadata["status"] = 200, got.Metadata["title"] = "Fruit"`,
			got)
	}
	extract := func(what, selector string) string {
		req := r.request("extract", "")
		req.What, req.Selector = what, selector
		return r.do(req).Output
	}
	if text := extract("text", "#say"); text != "pears and apples too\n" {
		t.Errorf(`%q; want text = "pears and apples too\n"`, text)
	}
	if links := extract("links", ""); links != "Next page\t"+r.site.URL+"/next\n" {
		t.Errorf(`%q; want links = "Next page\t" + r.site.URL + "/next\n"`, links)
	}
	if table := extract("table", ""); table != "name\tn\npear\t3\n" {
		t.Errorf(`%q; want table = "name\tn\npear\t3\n"`, table)
	}
	fill := r.request("fill_form", "")
	fill.Fields = []browser.Field{
		{Selector: "[name=user]", Value: "me"},
		{Selector: "[name=kind]", Value: "Pear"},
		{Selector: "[name=pass]", Secret: secret.New("hidden-word")},
	}
	got = r.do(fill)
	if !strings.HasPrefix(got.Output, "filled [name=user] with •••\n") || strings.Contains(fmt.Sprint(got), "hidden-word") {
		t.Errorf(`%+v; want got.Output beginning with "filled [name=user] with •••\n", fmt.Sprint(got) without "hidden-word"`,
			got)
	}
	if got := r.do(r.request("screenshot", "")); len(got.Made) != 1 {
		t.Errorf("a picture of a password field: got %+v, want one, which shows dots", got)
	}
	shown := r.request("fill_form", "")
	shown.Fields = []browser.Field{{Selector: "[name=user]", Secret: secret.New("hidden-word")}}
	r.do(shown)
	for _, action := range []string{"screenshot", "pdf"} {
		if _, err := r.Do(t.Context(), r.request(action, "")); reasonOf(err) != "denied secret_shown" {
			t.Errorf("%s of a field that shows a secret: got %v, want denied secret_shown", action, err)
		}
	}
	shown.Fields = []browser.Field{{Selector: "[name=user]", Value: "me"}}
	r.do(shown)
	click := r.request("click", "")
	click.Selector = "#go"
	got = r.do(click)
	if got.Metadata["title"] != "Sent" || strings.Contains(fmt.Sprint(got), "hidden-word") {
		t.Errorf(`%+v; want got.Metadata["title"] = "Sent", fmt.Sprint(got) without "hidden-word"`, got)
	}
	if text := extract("text", ""); text != "user me, kind b, word [redacted]\n" {
		t.Errorf(`%q; want text = "user me, kind b, word [redacted]\n"`, text)
	}
	if _, err := r.Do(t.Context(), r.request("screenshot", "")); reasonOf(err) != "denied secret_shown" {
		t.Errorf("a picture of a page that shows a secret: got %v, want denied secret_shown", err)
	}
	for _, bad := range []struct {
		change func(*browser.Request)
		want   string
	}{
		{func(q *browser.Request) { q.Action, q.Selector = "click", "#missing" }, "not_found not_found"},
		{func(q *browser.Request) { q.Action, q.Selector = "click", "((" }, "failed execution_failed"},
		{func(q *browser.Request) { q.Action, q.Selector = "click", `"); alert(1); ("` }, "failed execution_failed"},
		{func(q *browser.Request) { q.Action = "click" }, "invalid_input invalid_args"},
		{func(q *browser.Request) { q.What = "cookies" }, "invalid_input invalid_args"},
		{func(q *browser.Request) { q.Session = "" }, "invalid_input invalid_args"},
		{func(q *browser.Request) { q.Action = "steal" }, "invalid_input unsupported_runner"},
		{func(q *browser.Request) { q.Policy.Allow = []string{"a..b"} }, "invalid_input invalid_args"},
	} {
		req := r.request("extract", "")
		bad.change(&req)
		if _, err := r.Do(t.Context(), req); reasonOf(err) != bad.want {
			t.Errorf("%+v: %v; want reasonOf(err) = %v", req, err, bad.want)
		}
	}
	r.Close()
	if len(r.ends) != 1 {
		t.Errorf("%d browsers were started; want len(r.ends) = 1", len(r.ends))
	}
}

func TestAPageThatShowsASecretIsNotPictured(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	fill := r.request("fill_form", r.site.URL+"/")
	fill.Fields = []browser.Field{{Selector: "[name=pass]", Secret: secret.New("hidden-word")}}
	r.do(fill)
	for _, way := range []string{"text", "capitals", "spaces", "joiners", "shadow", "frame", "field", "nothing"} {
		_, err := r.Do(t.Context(), r.request("screenshot", r.site.URL+"/shows?"+way))
		got, want := "", "denied secret_shown"
		if err != nil {
			got = reasonOf(err)
		}
		if way == "nothing" {
			want = ""
		}
		if got != want {
			t.Errorf("a picture of a page that shows the secret as %s: got %q, want %q", way, got, want)
		}
	}
}

// TestAFilledInSecretIsNotReadBack holds that neither an address, nor links, nor the end of what is cut, nor a selector
// gives an agent a secret that was filled in.
func TestAFilledInSecretIsNotReadBack(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	const word = "tr0ub4dor&3+x/y=="
	fill := func(user string) {
		t.Helper()
		req := r.request("fill_form", r.site.URL+"/")
		req.Fields = []browser.Field{{Selector: "[name=user]", Value: user}, {Selector: "[name=pass]", Secret: secret.New(word)}}
		r.do(req)
	}
	send := r.request("click", "")
	send.Selector = "#go"
	fill("me")
	got := r.do(send)
	want := r.site.URL + "/sent?user=me&pass=[redacted]&kind=a"
	if got.Metadata["url"] != want || got.Output != "clicked #go\nSent\n"+want+"\n" {
		t.Errorf("the address of a form = %q, output %q, want %q in both", got.Metadata["url"], got.Output, want)
	}
	links := r.request("extract", "")
	links.What = "links"
	if got := r.do(links).Output; !strings.Contains(got, "pass=[redacted]&kind") {
		t.Errorf("extract links = %q, want the address with [redacted]", got)
	}
	for _, req := range []browser.Request{
		{Action: "click", Selector: `a[href*="pass=tr0"]`},
		{Action: "extract", What: "text", Selector: `:has(a[HREF^=http\3a])`},
		{Action: "fill_form", Fields: []browser.Field{{Selector: `[data-x|=tr0ub4dor]`, Value: "x"}}},
	} {
		full := r.request(req.Action, "")
		full.Selector, full.Fields = req.Selector, req.Fields
		if _, err := r.Do(t.Context(), full); reasonOf(err) != "invalid_input invalid_args" {
			t.Errorf("%s %s %+v after a secret: got %v, want invalid_input invalid_args", req.Action, req.Selector, req.Fields, err)
		}
	}
	many := r.request("fill_form", r.site.URL+"/")
	for i := range 250 { // more values than are kept, each in the field for a password
		many.Fields = append(many.Fields, browser.Field{Selector: "[name=pass]", Value: fmt.Sprint("other-", i)})
		if len(many.Fields) == 50 {
			r.do(many)
			many.Fields = nil
		}
	}
	later := r.request("fill_form", "")
	later.Fields = []browser.Field{{Selector: "[name=user]", Secret: secret.New("a-second-word")}}
	r.do(later)
	if got := r.do(send); strings.Contains(fmt.Sprint(got), "a-second-word") {
		t.Errorf("a secret after many passwords: got %+v, want it redacted", got)
	}
	whole := r.request("click", r.site.URL+"/sent?user=me")
	whole.Selector = "a[id=again]"
	r.do(whole)
	for _, n := range []int{8<<10 - 50, 256<<10 - 30} { // the address is cut within the secret, then the text
		fill(strings.Repeat("u", n))
		at := fmt.Sprint(r.do(send).Metadata["url"])
		if text := r.do(r.request("extract", "")).Output; strings.Contains(at, "tr0") || strings.Contains(text, "tr0") {
			t.Errorf("after %d other bytes: the address ends with %q, the text with %q, want neither to show a part of the secret", n,
				at[max(0, len(at)-60):], text[max(0, len(text)-60):])
		}
	}
}

func TestPicturesAndDocumentsAreFilesOfTheWorkingFolder(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	check := func(req browser.Request, name, mime string) []byte {
		t.Helper()
		got := r.do(req)
		list := got.Made
		if len(list) != 1 || list[0].Name != name || list[0].MIME != mime {
			t.Fatalf("%+v; want len(list) = 1, list[0].Name = %v, list[0].MIME = %v", got, name, mime)
		}
		data, err := os.ReadFile(filepath.Join(r.work, "artifacts", name))
		sum := sha256.Sum256(data)
		if err != nil || len(data) != list[0].Size || hex.EncodeToString(sum[:]) != list[0].SHA256 {
			t.Errorf("%+v %v; want no error, len(data) = list[0].Size, hex.EncodeToString(sum[:]) = list[0].SHA256", list, err)
		}
		return data
	}
	shot := r.request("screenshot", r.site.URL+"/tall")
	small, err := png.Decode(bytes.NewReader(check(shot, "screenshot-run_1.png", "image/png")))
	if err != nil {
		t.Fatal(err)
	}
	shot.Run, shot.Full = "run_2", true
	whole, err := png.Decode(bytes.NewReader(check(shot, "screenshot-run_2.png", "image/png")))
	if err != nil || whole.Bounds().Dy() < 3000 || small.Bounds().Dy() >= 3000 {
		t.Errorf("%v %v %v; want no error, whole.Bounds().Dy() at least 3000, small.Bounds().Dy() less than 3000",
			small.Bounds(), whole.Bounds(), err)
	}
	if data := check(r.request("pdf", ""), "page-run_1.pdf", "application/pdf"); !bytes.HasPrefix(data, []byte("%PDF-")) {
		t.Errorf(`%.20q; want bytes.HasPrefix(data, []byte("%%PDF-"))`, data)
	}
	if _, err := r.Do(t.Context(), shot); reasonOf(err) != "failed execution_failed" {
		t.Errorf(`a file was written twice: %v; want reasonOf(err) = "failed execution_failed"`, err)
	}
	outside := t.TempDir()
	if err := os.RemoveAll(filepath.Join(r.work, "artifacts")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(r.work, "artifacts")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Do(t.Context(), shot); reasonOf(err) != "denied security_violation" {
		t.Errorf(`%v; want reasonOf(err) = "denied security_violation"`, err)
	}
	if list, _ := os.ReadDir(outside); len(list) != 0 {
		t.Errorf("%v; want len(list) = 0", list)
	}
}

func TestWhereABrowserMayNotGo(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, address := range []string{
		"file:///etc/passwd", "FILE:///etc/passwd", "chrome://version", "chrome:version", "view-source:" + r.site.URL, "javascript:alert(1)",
		"data:text/html,x", "about:blank", "devtools://devtools/x", "ftp://127.0.0.1/", "//x", "/etc/passwd", "",
		"http://user:word@" + r.site.Listener.Addr().String() + "/", r.other.URL + "/", "http://127.0.0.1:3128/",
		"http://localhost:" + port(t, r.site) + "/", "http://[::1]:" + port(t, r.site) + "/", "http://0x7f000001:" + port(t, r.site) + "/",
		r.site.URL + "/redirect?to=" + r.other.URL + "/landed", r.site.URL + "/redirect?to=file:///etc/passwd",
		r.site.URL + "/redirect?to=chrome://version",
		"http://" + strings.Repeat("x", 9000) + "/",
	} {
		got, err := r.Do(t.Context(), r.request("navigate", address))
		if want := "denied security_violation"; reasonOf(err) != want && reasonOf(err) != "invalid_input invalid_args" &&
			!(strings.Contains(address, "=file") || strings.Contains(address, "=chrome")) || err == nil {
			t.Errorf("%.80s: %+v %v", address, got, err)
		}
	}
	r.do(r.request("navigate", r.site.URL+"/embeds"))
	req := r.request("extract", "")
	if text := r.do(req).Output; !strings.Contains(text, "embedded") || strings.Contains(text, "root:") {
		t.Errorf(`%q; want text with "embedded", text without "root:"`, text)
	}
	for _, id := range []string{"#out", "#file", "#blank"} {
		click := r.request("click", r.site.URL+"/leaves")
		click.Selector = id
		got, err := r.Do(t.Context(), click)
		if id == "#out" && reasonOf(err) != "denied security_violation" || err == nil && got.Metadata["url"] != r.site.URL+"/leaves" {
			t.Errorf(`%s: %+v %v; want not (id == "#out" && reasonOf(err) != "denied security_violation"), not (err == nil && `+
				`got.Metadata["url"] != r.site.URL+"/leaves")`, id, got, err)
		}
	}
	if there := r.askedOther(); there != nil {
		t.Errorf("the other site was reached: %q; want there = nil", there)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := strings.Join(r.heard, "\n")
	if !strings.Contains(heard, "egress_denied 127.0.0.1:"+port(t, r.other)) ||
		!strings.Contains(heard, "egress_allowed 127.0.0.1:"+port(t, r.site)) ||
		strings.Contains(heard, "egress_allowed 127.0.0.1:"+port(t, r.other)) {
		t.Errorf("decisions = %q, want the site allowed and the other server denied", heard)
	}
}

func TestBrowsersAreApartAndEnd(t *testing.T) {
	t.Parallel()
	r := start(t, func(cfg *browser.Config) { cfg.Most = 2 })
	r.do(r.request("navigate", r.site.URL+"/"))
	other := r.request("extract", "")
	other.Principal = "agent:y"
	if text := r.do(other).Output; text != "\n" {
		t.Errorf(`another principal sees the page: %q; want text = "\n"`, text)
	}
	third := r.request("extract", "")
	third.Session = "t"
	r.do(third) // the browser that is idle longest ends for it
	r.Retain(func(extension, digest string) bool { return false })
	await(t, "all end", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.ends) == 3 })
	single := r.request("extract", r.site.URL+"/")
	single.Session = ""
	if text := r.do(single).Output; !strings.Contains(text, "pears") {
		t.Errorf(`%q; want text with "pears"`, text)
	}
	r.mu.Lock()
	if len(r.ends) != 4 {
		t.Errorf("a browser without a session is left; got len(r.ends) = %v; want len(r.ends) = 4", len(r.ends))
	}
	r.mu.Unlock()
	changed := r.request("navigate", r.site.URL+"/dialog")
	r.do(changed)
	changed.Digest, changed.Action, changed.URL = "2", "extract", ""
	if text := r.do(changed).Output; text != "\n" {
		t.Errorf(`a changed extension goes on: %q; want text = "\n"`, text)
	}
	slow := r.request("navigate", r.site.URL+"/slow")
	slow.Digest, slow.Timeout = "2", time.Second
	if _, err := r.Do(t.Context(), slow); reasonOf(err) != "timeout timeout" {
		t.Errorf(`%v; want reasonOf(err) = "timeout timeout"`, err)
	}
	r.Close()
	if _, err := r.Do(t.Context(), changed); capability.CodeOf(err) != capability.CodeUnavailable {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
	}
	if left := orphans(t); left != "" {
		t.Errorf(`left behind: %s; want left = ""`, left)
	}
}

func TestAPageThatTakesAllMemory(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	_, err := r.Do(t.Context(), r.request("navigate", r.site.URL+"/hungry"))
	if reason := reasonOf(err); reason != "failed resource_limit" && reason != "timeout timeout" { // a busy machine is slow to fill its memory
		t.Errorf(`%v; want not (reason != "failed resource_limit" && reason != "timeout timeout")`, err)
	}
	if got := r.do(r.request("navigate", r.site.URL+"/")); got.Metadata["title"] != "Fruit" {
		t.Errorf(`%+v; want got.Metadata["title"] = "Fruit"`, got)
	}
}

func TestAnUnusedBrowserEnds(t *testing.T) {
	t.Parallel()
	r := start(t, func(cfg *browser.Config) { cfg.Idle = 100 * time.Millisecond })
	r.do(r.request("navigate", r.site.URL+"/"))
	await(t, "it ends", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.ends) == 1 })
	if text := r.do(r.request("extract", "")).Output; text != "\n" {
		t.Errorf(`%q; want text = "\n"`, text)
	}
}

func TestWithoutABrowser(t *testing.T) {
	t.Parallel()
	b := browser.New(browser.Config{Programs: []string{filepath.Join(t.TempDir(), "none")}})
	defer b.Close()
	_, err := b.Do(t.Context(), browser.Request{Action: "navigate", URL: "http://a.example/", Session: "s"})
	if reasonOf(err) != "unavailable tool_not_found" {
		t.Errorf(`%v; want reasonOf(err) = "unavailable tool_not_found"`, err)
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("time.Now().After(deadline) = true, want false; what = %q", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// orphans are processes of browsers of ours whose parent is gone.
func orphans(t *testing.T) string {
	t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if _, rest, ok := strings.Cut(string(stat), "(chromium) "); ok && strings.Fields(rest)[1] == "1" && strings.Fields(rest)[0] != "Z" {
			return name
		}
	}
	return ""
}
