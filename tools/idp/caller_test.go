package idp

import (
	"bytes"
	"encoding/json"
	"errors"
	"html"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// newUpstream adds an MCP server whose authorization server is the provider, with a login for each. At
// the end it looks for tokens in the home and, as newRig does, in the log.
func newUpstream(r *rig, args ...string) *notes {
	r.t.Helper()
	n := newNotes(r.t, r.idp)
	r.t.Cleanup(func() {
		for _, call := range n.Calls() {
			r.hidden = append(r.hidden, call.Token)
		}
		for _, form := range append(r.idp.Forms(Native), r.idp.Forms(Web)...) {
			for _, name := range []string{"code", "code_verifier", "refresh_token"} {
				if value := form.Get(name); value != "" {
					r.hidden = append(r.hidden, value)
				}
			}
		}
		r.searchHome()
		if got := n.Faults(); len(got) > 0 {
			r.t.Errorf("sessions: got %q, want each used with the token of one subject", got)
		}
	})
	args = append([]string{"mcp", "add", "notes", "--url", n.URL + "/mcp", "--local", "--login", "each", "--trust-hints=yes"}, args...)
	if out, errs, status := r.run(args...); status != 0 {
		r.t.Fatalf("junctor mcp add: status %d, got %s%s, want 0", status, out, errs)
	}
	return n
}

// searchHome reports the files of the home that have something hidden in plain text.
func (r *rig) searchHome() {
	r.t.Helper()
	err := filepath.WalkDir(r.home, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !entry.Type().IsRegular() {
			return nil
		}
		var data []byte
		if err == nil {
			data, err = os.ReadFile(path)
		}
		for _, word := range r.hidden {
			if bytes.Contains(data, []byte(word)) {
				r.t.Errorf("the file %s of the home: got the secret %q, want it encrypted or absent", entry.Name(), word)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // of a database, for example
			return nil
		}
		return err
	})
	if err != nil {
		r.t.Errorf("reading the home: %v", err)
	}
}

// caller is a principal, and the rig whose commands act as it.
type caller struct {
	*rig
	principal string
	bearer    string // its token
}

// signIn signs a person in to the server, with a home of their own.
func (r *rig) signIn(user string) *caller {
	r.t.Helper()
	own := *r
	own.home, own.far = filepath.Join(r.t.TempDir(), user), true
	if out, errs, status := own.login(user, "allowed"); status != 0 {
		r.t.Fatalf("junctor login as %s: status %d, got %s%s, want 0", user, status, out, errs)
	}
	var kept struct{ Token, Principal string }
	data, err := os.ReadFile(filepath.Join(own.home, "login.json"))
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		r.t.Fatalf("login.json of %s: %v", user, err)
	}
	return &caller{&own, kept.Principal, kept.Token}
}

// localAgent returns the principal of the agent token of the home.
func (r *rig) localAgent() *caller {
	r.t.Helper()
	token, err := os.ReadFile(filepath.Join(r.home, "run", "agent.token"))
	if err != nil {
		r.t.Fatalf("reading the token of the agent: %v", err)
	}
	own := *r
	own.token = strings.TrimSpace(string(token))
	return &caller{&own, "agent:local-agent", own.token}
}

// calls calls the tool and requires the subject of its token.
func (c *caller) calls(subject string) {
	c.t.Helper()
	out, errs, status := c.run("invoke", "mcp.notes:tool:whoami", "{}")
	if status != 0 || !strings.Contains(out, "you are "+subject) {
		c.t.Errorf("a call of %s: status %d, got %s%s, want the subject %s", c.principal, status, out, errs, subject)
	}
}

// needsLogin calls the tool and requires the error that names the login of the caller.
func (c *caller) needsLogin(hint string) {
	c.t.Helper()
	out, errs, status := c.run("invoke", "mcp.notes:tool:whoami", "{}", "--json")
	var failed struct {
		Error struct{ Code, Reason, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(out), &failed); err != nil || status == 0 || failed.Error.Reason != "login_required" ||
		!strings.Contains(failed.Error.Hint, hint) {
		c.t.Errorf("a call of %s: status %d, got %s%s, %v, want the reason login_required and the hint %q",
			c.principal, status, out, errs, err, hint)
	}
}

// logIn logs in to the upstream, as a user of the provider.
func (r *rig) logIn(user string, args ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	s := r.start(append([]string{"mcp", "login", "notes"}, args...)...)
	if s.address != "" {
		b := newBrowser(r.t)
		b.open(s.address)
		if b.submit(user); b.status != http.StatusOK || !strings.Contains(b.page, "close this window") {
			r.t.Errorf("the last page for %s: got %d %q, want the one that the answer has arrived", user, b.status, b.page)
			s.cancel()
		}
	}
	return s.wait()
}

// logsIn requires that a login succeeds for a principal.
func (r *rig) logsIn(principal, user string, args ...string) {
	r.t.Helper()
	out, errs, status := r.logIn(user, args...)
	if want := principal + " is logged in to notes\n"; status != 0 || out != want {
		r.t.Fatalf("junctor mcp login: status %d, got %q %q, want %q", status, out, errs, want)
	}
}

// answer sends the query of a redirect to the server, as junctor mcp login does.
func (c *caller) answer(query string) (status int, body string) {
	c.t.Helper()
	data, _ := json.Marshal(map[string]string{"answer": query})
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/api/v1/upstreams/notes/login", bytes.NewReader(data))
	if err != nil {
		c.t.Fatalf("the answer of %s: %v", c.principal, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.bearer)
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		c.t.Fatalf("the answer of %s: %v", c.principal, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("the answer of %s: %v", c.principal, err)
	}
	return resp.StatusCode, string(text)
}

// browser shows pages and follows redirects, with the cookies of one person.
type browser struct {
	t      *testing.T
	client *http.Client
	stop   bool // at a redirect to the command that waits; the address is then in back

	at     *url.URL
	back   *url.URL
	status int
	page   string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatalf("making a cookie jar: %v", err)
	}
	b := &browser{t: t}
	b.client = &http.Client{Jar: jar, Timeout: time.Minute, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if b.stop && req.URL.Path == "/callback" {
			b.back = req.URL
			return http.ErrUseLastResponse
		}
		return nil
	}}
	return b
}

func (b *browser) load(resp *http.Response, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("the browser: %v", err)
	}
	b.at, b.status, b.page = resp.Request.URL, resp.StatusCode, string(page)
}

// open opens an address.
func (b *browser) open(address string) {
	b.t.Helper()
	b.load(b.client.Get(address))
}

// submit fills in the login form that is shown, and sends it.
func (b *browser) submit(user string) {
	b.t.Helper()
	action := regexp.MustCompile(`<form method="POST" action="([^"]+)"`).FindStringSubmatch(b.page)
	id := regexp.MustCompile(`<input type="hidden" name="id" value="([^"]+)"`).FindStringSubmatch(b.page)
	if action == nil || id == nil {
		b.t.Fatalf("the page at %s: got %d %q, want a login form", b.at, b.status, b.page)
	}
	to, err := b.at.Parse(html.UnescapeString(action[1]))
	if err != nil {
		b.t.Fatalf("the form's address: %v", err)
	}
	b.load(b.client.PostForm(to.String(), url.Values{
		"id": {html.UnescapeString(id[1])}, "username": {user}, "password": {"secret"},
	}))
}
