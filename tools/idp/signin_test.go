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
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, program: filepath.Join(t.TempDir(), "junctor"), home: filepath.Join(t.TempDir(), "home")}
	if out, err := exec.Command("make", "-C", repository, "console").CombinedOutput(); err != nil {
		t.Fatalf("make console: %v\n%s", err, out)
	}
	build := exec.Command("go", "build", "-o", r.program, "./cmd/junctor")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("finding a free port: %v", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	if err := listener.Close(); err != nil {
		t.Fatalf("releasing the port: %v", err)
	}
	redirect := fmt.Sprintf("http://localhost:%d/console/oidc", address.Port)
	if r.idp, err = Start("junctor", "s:3cret/", redirect); err != nil {
		t.Fatalf("starting the provider: %v", err)
	}
	t.Cleanup(func() { _ = r.idp.Close() })
	r.idp.SetGroups("ann", "staff", "ops")
	r.idp.SetGroups("cleo", "staff")
	secrets := t.TempDir()
	if err := os.WriteFile(filepath.Join(secrets, "idp"), []byte("s:3cret/"), 0o600); err != nil {
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
		if log := fmt.Sprint(server.Stderr); strings.Contains(log, "3cret") {
			t.Errorf("the server's log has the client's secret: %s", log)
		}
	})
	r.url = ready.URL
	return r
}

// run runs the command line and returns what it prints.
func (r *rig) run(args ...string) (stdout, stderr string, status int) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), r.program, append(args, "--home", r.home)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		r.t.Fatalf("junctor %q: %v", args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// login runs junctor login, and confirms or denies it at the provider as a user.
func (r *rig) login(user, action string) (stdout, stderr string, status int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program, "login", "--home", r.home)
	var out, rest bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.t.Fatalf("junctor login: %v", err)
	}
	var address string
	lines := bufio.NewReader(errs)
	for address == "" {
		line, err := lines.ReadString('\n')
		if rest.WriteString(line); err != nil {
			break
		}
		if text := strings.TrimSpace(line); strings.HasPrefix(text, "http") {
			address = text
		}
	}
	if address != "" {
		r.confirm(address, user, action)
	}
	_, _ = io.Copy(&rest, lines)
	_ = cmd.Wait()
	return out.String(), rest.String(), cmd.ProcessState.ExitCode()
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
	if out, errs, status = r.run("logout"); status != 0 || out != "signed out\n" || errs != "" {
		t.Errorf("junctor logout: status %d, got %q %q, want signed out", status, out, errs)
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
	r.idp.SetRedirect("http://localhost:1/console/oidc")
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
