package browser

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// Limits of one browser. Those of the extension do not apply, because a browser does
// not start with less.
const (
	memory     = 2 << 30 // bytes of the whole process tree
	pageMemory = 512     // MiB of a page's scripts
	processes  = 512
	openFiles  = 4096
	fileSize   = 512 << 20
	tempSize   = 1 << 30 // bytes of profile, cache and shared memory
	proxyAt    = "127.0.0.1:3128"
)

// candidates returns the usual paths of Chromium-family browsers: the executables, not
// the wrapper scripts that start them with settings of the machine.
func candidates() []string {
	return []string{
		"/usr/lib/chromium/chromium", "/usr/lib/chromium-browser/chromium-browser", "/usr/lib64/chromium-browser/chromium-browser",
		"/opt/google/chrome/chrome", "/opt/chromium.org/chromium/chromium-browser", "/opt/microsoft/msedge/msedge", "/opt/brave.com/brave/brave",
		"/usr/bin/chromium-headless-shell",
	}
}

// find returns the path of the first installed browser, or the error tool_not_found.
func (b *Browsers) find() (string, error) {
	list := b.cfg.Programs
	if list == nil {
		list = candidates()
	}
	for _, path := range list {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fault.ToolNotFound("chromium")
}

// room returns the confinement of a browser: tier T3, no files of the extension or the
// server, the network only through the proxy under the request's policy.
func room(program string, req Request, heard func(egress.Decision)) sandbox.Confinement {
	c := sandbox.Confinement{
		MinTier: sandbox.T3, Network: sandbox.NetworkProxy, Egress: req.Policy, OnEgress: heard, UID: req.User, GID: req.User,
		ReadOnly: []string{"/etc/fonts"},
		Limits: sandbox.Limits{
			Memory: memory, AddressSpace: -1, Processes: processes, CPU: cpuTimeout, Cores: 2, FileSize: fileSize,
			OpenFiles: openFiles, Temp: tempSize,
		},
	}
	c.ReadOnly = slices.DeleteFunc(c.ReadOnly, func(dir string) bool { _, err := os.Stat(dir); return err != nil })
	if !strings.HasPrefix(program, "/usr/") {
		c.ReadOnly = append(c.ReadOnly, filepath.Dir(program))
	}
	return c
}

// arguments returns the command line: headless, controlled over pipes, without
// connections to the vendor, and without Chromium's own sandbox, because the server's
// sandbox forbids the system calls it needs.
func arguments() []string {
	return []string{
		"--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--no-startup-window", "--user-data-dir=/tmp/profile",
		"--disk-cache-size=" + strconv.Itoa(64<<20),
		"--proxy-server=http://" + proxyAt, "--proxy-bypass-list=<-loopback>", "--disable-quic",
		"--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
		"--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-default-browser-check", "--no-pings", "--no-service-autorun",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-default-apps",
		"--disable-breakpad", "--disable-crash-reporter",
		"--disable-domain-reliability", "--disable-client-side-phishing-detection", "--disable-notifications", "--disable-print-preview",
		"--disable-speech-api",
		"--disable-features=Translate,MediaRouter,OptimizationHints,DialMediaRouteProvider,AutofillServerCommunication,CertificateTransparencyComponentUpdater,InterestFeedContentSuggestions,PrivateNetworkAccessSendPreflights",
		"--password-store=basic", "--use-mock-keychain", "--mute-audio", "--hide-scrollbars", "--window-size=1280,1024",
		"--js-flags=--max-old-space-size=" + strconv.Itoa(pageMemory),
	}
}

// instance is one browser with one page.
type instance struct {
	*pipe
	key    key
	digest string
	stop   context.CancelFunc
	ended  chan struct{} // closed when its processes and pipes are gone

	closing map[string]bool // sessions of additional pages; used by the listen goroutine only

	mu      sync.Mutex
	heard   func(egress.Decision) // callback of the current call
	policy  egress.Policy
	page    string // session of the page
	target  string // target of the page
	ready   chan struct{}
	loading bool // whether the page is loading
	loads   chan struct{}
	denied  string // why a document was refused; cleared by refused
	status  int    // of the page's last document
	secrets []string
	// redactors are those of secrets, of which the longest has longest bytes.
	redactors []func(string) string
	longest   int
	idle      *time.Timer
	why       error // why it ended
}

// start starts a browser with one empty page, and waits up to startTimeout for it. The
// browser runs until stop is called, its idle time passes, a limit ends it or Browsers
// is closed; ctx ends only the wait.
func (b *Browsers) start(ctx context.Context, k key, req Request) (*instance, error) {
	program, err := b.find()
	if err != nil {
		return nil, err
	}
	commands, toBrowser, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	fromBrowser, answers, err := os.Pipe()
	if err != nil {
		return nil, closeAll(err, commands, toBrowser)
	}
	life, stop := context.WithCancel(b.life)
	x := &instance{
		key: k, digest: req.Digest, stop: stop, ended: make(chan struct{}), policy: req.Policy, closing: make(map[string]bool),
		ready: make(chan struct{}), loads: make(chan struct{}, 1),
	}
	x.setHeard(req.OnEgress)
	x.pipe = newPipe(toBrowser, stop, x.event)
	if !b.begin() {
		stop()
		return nil, closeAll(capability.Errorf(capability.CodeUnavailable, op, "the server is stopping"), commands, answers, toBrowser,
			fromBrowser)
	}
	run := make(chan struct{})
	var result sandbox.Result // set before run is closed
	go func() {               // ends with the browser, which life ends
		defer close(run)
		ran, err := b.cfg.Walls.Run(life, sandbox.Spec{
			Path: program, Args: arguments(), Env: []string{
				"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "XDG_CONFIG_HOME=/tmp",
				"XDG_CACHE_HOME=/tmp",
			},
			Files: []*os.File{commands, answers}, StdoutLimit: 4 << 10, StderrLimit: 64 << 10,
		}, room(program, req, x.decided))
		x.mu.Lock()
		switch {
		case x.why != nil: // set by progress
		case err != nil:
			x.why = err
		default:
			x.why = capability.Errorf(capability.CodeFailed, op, "the browser ended by itself").With("execution_failed", "").Detail("exit_code",
				ran.ExitCode).Detail("signal", ran.Signal)
		}
		x.mu.Unlock()
		result = ran
		_ = closeAll(nil, commands, answers) // so that reads and writes at the other ends fail
	}()
	listened := make(chan struct{})
	go func() { // ends when the browser ends, which closes the pipe
		defer close(listened)
		x.listen(fromBrowser)
		stop()
	}()
	go func() { // ends after the other two
		defer close(x.ended)
		<-run
		<-listened
		_ = closeAll(nil, toBrowser, fromBrowser)
		b.forget(x)
		if b.cfg.OnEnd != nil {
			b.cfg.OnEnd(result)
		}
		b.live.Done()
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := x.open(ctx); err != nil {
		x.stop()
		<-x.ended
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, x.reason(err)
	}
	x.idle = time.AfterFunc(b.cfg.Idle, stop)
	x.idle.Stop() // the idle time starts after the call
	return x, nil
}

func closeAll(err error, files ...*os.File) error {
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// reason replaces errGone with the reason why the browser ended, after waiting for its
// end. Other errors are returned unchanged.
func (x *instance) reason(err error) error {
	if err != errGone { //nolint:errorlint // our own, never wrapped
		return err
	}
	<-x.ended
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.why != nil {
		return x.why
	}
	return capability.Errorf(capability.CodeFailed, op, "the browser ended").With("execution_failed",
		"try again: the next call starts another one")
}

func (x *instance) decided(d egress.Decision) {
	x.mu.Lock()
	heard := x.heard
	x.mu.Unlock()
	if heard != nil {
		heard(d)
	}
}

// open creates the page and waits for it. From here on every document, frame and worker
// starts paused, and runs only after the interception of its requests was enabled.
func (x *instance) open(ctx context.Context) error {
	if err := x.call(ctx, "", "Target.setAutoAttach", attach(), nil); err != nil {
		return err
	}
	// Older browsers lack this method; their downloads stay in the sandbox.
	_ = x.call(ctx, "", "Browser.setDownloadBehavior", map[string]any{"behavior": "deny"}, nil)
	var made struct {
		TargetID string `json:"targetId"`
	}
	if err := x.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return err
	}
	select {
	case <-x.ready:
		return nil
	case <-x.done:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func attach() map[string]any {
	return map[string]any{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}
}

// members decodes the parameters of an event; missing or malformed members are zero.
func members[T any](params json.RawMessage) (v T) {
	_ = json.Unmarshal(params, &v) // a zero value matches no page, frame or request
	return v
}
