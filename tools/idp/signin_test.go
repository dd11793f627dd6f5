package idp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const repository = "../.."

// rig is a server whose people sign in with a provider of others.
type rig struct {
	t       *testing.T
	idp     *Provider
	program string
	home    string
	url     string
	far     bool     // commands name the server, because home is that of a person
	token   string   // of commands, if not that of the home
	hidden  []string // what the server's log must not have
}

// built builds the program with its console once, and returns its file.
var built = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command("make", "-C", repository, "console").CombinedOutput(); err != nil {
		return "", fmt.Errorf("make console: %w: %s", err, out)
	}
	path := filepath.Join(folder, "junctor")
	build := exec.Command("go", "build", "-o", path, "./cmd/junctor")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})

// folder is that of the built program.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "junctor-idp-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	const secret = "s:3cret/"
	r := &rig{
		t: t, home: filepath.Join(t.TempDir(), "home"),
		hidden: []string{"3cret", url.QueryEscape(secret)},
	}
	program, err := built()
	if err != nil {
		t.Fatalf("building the program: got %v, want no error", err)
	}
	r.program = program
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("finding a free port: %v", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil {
		t.Fatalf("releasing the port: %v", err)
	}
	redirect := fmt.Sprintf("http://localhost:%d/console/oidc", address.Port)
	if r.idp, err = Start("junctor", secret, redirect); err != nil {
		t.Fatalf("starting the provider: %v", err)
	}
	t.Cleanup(func() { _ = r.idp.Close() })
	r.idp.SetGroups("ann", "staff", "ops")
	r.idp.SetGroups("cleo", "staff")
	secrets := t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "idp"), []byte(secret), 0o600); err != nil {
		t.Fatalf("writing the client's secret: %v", err)
	}
	if err := os.Mkdir(r.home, 0o700); err != nil {
		t.Fatalf("making the home: %v", err)
	}
	config := fmt.Sprintf("listen: %s\nsecrets_dir: %s\noidc:\n  issuer: %s\n  client_id: junctor\n  client_secret: idp\n"+
		"  roles: [\"group:ops=operator\", \"group:staff=agent\"]\n", address, secrets, r.idp.Issuer)
	if err := os.WriteFile(filepath.Join(r.home, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatalf("writing config.yaml: %v", err)
	}
	server := exec.CommandContext(t.Context(), r.program, "serve", "--home", r.home)
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	server.Stderr = &bytes.Buffer{}
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	var ready struct{ URL string }
	if err == nil {
		err = json.NewDecoder(out).Decode(&ready)
	}
	if err != nil {
		t.Fatalf("the server does not start: %v\n%s", err, server.Stderr)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		if t.Failed() {
			t.Logf("the server's log:\n%s", server.Stderr)
		}
		log := fmt.Sprint(server.Stderr)
		for _, word := range r.hidden {
			if strings.Contains(log, word) {
				t.Errorf("the server's log: got %s, want it without the secret %q", log, word)
			}
		}
	})
	r.url = ready.URL
	return r
}

// command returns the command line with these arguments.
func (r *rig) command(ctx context.Context, args ...string) *exec.Cmd {
	if args = append(args, "--home", r.home); r.far {
		args = append(args, "--server", r.url)
	}
	if r.token != "" {
		args = append(args, "--token", r.token)
	}
	return exec.CommandContext(ctx, r.program, args...)
}

