package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/config"
)

// programs are coding CLIs for tests.
func programs() []config.Program {
	return []config.Program{
		{Name: "claude", Aliases: []string{"claude", "claude-code"}, Accounts: []string{"ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"}},
		{Name: "codex", Aliases: []string{"codex", "openai"}, Accounts: []string{"OPENAI_API_KEY"}},
		{Name: "shell", Aliases: []string{"shell", "bash"}},
	}
}

func load(t testing.TB, yaml string, env []string, flags map[string]any) (config.Config, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load("home", file, true, env, flags, programs())
	if err != nil {
		err = fmt.Errorf("%s", strings.ReplaceAll(err.Error(), file, "config.yaml"))
	}
	return c, err
}

func TestNoFileIsTheDefault(t *testing.T) {
	t.Parallel()
	want := config.Default()
	want.Home = "home"
	missing := filepath.Join(t.TempDir(), "none.yaml")
	got, err := config.Load("home", missing, false, []string{
		"PATH=/bin", "JUNCTOR_HOME=x", "JUNCTOR_TOKEN=y", "JUNCTOR_URL=z",
		"JUNCTOR_GATEWAY=g",
	}, nil, nil)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf(`%v %s; want no error, d = ""`, err, d)
	}
	if _, err := config.Load("home", missing, true, nil, nil, nil); err == nil {
		t.Error("a file that was asked for may be missing; want an error")
	}
	want.Programs = programs()
	for _, empty := range []string{"", "\n", "# nothing\n", "{}", "---\n"} {
		if got, err = load(t, empty, nil, nil); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf(`%q: %v; want no error, cmp.Diff(want, got) = ""`, empty, err)
		}
	}
}

func TestLayersCoverEachOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := "listen: 127.0.0.1:1\naudit: {mode: strict, slow_after: 2s, retention: 720h}\nlimits:\n  result: 8MiB\n  per_provider: 3\n" +
		"fs:\n  roots:\n    - {id: one, path: " + dir + "}\nmcp:\n  allowed_origins: [https://a.example]\npty: {enabled: true}\n"
	got, err := load(t, file, []string{
		"JUNCTOR_LISTEN=127.0.0.1:2", "JUNCTOR_AUDIT_SLOW_AFTER=3s", "JUNCTOR_LIMITS_RESULT=512 KiB", "JUNCTOR_PTY_ENABLED=false",
		"JUNCTOR_FS_ROOTS=two=" + dir + ":ro, three=" + dir, "JUNCTOR_MCP_ALLOWED_ORIGINS=https://b.example,https://c.example",
	}, map[string]any{"listen": "127.0.0.1:3", "limits.per_provider": "7", "log.level": "debug"})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Home, want.Listen, want.Log.Level, want.Programs = "home", "127.0.0.1:3", "debug", programs()
	want.Audit.Mode, want.Audit.SlowAfter, want.Audit.Retention = "strict", 3*time.Second, 720*time.Hour
	want.Limits.Result, want.Limits.PerProvider = 512<<10, 7
	want.FS.Roots = []config.Root{{ID: "two", Path: dir, ReadOnly: true}, {ID: "three", Path: dir}}
	want.MCP.AllowedOrigins = []string{"https://b.example", "https://c.example"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("configuration (-want +got):\n%s", d)
	}
}

func TestFaultsNameTheirPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, tt := range []struct{ name, file, want string }{
		{"unknown section", "log: {level: info}\nlgo: 1\n", "config.yaml:2: lgo is not a known key"},
		{"unknown key", "log:\n  levle: info\n", "config.yaml:2: log.levle is not a known key"},
		{"unknown key in a list", "fs:\n  roots:\n    - id: a\n      pth: /\n", "config.yaml:4: fs.roots[0].pth is not a known key"},
		{"the home is not a key", "home: /x\n", "config.yaml:1: home is not a known key"},
		{"given twice", "listen: a:1\nlisten: b:2\n", "2: listen is given twice"},
		{"a value where a section is", "log: info\n", "config.yaml:1: log must be a mapping"},
		{"a section where a value is", "listen:\n  host: x\n", "config.yaml:2: listen must be a single value"},
		{"no list", "fs:\n  roots: x\n", "config.yaml:2: fs.roots must be a list"},
		{"no mapping at all", "- a\n", "config.yaml:1: the configuration must be a mapping"},
		{"a duration without unit", "limits:\n  call_timeout: 5\n", `config.yaml:2: limits.call_timeout: "5" is not a duration`},
		{"a duration in apples", "limits:\n  call_timeout: 5 apples\n", "config.yaml:2: limits.call_timeout"},
		{"no number", "limits:\n  per_provider: many\n", `config.yaml:2: limits.per_provider: "many" is not a whole number`},
		{"half a number", "limits:\n  per_provider: 1.5\n", "config.yaml:2: limits.per_provider"},
		{"no size", "limits:\n  result: 4 megs\n", "config.yaml:2: limits.result"},
		{"no bool", "pty:\n  enabled: perhaps\n", "config.yaml:2: pty.enabled"},
		{"no value", "log:\n  level:\n", "config.yaml:2: log.level has no value"},
		{"an alias", "log: &l {level: info}\npty: *l\n", "config.yaml:2: pty: aliases are not supported"},
		{"two documents", "log: {level: info}\n---\nlisten: x\n", "a second document"},
		{"not YAML", "log: [\n", "config.yaml: "},
		{"a key that is not a name", "? [a]\n: b\n", "must be a name"},
		{"log level", "log: {level: loud}", "log.level"},
		{"log format", "log: {format: xml}", "log.format"},
		{"audit mode", "audit: {mode: lax}", "audit.mode"},
		{"audit level", "audit: {level: trace}", "audit.level"},
		{"audit anchor", "audit: {anchor: here}", "audit.anchor"},
		{"audit anchor with a password", "audit: {anchor: 'https://u:p@anchor.example'}", "audit.anchor: it must be"},
		{"audit anchor of another scheme", "audit: {anchor: 'ftp://anchor.example'}", "audit.anchor"},
		{"retention", "audit: {retention: -1s}", "audit.retention"},
		{"not loopback", `listen: 0.0.0.0:1`, "--insecure-plain-http"},
		{"all addresses", `listen: ":1"`, "--insecure-plain-http"},
		{"no port", `listen: 127.0.0.1`, "host:port"},
		{"port too high", `listen: 127.0.0.1:70000`, "is not a port"},
		{"no time", "limits: {max_timeout: 0s}", "limits.max_timeout"},
		{"no room", "limits: {result: 0}", "limits.result"},
		{"root without id", "fs: {roots: [{path: /}]}", "fs.roots[0].id"},
		{"root with a bad id", "fs: {roots: [{id: a/b, path: /}]}", "fs.roots[0].id"},
		{"two roots of one id", "fs: {roots: [{id: a, path: " + dir + "}, {id: a, path: " + dir + "}]}", "fs.roots[1].id"},
		{"relative root", "fs: {roots: [{id: a, path: x}]}", "fs.roots[0].path"},
		{"absent root", "fs: {roots: [{id: a, path: " + dir + "/none}]}", "fs.roots[0].path"},
		{"a model of another kind", "model: {kind: smoke}", "model.kind"},
		{"a model without a name", "model: {url: 'http://127.0.0.1:1/v1'}", "model.name"},
		{"a route of another class", "model: {routes: [{class: huge, kind: openai-chat, url: 'http://127.0.0.1:1/v1', name: m}]}", "model.routes[0].class"},
		{"a route without a model", "model: {routes: [{class: large, kind: gemini-generate, url: 'http://127.0.0.1:1/v1'}]}", "model.routes[0]: a route needs url and name"},
		{"one model twice", "model: {url: 'http://127.0.0.1:1/v1', name: m, routes: [{class: small, kind: openai, url: 'http://127.0.0.1:1/v1', name: m}]}", "model.url: move it"},
		{"nats without a secret", "nats: {url: nats://10.0.0.1:4222}", "nats.key_secret"},
		{"nats with a password in it", "nats: {url: nats://a:b@10.0.0.1:4222, key_secret: bus}", "nats.url"},
		{"nats by another protocol", "nats: {url: 'nats://a:1, http://b:2', key_secret: bus}", "nats.url"},
		{"two copies", "nats: {replicas: 2}", "nats.replicas"},
		{"a store of another kind", "store: {url: 'mysql://a@b/c'}", "store.url: its scheme is not postgres"},
		{"a store with a password in it", "store: {url: 'postgres://a:b@c/d'}", "store.url: it holds a password"},
		{"a store without a database", "store: {url: 'postgres://a@c'}", "store.url: it names no user or no database"},
		{"a store with a setting of the library", "store: {url: 'postgres://a@c/d?passfile=/x'}", "store.url: there are three settings"},
		{"a store in a file", "store: {url: /var/lib/junctor.db}", "store.url: its scheme is not postgres"},
		{"a password without a store", "store: {password_secret: pg}", "store.password_secret"},
		{"huge", "# " + strings.Repeat("x", 1<<20), "larger than"},
	} {
		if _, err := load(t, tt.file, nil, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
	for env, want := range map[string]string{
		"JUNCTOR_LGO_LEVEL=x": "JUNCTOR_LGO_LEVEL is not a known key", "JUNCTOR_LIMITS_CALL_TIMEOUT=5": "JUNCTOR_LIMITS_CALL_TIMEOUT",
		"JUNCTOR_PTY_ENABLED=1":    "JUNCTOR_PTY_ENABLED",
		"JUNCTOR_LIMITS_RESULT=-1": "JUNCTOR_LIMITS_RESULT", "JUNCTOR_MCP_PAGE_SIZE=x": "JUNCTOR_MCP_PAGE_SIZE",
		"JUNCTOR_FS_ROOTS=here": "JUNCTOR_FS_ROOTS",
	} {
		if _, err := load(t, "", []string{env}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want an error, err.Error() with %v", env, err, want)
		}
	}
	for key, value := range map[string]any{"limits.call_timeout": "5", "no.such": "x", "mcp.page_size": "x"} {
		if _, err := load(t, "", nil, map[string]any{key: value}); err == nil || !strings.Contains(err.Error(), strings.Split(key, ".")[0]) {
			t.Errorf(`--%s: %v; want an error, err.Error() with strings.Split(key, ".")[0]`, key, err)
		}
	}
}

func TestSizesReadAndWriteAlike(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]config.Size{
		"0": 0, "1": 1, " 12 ": 12, "4KiB": 4 << 10, "4 MiB": 4 << 20, "1GiB": 1 << 30,
		"1025": 1025,
	} {
		var s config.Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want no error, s = %v", in, s, err, want)
		}
		var again config.Size
		if err := again.UnmarshalText([]byte(s.String())); err != nil || again != s {
			t.Errorf("%d is written %s; want no error, again = %v", s, s, s)
		}
	}
	for _, in := range []string{"", "x", "-1", "4MB", "4 Mi B", "1.5MiB", "0x10", "1 2", "9999999999GiB", "9223372036854775808", "KiB"} {
		if err := new(config.Size).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q is a size; want an error", in)
		}
	}
}

