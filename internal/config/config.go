// Package config loads the configuration. Later layers override earlier ones: defaults,
// config.yaml, JUNCTOR_* environment variables, flags. An unknown key or a value of the wrong
// type is an error with its file and line, or with the variable's name. The reference page
// (junctor config docs) is generated from the struct tags below.
package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/platform/roots"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/store"
)

// Config holds all settings. Each field with a doc tag is a key of the file, a JUNCTOR_
// variable and a line of the reference.
type Config struct {
	Listen            string `koanf:"listen" doc:"Address of the HTTP listener; port 0 picks a free port."`
	InsecurePlainHTTP bool   `koanf:"insecure_plain_http" doc:"Allow an address other than loopback without TLS."`
	DeploymentMode    string `koanf:"deployment_mode" doc:"What extensions may do at most: local_open (what they declare and were given), local_locked or remote_exposed (no programs, writes or browser without an administrator's grant). Empty: AGENTOS_DEPLOYMENT_MODE, else local_open if only this machine reaches the server, else remote_exposed. An unknown word is local_locked."`
	PublicURL         string `koanf:"public_url" doc:"URL of this server behind a proxy; its host is accepted besides local names."`
	SecretsDir        string `koanf:"secrets_dir" doc:"Absolute path of a folder with further secrets, one file each, as container engines and systemd mount them. They are read at each use; secrets in the home have precedence."`

	Log    Log    `koanf:"log"`
	Audit  Audit  `koanf:"audit"`
	FS     FS     `koanf:"fs"`
	PTY    PTY    `koanf:"pty"`
	Limits Limits `koanf:"limits"`
	Router Router `koanf:"router"`
	MCP    MCP    `koanf:"mcp"`
	A2A    A2A    `koanf:"a2a"`

	OTel      OTel      `koanf:"otel"`
	Vault     Vault     `koanf:"vault"`
	Console   Console   `koanf:"console"`
	Approvals Approvals `koanf:"approvals"`

	Clients map[string]Client `koanf:"clients" doc:"Settings by the client name of the token from junctor setup (claude, codex, …). approvals_wait is approvals.wait for this client. As a variable: a JSON object."`

	OAuth      OAuth      `koanf:"oauth"`
	OIDC       OIDC       `koanf:"oidc"`
	Agents     Agents     `koanf:"agents"`
	Extensions Extensions `koanf:"extensions"`
	Sandbox    Sandbox    `koanf:"sandbox"`
	Upstreams  Upstreams  `koanf:"upstreams"`
	Model      Model      `koanf:"model"`
	Agent      Agent      `koanf:"agent"`
	NATS       NATS       `koanf:"nats"`
	Gateway    Gateway    `koanf:"gateway"`
	Node       Node       `koanf:"node"`
	Host       Host       `koanf:"host"`
	Store      Store      `koanf:"store"`

	// Eliza is read from variables of an elizaOS agent, never from config.yaml.
	Eliza Eliza `koanf:"-"`
	// Foreign describes the elizaOS agent's file that was read, with its secrets.
	Foreign Foreign `koanf:"-"`
	// Programs are the coding CLIs that agents.default_type may name.
	Programs []Program `koanf:"-"`
	// Home is not a key of the file, because it is determined before the file is read.
	Home string `koanf:"-"`
}

// Log configures the server's own log, not the audit log.
type Log struct {
	Level  string `koanf:"level" doc:"Lowest logged level: debug, info, warn or error."`
	Format string `koanf:"format" doc:"Format of the server's log: text or json."`
}

// Audit configures the audit log.
type Audit struct {
	Mode      string        `koanf:"mode" doc:"When records are on disk, and what stops while the log is broken. strict: before each answer; all calls stop. standard: before answers of writes, for reads within 100 ms; writes stop. best_effort: nothing stops."`
	Level     string        `koanf:"level" doc:"Lowest recorded level; debug adds a begin record for reads."`
	Retention time.Duration `koanf:"retention" doc:"Remove older audit segments; 0: never."`
	Arguments string        `koanf:"arguments" doc:"What is kept of arguments: digest (a keyed digest in the record), redacted (secrets masked) or full. Arguments are encrypted in arguments/ of the home, and reading them is recorded."`

	ArgumentsRetention time.Duration `koanf:"arguments_retention" doc:"Remove arguments that no call had for this long; 0: never."`

	SlowAfter time.Duration `koanf:"slow_after" doc:"Longer calls are also recorded as capability_slow."`
	Anchor    string        `koanf:"anchor" doc:"Place outside the home for checkpoints of the log, which reveal an older copy of the home: the absolute path of a file on another disk, an http or https URL (POST), or syslog. See docs/operations.md."`
}