// run runs the command line and returns what it prints.
func (r *rig) run(args ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	cmd := r.command(r.t.Context(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		r.t.Fatalf("junctor %q: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// started is a command that waits for what a person does in a browser.
type started struct {
	address string // for the browser; "" if the command ended without one
	cmd     *exec.Cmd
	cancel  context.CancelFunc
	lines   *bufio.Reader
	out     bytes.Buffer
	errs    bytes.Buffer
}

// start starts a command, and returns when it has printed an address for a browser or has ended.
func (r *rig) start(args ...string) *started {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	s := &started{cmd: r.command(ctx, args...), cancel: cancel}
	s.cmd.Stdout = &s.out
	errs, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		cancel()
		r.t.Fatalf("junctor %q: %v", args, err)
	}
	s.lines = bufio.NewReader(errs)
	for s.address == "" {
		line, err := s.lines.ReadString('\n')
		if s.errs.WriteString(line); err != nil {
			break
		}
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "http") {
			s.address = text
		}
	}
	return s
}

// wait returns what the command has printed when it ends.
func (s *started) wait() (stdout, stderr string, status int) {
	defer s.cancel()
	_, _ = io.Copy(&s.errs, s.lines)
	_ = s.cmd.Wait()
	return s.out.String(), s.errs.String(), s.cmd.ProcessState.ExitCode()
}

// login runs junctor login, and confirms or denies it at the provider as a user.
func (r *rig) login(user, action string) (stdout, stderr string, status int) {
	r.t.Helper()
	s := r.start("login")
	if s.address != "" {
		r.confirm(s.address, user, action)
	}
	return s.wait()
}

// confirm does what a person does in a browser.
func (r *rig) confirm(address, user, action string) {
	r.t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		r.t.Fatalf("the address %q: %v", address, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatalf("making a cookie jar: %v", err)
	}
	browser := &http.Client{Jar: jar}
	resp, err := browser.PostForm(r.idp.Issuer+"/device/login", url.Values{
		"user_code": {u.Query().Get("user_code")}, "username": {user}, "password": {"secret"},
	})
	if err == nil {
		resp.Body.Close()
		resp, err = browser.Get(r.idp.Issuer + "/device/confirm?action=" + action)
	}
	if err != nil {
		r.t.Fatalf("confirming as %s: %v", user, err)
	}
	defer resp.Body.Close()
	if page, err := io.ReadAll(resp.Body); err != nil || !bytes.Contains(page, []byte("Device authorization "+action)) {
		r.t.Fatalf("confirming as %s: got %q, %v, want it %s", user, page, err, action)
	}
}

// leave opens an address of the provider, and returns the one to which it sends the browser.
func (r *rig) leave(address string) string {
	r.t.Helper()
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := browser.Get(address)
	if err != nil {
		r.t.Fatalf("opening %s: %v", address, err)
	}
	defer resp.Body.Close()
	return resp.Header.Get("Location")
}

// browse signs a user in at the console, as its page does, and signs out again. It returns the address
// of the provider that the sign-out names.
func (r *rig) browse(user string) string {
	r.t.Helper()
	base := strings.Replace(r.url, "127.0.0.1", "localhost", 1)
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatalf("making a cookie jar: %v", err)
	}
	var back string
	browser := &http.Client{Jar: jar, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(req.URL.String(), base) {
			back = req.URL.RawQuery
			return http.ErrUseLastResponse
		}
		return nil
	}}
	ask := func(method, path string, body, out any, half string) {
		r.t.Helper()
		data, _ := json.Marshal(body)
		req, err := http.NewRequestWithContext(r.t.Context(), method, base+path, bytes.NewReader(data))
		if err != nil {
			r.t.Fatalf("%s %s: %v", method, path, err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Junctor-Console", half)
		resp, err := browser.Do(req)
		if err != nil {
			r.t.Fatalf("%s %s: %v", method, path, err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode >= 300 || json.Unmarshal(text, out) != nil {
			r.t.Fatalf("%s %s: got %d %s, %v, want an object", method, path, resp.StatusCode, text, err)
		}
	}
	var begun struct{ URL, Login string }
	ask("POST", "/console/login", map[string]string{}, &begun, "")
	resp, err := browser.Get(begun.URL)
	if err != nil {
		r.t.Fatalf("opening the provider: %v", err)
	}
	resp.Body.Close()
	resp, err = browser.PostForm(resp.Request.URL.String(), url.Values{
		"id": {resp.Request.URL.Query().Get("authRequestID")}, "username": {user}, "password": {"secret"},
	})
	if err != nil {
		r.t.Fatalf("signing in as %s: %v", user, err)
	}
	resp.Body.Close()
	answer, err := url.ParseQuery(back)
	if err != nil || answer.Get("code") == "" {
		r.t.Fatalf("the provider sends %s back with %q, %v, want a code", user, back, err)
	}
	var session struct{ Secret string }
	ask("POST", "/console/session", map[string]string{"login": begun.Login, "code": answer.Get("code"), "state": answer.Get("state")}, &session, "")
	var end struct{ URL string }
	ask("DELETE", "/console/session", nil, &end, session.Secret)
	return end.URL
}

func TestASignOutOfTheConsoleGoesOnAtTheProvider(t *testing.T) {
	r := newRig(t)
	address := r.browse("ann")
	u, err := url.Parse(address)
	if err != nil || !strings.HasPrefix(address, r.idp.Issuer+"/") || u.Query().Get("id_token_hint") == "" || u.Query().Get("state") == "" {
		t.Fatalf("the sign-out: got %q, %v, want the provider's address with the person's token and a state", address, err)
	}
	want := strings.Replace(r.url, "127.0.0.1", "localhost", 1) + "/console/signed-out?state=" + u.Query().Get("state")
	if got := r.leave(address); got != want {
		t.Errorf("the provider sends the browser to %q, want %q", got, want)
	}
	if got := r.idp.Ended("ann"); got != 1 {
		t.Errorf("sessions that the provider has ended: got %d, want 1", got)
	}
}

func TestPeopleSignInAtTheCommandLine(t *testing.T) {
	r := newRig(t)
	out, errs, status := r.run("doctor")
	if !regexp.MustCompile(`(?m)^ok +sign-in`).MatchString(out) {
		t.Errorf("junctor doctor: status %d, got %s%s, want the finding sign-in to be ok", status, out, errs)
	}
	out, errs, status = r.login("ann", "allowed")
	const ann = `operator:oidc-ann@example\.org-[0-9a-f]{12}`
	if status != 0 || !regexp.MustCompile(`^signed in as `+ann+` until `).MatchString(out) {
		t.Fatalf("junctor login: status %d, got %q %q, want it to sign in as ann", status, out, errs)
	}
	info, err := os.Stat(filepath.Join(r.home, "login.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("login.json: got %v, %v, want a file that only its user reads", info, err)
	}
	var kept struct{ Token, Principal string }
	data, err := os.ReadFile(filepath.Join(r.home, "login.json"))
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatalf("login.json: %v", err)
	}
	// Commands now act as the person, whose role is operator.
	if out, errs, status = r.run("policy", "grants", "create", "--principal", "agent:local-agent", "--action", "fs.writeText"); status != 0 {
		t.Errorf("a command of an operator: status %d, got %q %q, want 0", status, out, errs)
	}
	if out, _, _ = r.run("audit", "query", "--event", "grant_created", "--json"); !strings.Contains(out, kept.Principal) {
		t.Errorf("the record of the grant: got %s, want %s as its maker", out, kept.Principal)
	}
	if out, _, _ = r.run("audit", "query", "--event", "login", "--json"); !strings.Contains(out, "ann@example.org") || strings.Contains(out, kept.Token) {
		t.Errorf("the record of the sign-in: got %s, want the address, and not the token", out)
	}
	// The link of the console belongs to the person, not to this sign-in.
	if out, errs, status = r.run("console"); status != 0 || !strings.Contains(out, "/console/#c=") {
		t.Errorf("junctor console: status %d, got %q %q, want a link", status, out, errs)
	}
	if out, errs, status = r.run("logout"); status != 0 || out != "signed out\n" {
		t.Errorf("junctor logout: status %d, got %q %q, want signed out", status, out, errs)
	}
	// The address that signs the browser out at the provider is shown, and the provider accepts it.
	address := regexp.MustCompile(regexp.QuoteMeta(r.idp.Issuer) + `/end_session\S*`).FindString(errs)
	if address == "" || strings.Contains(address, "id_token_hint") {
		t.Fatalf("junctor logout: got %q, want the address of the provider without the person's token", errs)
	}
	if got, want := r.leave(address), strings.Replace(r.url, "127.0.0.1", "localhost", 1)+"/console/signed-out?state="; !strings.HasPrefix(got, want) {
		t.Errorf("the provider sends the browser to %q, want %s", got, want)
	}
	if out, errs, status = r.run("tokens", "list", "--token", kept.Token); status != 3 {
		t.Errorf("the token after the logout: status %d, got %q %q, want 3", status, out, errs)
	}
	if _, errs, status = r.run("logout"); status != 1 || !strings.Contains(errs, "you are not signed in") {
		t.Errorf("junctor logout again: status %d, got %q, want 1", status, errs)
	}

	// bob is in no group, and his address is not verified.
	if out, errs, status = r.login("bob", "allowed"); status != 3 || !strings.Contains(errs, "id-bob has signed in") ||
		!strings.Contains(errs, "may not use this server") {
		t.Errorf("a person without a role: status %d, got %q %q, want 3 and the reason", status, out, errs)
	}
	if out, errs, status = r.login("ann", "denied"); status != 3 || !strings.Contains(errs, "did not sign you in") {
		t.Errorf("a person who refuses: status %d, got %q %q, want 3", status, out, errs)
	}

	// A person who may less than before loses what was signed in before.
	if out, errs, status = r.login("ann", "allowed"); status != 0 {
		t.Fatalf("signing in again: status %d, got %q %q, want 0", status, out, errs)
	}
	if data, err = os.ReadFile(filepath.Join(r.home, "login.json")); err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		t.Fatalf("login.json: %v", err)
	}
	r.idp.SetGroups("ann")
	if out, errs, status = r.login("ann", "allowed"); status != 3 || !strings.Contains(errs, "may not use this server") {
		t.Errorf("ann without groups: status %d, got %q %q, want 3", status, out, errs)
	}
	if out, errs, status = r.run("tokens", "list"); status != 3 {
		t.Errorf("what was signed in before: status %d, got %q %q, want 3", status, out, errs)
	}

	if out, errs, status = r.run("logout"); status != 0 || errs != "" {
		t.Errorf("a logout of a sign-in that was ended: status %d, got %q %q, want 0 and no warning", status, out, errs)
	}
	// What the doctor finds.
	r.idp.SetSignedOut("junctor", "http://localhost:1/console/signed-out")
	if out, _, _ = r.run("doctor"); !strings.Contains(out, "refuses to come back to "+strings.Replace(r.url, "127.0.0.1", "localhost", 1)+"/console/signed-out") {
		t.Errorf("junctor doctor with another address for after a logout: got %s, want it named", out)
	}
	r.idp.SetRedirect("junctor", "http://localhost:1/console/oidc")
	if out, _, _ = r.run("doctor"); !strings.Contains(out, "refuses sign-ins that come back to "+strings.Replace(r.url, "127.0.0.1", "localhost", 1)) {
		t.Errorf("junctor doctor with another registered address: got %s, want it named", out)
	}
	if err := r.idp.Close(); err != nil {
		t.Fatalf("stopping the provider: %v", err)
	}
	if out, _, _ = r.run("doctor"); !strings.Contains(out, "cannot be used now") {
		t.Errorf("junctor doctor without the provider: got %s, want it to be out of reach", out)
	}
}

func TestPeopleSignInToTheConsole(t *testing.T) {
	missing := ""
	if _, err := exec.LookPath("node"); err != nil {
		missing = "node"
	} else if _, err := os.Stat(repository + "/interop/node_modules/playwright-core"); err != nil {
		missing = "playwright-core (make interop-deps)"
	}
	if missing != "" {
		if os.Getenv("INTEROP_REQUIRED") != "" {
			t.Fatalf("%s is missing, want everything that the test needs", missing)
		}
		t.Skip(missing + " is missing")
	}
	browsers := []string{"/usr/lib/chromium/chromium", "/opt/google/chrome/chrome"}
	if _, first := os.Stat(browsers[0]); first != nil {
		if _, second := os.Stat(browsers[1]); second != nil {
			t.Skip("chromium is not installed")
		}
	}
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	driver := exec.CommandContext(ctx, "node", "signin.mjs", r.url, strings.TrimPrefix(r.idp.Issuer, "http://"), os.Getenv("PICTURES"))
	driver.Dir = repository + "/interop/console"
	driver.Stderr = os.Stderr
	printed, err := driver.Output()
	if err != nil {
		t.Fatalf("the browser's script: %v\n%s", err, printed)
	}
	var seen struct {
		Violations, Errors, Axe                          []string
		Principal, Address, Other, Again, Changed        string
		Bob, Cleo                                        string
		SecondTab, Reloaded, SignedOut, Wide, KeptInPage bool
	}
	if err := json.Unmarshal(printed, &seen); err != nil {
		t.Fatalf("the browser's answer: %v in %.300s, want one JSON object", err, printed)
	}
	for name, list := range map[string][]string{
		"violations of the content policy": seen.Violations, "errors of the page": seen.Errors, "serious findings of accessibility": seen.Axe,
	} {
		if len(list) > 0 {
			t.Errorf("%s: got %q, want none", name, list)
		}
	}
	if !regexp.MustCompile(`^operator:oidc-ann@example\.org-[0-9a-f]{12}$`).MatchString(seen.Principal) {
		t.Errorf("the console belongs to %q, want ann", seen.Principal)
	}
	if seen.Address != "/console/approvals" || !seen.SecondTab || !seen.Reloaded || !seen.SignedOut || seen.Wide || seen.KeptInPage {
		t.Errorf("got %+v, want the page of before without the code, a second tab and a reload that are signed in, and a sign-out", seen)
	}
	for name, got := range map[string]string{
		"the answer in another browser": seen.Other, "the answer again": seen.Again, "an answer with another state": seen.Changed,
	} {
		if !strings.Contains(got, "this sign-in was not begun in this browser") {
			t.Errorf("%s: the page shows %q, want a refusal", name, got)
		}
	}
	if !strings.Contains(seen.Bob, "id-bob has signed in") || !strings.Contains(seen.Bob, "oidc.roles") ||
		!strings.Contains(seen.Cleo, "the console is for operators") {
		t.Errorf("bob sees %q and cleo %q, want why they are refused", seen.Bob, seen.Cleo)
	}
	if out, _, _ := r.run("audit", "query", "--event", "login_failed", "--json"); !strings.Contains(out, "id-bob") {
		t.Errorf("the record of the refusal: got %s, want the subject id-bob", out)
	}
}