func TestEveryKeyIsDocumentedAndShown(t *testing.T) {
	t.Parallel()
	keys := config.Keys()
	seen := make(map[string]bool)
	values := config.Values(config.Default())
	for _, k := range keys {
		if k.Doc == "" || k.Type == "" || seen[k.Path] || k.Env != "JUNCTOR_"+strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_")) {
			t.Errorf("%+v", k)
		}
		seen[k.Path] = true
		at := any(values)
		for name := range strings.SplitSeq(k.Path, ".") {
			at = at.(map[string]any)[name]
		}
		if at == nil {
			t.Errorf("%s is not shown; want at not nil", k.Path)
		}
	}
	if n := countLeaves(reflect.TypeFor[config.Config]()); n != len(keys) {
		t.Errorf("%d fields, %d keys; want n = %v", n, len(keys), len(keys))
	}
	// Every default is accepted when it is written out.
	for _, k := range keys {
		if strings.HasPrefix(k.Type, "list") {
			continue
		}
		if _, err := load(t, "", []string{k.Env + "=" + k.Default}, nil); err != nil {
			t.Errorf("%s=%s: %v", k.Env, k.Default, err)
		}
	}
}

func countLeaves(t reflect.Type) (n int) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("koanf") == "-" {
			continue // no key: Home, and the variables of others
		} else if f.Type.Kind() == reflect.Struct {
			n += countLeaves(f.Type)
		} else {
			n++
		}
	}
	return n
}