// Console configures the web console.
type Console struct {
	Verify string `koanf:"verify" doc:"How a person confirms dangerous decisions in the web console (approvals of external effects or for always, tokens, grants, secrets, policies, new providers). code: six digits from the terminal of junctor serve or junctor console code, or the person's passkey; passkey: passkeys only, and the code to add the first; off: not at all, so that a program that controls the browser can decide."`
}

// FS configures the directories that fs.* and git.* may access.
type FS struct {
	Roots         []Root `koanf:"roots" doc:"Directories for fs.* and git.*, which are unavailable without one. As a variable: id=path, with :ro for read-only. The home of the server must be outside."`
	GitUnconfined bool   `koanf:"git_unconfined" doc:"Without sandbox tier T3 or T2: let git.command.run change repositories as the server's user, so that a hostile repository may run programs as that user. No effect if the sandbox works (junctor debug sandbox status)."`
}

// Root is one directory of FS.
type Root struct {
	ID       string `koanf:"id" doc:"Name used as rootId."`
	Path     string `koanf:"path" doc:"Absolute path of the directory."`
	ReadOnly bool   `koanf:"read_only" doc:"Refuse writes below it."`
}

// PTY configures pty.command.run.
type PTY struct {
	Enabled bool `koanf:"enabled" doc:"Let pty.command.run start commands on this machine."`
}

// Limits holds the limits of calls; see docs/ARCHITECTURE.md.
type Limits struct {
	CallTimeout     time.Duration `koanf:"call_timeout" doc:"Default deadline of a call."`
	EndpointTimeout time.Duration `koanf:"endpoint_timeout" doc:"Default deadline of a call to an endpoint."`
	MaxTimeout      time.Duration `koanf:"max_timeout" doc:"Highest deadline of a caller."`
	RequestBody     Size          `koanf:"request_body" doc:"Largest request body on the router wire and MCP."`
	Result          Size          `koanf:"result" doc:"Largest result of a call."`
	EndpointAnswer  Size          `koanf:"endpoint_answer" doc:"Largest answer of an endpoint."`
	PerProvider     int           `koanf:"per_provider" doc:"Concurrent calls of a provider; more are refused. One principal gets three quarters of what others leave."`
}

// Router configures the client side of the capability-router protocol.
type Router struct {
	SyncInterval time.Duration `koanf:"sync_interval" doc:"How often an endpoint's manifest is read again."`
	Primary      string        `koanf:"primary" doc:"Id of the endpoint that receives low-level calls before this machine."`

	WithheldRequestHeaders []string      `koanf:"withheld_request_headers" doc:"Request headers withheld from modules' routes, besides credentials, framing and proxy headers; x-mine-* is a prefix."`
	WithheldAnswerHeaders  []string      `koanf:"withheld_answer_headers" doc:"Headers of modules' answers withheld from callers, besides cookies, framing and those that govern this origin; x-mine-* is a prefix."`
	PublicRoutes           []PublicRoute `koanf:"public_routes" doc:"Routes that need no token. The module must declare each as public, with a reason, and the policy must permit it to Principal::\"public\" without approval. As a variable: endpoint/module:METHOD:/path."`
}

// PublicRoute is one route of one module of one endpoint. A route that a remote declares
// public is public only if the operator lists it here, too.
type PublicRoute struct {
	Endpoint string `koanf:"endpoint" doc:"Id of the endpoint."`
	Module   string `koanf:"module" doc:"Id of the module."`
	Method   string `koanf:"method" doc:"GET, POST, PUT, PATCH or DELETE."`
	Path     string `koanf:"path" doc:"Path as the module declares it, such as /notes/:id."`
}

// A2A configures the A2A door.
type A2A struct {
	PushAddresses []string `koanf:"push_addresses" doc:"Private ranges that may receive push notifications, also by http, such as 10.1.0.0/16; others need https and public addresses."`
}

// Extensions holds the limits of installed extensions.
type Extensions struct {
	CallsPerMinute int  `koanf:"calls_per_minute" doc:"Calls a minute of a user, and of an extension; one user gets three quarters of the latter."`
	Burst          int  `koanf:"burst" doc:"How many of these calls may come at once, divided likewise."`
	MaxConcurrent  int  `koanf:"max_concurrent" doc:"Concurrent runs of an extension; above 1, one place is left to other users."`
	PerUser        int  `koanf:"per_user" doc:"Concurrent runs of a user."`
	Queue          int  `koanf:"queue" doc:"Waiting runs, half of them of one user; more are refused."`
	NoExternalBins bool `koanf:"no_external_bins" doc:"Refuse extensions that run programs of this machine. Their manifests must declare a runtime and an empty external_bins."`
}