func TestAModelIsShortForARouteAndRoutesComeFromAVariable(t *testing.T) {
	t.Parallel()
	short, err := load(t, "model: {kind: anthropic, url: 'http://127.0.0.1:1', name: m, key_secret: k}", nil, nil)
	want := []config.ModelRoute{{Class: "large", Kind: "anthropic-messages", URL: "http://127.0.0.1:1", Name: "m", KeySecret: "k"}}
	if d := cmp.Diff(want, short.Model.All()); d != "" || err != nil {
		t.Errorf("a single model: %v, routes (-want +got)\n%s", err, d)
	}
	long, err := load(t, "", []string{"JUNCTOR_MODEL_ROUTES=large anthropic http://127.0.0.1:1 m k, small openai-chat http://127.0.0.1:2/v1 qwen:7b"}, nil)
	want = append(want, config.ModelRoute{Class: "small", Kind: "openai-chat", URL: "http://127.0.0.1:2/v1", Name: "qwen:7b"})
	if d := cmp.Diff(want, long.Model.All()); d != "" || err != nil {
		t.Errorf("JUNCTOR_MODEL_ROUTES: %v, routes (-want +got)\n%s", err, d)
	}
	if _, err := load(t, "", []string{"JUNCTOR_MODEL_ROUTES=large openai"}, nil); err == nil || !strings.Contains(err.Error(), "is not class kind url name") {
		t.Errorf("a route with two words: got %v, want an error that shows the form", err)
	}
}