// Sandbox configures the sandbox in which programs of extensions run.
type Sandbox struct {
	MinTier   string   `koanf:"min_tier" doc:"Weakest sandbox for programs of extensions: T3 (isolated), T2 (confined, network unfiltered) or T1 (hygiene only). Empty: T3 for programs that came from an address, T2 for others. See junctor debug sandbox status."`
	ReadOnly  []string `koanf:"extra_ro" doc:"Further paths that programs of extensions may read, such as a language runtime in a home directory."`
	Off       []string `koanf:"off" doc:"Layers to leave out, to try extensions as on a weaker machine: namespaces, root, network, proc, landlock, seccomp or cgroup. What then is impossible, such as T3 without namespaces, is refused (junctor debug sandbox status)."`
	Addresses []string `koanf:"allow_addresses" doc:"Private ranges that hosts of extensions may resolve to, such as 10.1.0.0/16."`
	Confirm   []string `koanf:"confirm" doc:"Regular expressions, such as ^rm or --force: a matching command line of an extension's program always needs an approval."`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Listen:  "127.0.0.1:7777",
		Log:     Log{Level: "info", Format: "text"},
		Audit:   Audit{Mode: "standard", Level: "info", SlowAfter: 5 * time.Second, Arguments: "digest", ArgumentsRetention: 30 * 24 * time.Hour},
		Console: Console{Verify: "code"},
		OIDC:    defaultOIDC(),

		Limits: Limits{
			CallTimeout: 300 * time.Second, EndpointTimeout: 60 * time.Second, MaxTimeout: time.Hour,
			RequestBody: 4 << 20, Result: 16 << 20, EndpointAnswer: 32 << 20, PerProvider: 1024,
		},
		Router:    Router{SyncInterval: 5 * time.Minute},
		MCP:       defaultMCP(),
		Approvals: defaultApprovals(), Clients: patientClients(),
		Upstreams:  Upstreams{ConnectTimeout: time.Minute},
		Agents:     defaultAgents(),
		Extensions: Extensions{CallsPerMinute: 80, Burst: 14, MaxConcurrent: 3, PerUser: 4, Queue: 100},
		Model:      Model{Kind: "openai", MaxTokens: 2048},
		Agent:      defaultAgent(),
		NATS:       NATS{Replicas: 1},
		Gateway:    defaultGateway(), Node: defaultNode(), Host: defaultHost(),
		Eliza: Eliza{Environment: "server"},
	}
}

// Size is a number of bytes, in text form such as 4MiB, 512KiB, 1GiB or a plain number.
type Size int64

// UnmarshalText parses the text form.
func (s *Size) UnmarshalText(text []byte) error {
	in, mult := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units() {
		if cut, ok := strings.CutSuffix(in, u.name); ok {
			in, mult = strings.TrimSpace(cut), u.n
			break
		}
	}
	n, err := strconv.ParseInt(in, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/mult {
		return fmt.Errorf("%q is not a size; write 4MiB, 512KiB or a number of bytes", text)
	}
	*s = Size(n * mult)
	return nil
}

type unit struct {
	n    int64
	name string
}

func units() []unit { return []unit{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} }

func (s Size) String() string {
	for _, u := range units() {
		if int64(s) >= u.n && int64(s)%u.n == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.n, u.name)
		}
	}
	return fmt.Sprint(int64(s))
}

// Validate returns an error for the first setting with which the server could not start.
func (c *Config) Validate() error {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen: %q is not host:port", c.Listen)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("listen: %q is not a port; use 0 to 65535", port)
	}
	if !c.InsecurePlainHTTP && !isLoopback(host) {
		return fmt.Errorf("listen: %s is not a loopback address and there is no TLS; add --insecure-plain-http if something in front of it encrypts", c.Listen)
	}
	if err := cmp.Or(c.MCP.check(), c.OAuth.check(), c.Agents.check(c.Programs), c.Upstreams.validate(), c.Sandbox.validate()); err != nil {
		return err
	}
	for name, n := range map[string]int{
		"calls_per_minute": c.Extensions.CallsPerMinute, "burst": c.Extensions.Burst, "max_concurrent": c.Extensions.MaxConcurrent,
		"per_user": c.Extensions.PerUser, "queue": c.Extensions.Queue,
	} {
		if n < 1 {
			return fmt.Errorf("extensions.%s: %d is too few; use 1 or more", name, n)
		}
	}
	if err := cmp.Or(c.Model.validate(), c.Agent.validate(c.MCP.Views), c.NATS.validate(), c.Approvals.validate(), c.checkClients(),
		c.OTel.validate(),
		absolute("secrets_dir", c.SecretsDir), c.Vault.validate(), c.OIDC.validate(c.PublicURL, host), c.Gateway.validate(), c.Node.validate(),
		c.Host.validate(c.Node.Development)); err != nil {
		return err
	}
	if c.Store.URL != "" {
		if err := store.CheckURL(c.Store.URL); err != nil {
			return fmt.Errorf("store.url: %w", err)
		}
	} else if c.Store.PasswordSecret != "" {
		return fmt.Errorf("store.password_secret: there is no store.url that it is for")
	}
	if c.PublicURL != "" {
		u, err := url.Parse(c.PublicURL)
		if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("public_url: %q is not an http or https URL without credentials", c.PublicURL)
		}
	}
	if a := c.Audit.Anchor; a != "" && a != "syslog" && !filepath.IsAbs(a) {
		if u, err := url.Parse(a); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return fmt.Errorf("audit.anchor: it must be an absolute path, an http or https URL without a user, or syslog")
		}
	}
	if err := cmp.Or(
		oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error"),
		oneOf("log.format", c.Log.Format, "text", "json"),
		oneOf("audit.mode", c.Audit.Mode, "strict", "standard", "best_effort"),
		oneOf("console.verify", c.Console.Verify, "code", "passkey", "off"),
		oneOf("audit.level", c.Audit.Level, "debug", "info"),
		oneOf("audit.arguments", c.Audit.Arguments, "digest", "redacted", "full"),
	); err != nil {
		return err
	}
	seen := make(map[string]bool)
	for i, r := range c.FS.Roots {
		at := fmt.Sprintf("fs.roots[%d]", i)
		if r.ID == "" || strings.ContainsAny(r.ID, "/\\ ") {
			return fmt.Errorf("%s.id: %q must be a name without spaces or slashes", at, r.ID)
		}
		if seen[r.ID] {
			return fmt.Errorf("%s.id: %q is used twice", at, r.ID)
		}
		seen[r.ID] = true
		if !filepath.IsAbs(r.Path) {
			return fmt.Errorf("%s.path: %q must be absolute", at, r.Path)
		}
		if info, err := os.Stat(r.Path); err != nil || !info.IsDir() {
			return fmt.Errorf("%s.path: %s is not a directory", at, r.Path)
		}
		if err := roots.Apart(r.Path, c.Home, c.SecretsDir); err != nil {
			return fmt.Errorf("%s.path: %w", at, err)
		}
	}
	if err := cmp.Or(
		positive("limits.call_timeout", c.Limits.CallTimeout),
		positive("limits.endpoint_timeout", c.Limits.EndpointTimeout),
		positive("limits.max_timeout", c.Limits.MaxTimeout),
		positive("router.sync_interval", c.Router.SyncInterval),
		positive("audit.slow_after", c.Audit.SlowAfter),
	); err != nil {
		return err
	}
	if c.Audit.Retention < 0 || c.Audit.ArgumentsRetention < 0 {
		return fmt.Errorf("audit.retention, audit.arguments_retention: must not be negative")
	}
	return cmp.Or(
		c.Router.validate(),
		positive("limits.request_body", c.Limits.RequestBody),
		positive("limits.result", c.Limits.Result),
		positive("limits.endpoint_answer", c.Limits.EndpointAnswer),
		positive("limits.per_provider", c.Limits.PerProvider),
	)
}

func (s Sandbox) validate() error {
	if err := oneOf("sandbox.min_tier", s.MinTier, "", "T1", "T2", "T3"); err != nil {
		return err
	}
	for _, layer := range s.Off {
		if err := oneOf("sandbox.off", layer, sandbox.Switchable()...); err != nil {
			return err
		}
	}
	for _, text := range s.Addresses {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("sandbox.allow_addresses: %q is not a range of addresses such as 10.1.0.0/16", text)
		}
	}
	for _, text := range s.Confirm {
		if _, err := regexp.Compile(text); err != nil {
			return fmt.Errorf("sandbox.confirm: %q is not a regular expression: %w", text, err)
		}
	}
	return nil
}

func (n NATS) validate() error {
	if n.Replicas != 1 && n.Replicas != 3 && n.Replicas != 5 {
		return fmt.Errorf("nats.replicas: %d is not one of 1, 3 and 5", n.Replicas)
	}
	if n.URL == "" {
		return nil
	}
	for address := range strings.SplitSeq(n.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil || u.Host == "" || u.User != nil || (u.Scheme != "nats" && u.Scheme != "tls") {
			return fmt.Errorf("nats.url: each address is nats://host:port or tls://host:port, without a user or password")
		}
	}
	if n.KeySecret == "" {
		return fmt.Errorf("nats.key_secret: name the stored secret that the gateways of %s share", n.URL)
	}
	return nil
}

func oneOf(key, v string, allowed ...string) error {
	if slices.Contains(allowed, v) {
		return nil
	}
	return fmt.Errorf("%s: %q must be one of %s", key, v, strings.Join(allowed, ", "))
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