func TestRoutesToModulesAndLimitsAreChecked(t *testing.T) {
	t.Parallel()
	const large = "{class: large, kind: openai-chat, url: 'http://127.0.0.1:1', name: m, price_in: 3, price_out: 4}"
	c, err := load(t, "model: {routes: ["+large+", {class: small, kind: module, name: TEXT_SMALL}]}", nil, nil)
	want := []config.ModelRoute{
		{Class: "large", Kind: "openai-chat", URL: "http://127.0.0.1:1", Name: "m", PriceIn: 3, PriceOut: 4},
		{Class: "small", Kind: "module", Name: "TEXT_SMALL", Action: "model.invoke"},
	}
	if d := cmp.Diff(want, c.Model.All()); d != "" || err != nil {
		t.Errorf("routes: %v, differ from want (-want +got)\n%s", err, d)
	}
	for doc, fault := range map[string]string{
		"model: {routes: [" + large + ", {class: large, kind: module, name: T}]}":                       "has class small",
		"model: {routes: [" + large + ", {class: small, kind: module, name: T, url: 'https://x'}]}":     "has class small",
		"model: {routes: [" + large + ", {class: small, kind: module}]}":                                "the name of a model type",
		"model: {routes: [{class: small, kind: module, name: T}]}":                                      "answers no chat",
		"model: {routes: [{class: large, kind: openai-chat, url: 'https://x', name: m, action: a.b}]}":  "only such a route",
		"model: {routes: [{class: large, kind: openai-chat, url: 'https://x', name: m, price_in: -1}]}": "a price is 0 or more",
		"agent: {budget: {day: {tokens: -1}}}":                                                          "a limit is 0",
		"agent: {memory: maybe}":                                                                        "agent.memory",
		"agent: {evaluators: 'yes'}":                                                                    "agent.evaluators",
	} {
		if _, err := load(t, doc, nil, nil); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: got %v, want an error with %q", doc, err, fault)
		}
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{
		"listen: 127.0.0.1:1", "fs:\n  roots:\n  - {id: a, path: /}", "? x\n: y", "a: &a [*a]", "!!binary x",
		"<<: {listen: x}", "limits: {result: 1e9}", "\xff", "%YAML 1.1\n---\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		c, err := load(t, doc, nil, nil)
		if err != nil {
			if !strings.Contains(err.Error(), "config.yaml:") && !strings.Contains(err.Error(), ": ") {
				t.Errorf(`the fault has no place: %v; want not (!strings.Contains(err.Error(), "config.yaml:") && `+
					`!strings.Contains(err.Error(), ": "))`, err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("loaded and not valid: %v", err)
		}
		if c.Limits.CallTimeout < time.Microsecond && !strings.Contains(doc, "ns") {
			t.Errorf(`a timeout of %s; want not (c.Limits.CallTimeout < time.Microsecond && !strings.Contains(doc, "ns"))`,
				c.Limits.CallTimeout)
		}
	})
}

func TestRoutesAndHeadersOfTheRouter(t *testing.T) {
	t.Parallel()
	const name = "JUNCTOR_ROUTER_PUBLIC_ROUTES="
	cfg, err := config.Load(t.TempDir(), "none.yaml", false, []string{
		name + "a:b/shop:GET:/menu/:day, far/shop:POST:/x:y",
		"JUNCTOR_ROUTER_WITHHELD_REQUEST_HEADERS=X-A,x-b-*",
	}, nil, nil)
	want := []config.PublicRoute{{"a:b", "shop", "GET", "/menu/:day"}, {"far", "shop", "POST", "/x:y"}}
	if d := cmp.Diff(want, cfg.Router.PublicRoutes); err != nil || d != "" {
		t.Errorf(`%v %s; want no error, d = ""`, err, d)
	}
	if d := cmp.Diff([]string{"X-A", "x-b-*"}, cfg.Router.WithheldRequestHeaders); d != "" {
		t.Errorf("withheld request headers (-want +got):\n%s", d)
	}
	for text, says := range map[string]string{
		name + "shop:GET:/x": "is not endpoint/module:METHOD:/path", name + "far/shop:GET": "is not endpoint/module",
		name + "far/shop:get:/x": "router.public_routes[0].method", name + "far/shop:GET:x": "router.public_routes[0].path",
		name + "/shop:GET:/x": "router.public_routes[0].endpoint", name + "far/:GET:/x": "router.public_routes[0].module",
		"JUNCTOR_ROUTER_WITHHELD_ANSWER_HEADERS=a:b": "router.withheld_answer_headers[0]",
		"JUNCTOR_ROUTER_WITHHELD_REQUEST_HEADERS=*":  "router.withheld_request_headers[0]",
	} {
		if _, err := config.Load(t.TempDir(), "none.yaml", false, []string{text}, nil, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error, err.Error() with %v", text, err, says)
		}
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("router:\n  public_routes:\n    - {endpoint: far, module: shop, method: GET, path: /menu}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if cfg, err = config.Load(t.TempDir(), file, true, nil, nil, nil); err != nil || len(cfg.Router.PublicRoutes) != 1 ||
		cfg.Router.PublicRoutes[0].Path != "/menu" {
		t.Errorf(`%v %+v; want no error, len(cfg.Router.PublicRoutes) = 1, cfg.Router.PublicRoutes[0].Path = "/menu"`,
			err, cfg.Router.PublicRoutes)
	}
}

func TestAnotherProductsVariableComesAfterOurOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		yaml string
		env  []string
		want string
	}{
		{"", nil, ""},
		{"deployment_mode: local_open", nil, "local_open"},
		{"deployment_mode: local_open", []string{"AGENTOS_DEPLOYMENT_MODE=local_locked"}, "local_locked"},
		{"deployment_mode: local_open", []string{"AGENTOS_DEPLOYMENT_MODE= "}, "local_open"},
		{"", []string{"AGENTOS_DEPLOYMENT_MODE=local_locked", "JUNCTOR_DEPLOYMENT_MODE=remote_exposed"}, "remote_exposed"},
	} {
		c, err := load(t, tt.yaml, tt.env, nil)
		if err != nil || c.DeploymentMode != tt.want {
			t.Errorf("%q %v: %q %v; want no error, c.DeploymentMode = %v", tt.yaml, tt.env, c.DeploymentMode, err, tt.want)
		}
	}
}

func TestTheVaultIsReachedEncrypted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{}": true, "{url: 'https://vault.example.org', token_file: /run/token}": true,
		"{url: 'http://127.0.0.1:8200', token_file: /run/token}":    true,
		"{url: 'http://vault.example.org', token_file: /run/token}": false, "{url: 'https://vault.example.org'}": false,
		"{url: 'https://vault.example.org', token_file: token}": false, "{token_file: /run/token}": false,
		"{url: 'https://u:p@vault.example.org', token_file: /run/token}": false, "{url: 'vault', token_file: /run/token}": false,
	} {
		if _, err := load(t, "vault: "+text+"\n", nil, nil); (err == nil) != want {
			t.Errorf("vault: %s: got %v, want it accepted: %v", text, err, want)
		}
	}
}

func TestTheCollectorIsAPlainURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"{}": true, "{endpoint: 'http://127.0.0.1:4318'}": true, "{endpoint: 'https://otel.example.org/base'}": true,
		"{endpoint: 'http://collector:4318'}": true, "{endpoint: 'grpc://collector:4317'}": false, "{endpoint: 'collector:4318'}": false,
		"{endpoint: 'https://u:p@otel.example.org'}": false, "{endpoint: 'https://otel.example.org/?key=1'}": false,
		"{token_secret: t}": false, "{endpoint: 'http://collector:4318', token_secret: t}": false,
		"{endpoint: 'http://localhost:4318', token_secret: t}": true,
	} {
		if _, err := load(t, "otel: "+text+"\n", nil, nil); (err == nil) != want {
			t.Errorf("otel: %s: got %v, want it accepted: %v", text, err, want)
		}
	}
}

func TestClientsWaitForApprovalsAsTheyAreConfigured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	load := func(text string, environ ...string) (config.Config, error) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		return config.Load(t.TempDir(), file, true, environ, nil, nil)
	}
	c, err := load("approvals: {wait: 30s}\nclients:\n  claude: {approvals_wait: 9m}\n  quick: {approvals_wait: 0s}\n  plain: {}\n")
	if err != nil {
		t.Fatalf("loading: %v", err)
	}
	for who, want := range map[string]time.Duration{
		"agent:claude": 9 * time.Minute, "agent:quick": 0, "agent:plain": 30 * time.Second, "agent:other": 30 * time.Second,
		"claude": 30 * time.Second,
	} {
		if got := c.WaitFor(who); got != want {
			t.Errorf("WaitFor(%s) = %s, want %s", who, got, want)
		}
	}
	if c, err = load(""); err != nil || c.WaitFor("agent:claude") != 4*time.Minute || c.WaitFor("agent:codex") != 45*time.Second ||
		c.WaitFor("agent:opencode") != 4*time.Minute {
		t.Errorf("defaults: claude %s, codex %s, opencode %s, %v; want 4m, 45s, 4m", c.WaitFor("agent:claude"),
			c.WaitFor("agent:codex"), c.WaitFor("agent:opencode"), err)
	}
	if c, err = load("approvals: {wait: 45s}"); err != nil || c.WaitFor("agent:claude") != 45*time.Second {
		t.Errorf("approvals.wait that is set to its default: claude %s, %v; want 45s", c.WaitFor("agent:claude"), err)
	}
	if c, err = load("clients: {codex: {approvals_wait: 50s}}"); err != nil || c.WaitFor("agent:claude") != 4*time.Minute {
		t.Errorf("another client: claude %s, %v; want 4m", c.WaitFor("agent:claude"), err)
	}
	if c, err = load("", `JUNCTOR_CLIENTS={"codex":{"approvals_wait":"50s"}}`); err != nil || c.WaitFor("agent:codex") != 50*time.Second {
		t.Errorf("the variable: %s, %v; want 50s", c.WaitFor("agent:codex"), err)
	}
	if _, err := load("", `JUNCTOR_CLIENTS={"codex":{"approvals_wait":5}}`); err == nil || !strings.Contains(err.Error(), "is not a duration") {
		t.Errorf("a number in the variable: got %v, want that it is not a duration", err)
	}
	for text, want := range map[string]string{
		"clients: {a: {approvals_wait: 11m}}": "clients.a.approvals_wait", "clients: {a: {wait: 1m}}": "clients.a.wait is not a known key",
		"clients: {a: {approvals_wait: 5}}": "is not a duration", "clients: [a]": "must be a mapping", "clients: {a: 1}": "must be a mapping",
		"clients: {a: {}, a: {}}": "given twice",
	} {
		if _, err := load(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q) = %v, want %q", text, err, want)
		}
	}
}
