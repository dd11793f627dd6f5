package config_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/config"
)

// said is an endpoint with its token in the open.
type said struct {
	ID, URL, Token string
	Allowed        []string
	Policy         string
}

func TestElizaVariablesNameEndpoints(t *testing.T) {
	t.Parallel()
	const p = "ELIZA_CAPABILITY_ROUTER_"
	const old = "ELIZA_REMOTE_CAPABILITY_"
	for name, c := range map[string]struct {
		env  []string
		want []said
	}{
		"nothing": {[]string{p + "URL= ", "ELIZA_STATE_DIR=/x", p + "ENABLED=true"}, nil},
		"a primary": {
			[]string{p + "URL= https://h/tenant/7/?q=1#x ", p + "TOKEN=t"},
			[]said{{"primary", "https://h/tenant/7", "t", nil, ""}},
		},
		"older names": {
			[]string{old + "URL=http://h", old + "TOKEN=o", p + "URLS=http://a"},
			[]said{{"primary", "http://h", "o", nil, ""}, {"remote-1", "http://a", "", nil, ""}},
		},
		"newer first": {
			[]string{old + "URL=http://old", p + "URL=http://new", old + "TOKEN=o", p + "TOKEN=n"},
			[]said{{"primary", "http://new", "n", nil, ""}},
		},
		"with commas": {
			[]string{p + "URLS=http://a/, ,http://b", p + "TOKEN=t"},
			[]said{{"remote-1", "http://a", "t", nil, ""}, {"remote-2", "http://b", "t", nil, ""}},
		},
		"a JSON list": {
			[]string{p + `URLS=["http://a",{"id":"x","baseUrl":"http://b","token":"own","colour":1}]`, p + "TOKEN=t"},
			[]said{{"remote-1", "http://a", "t", nil, ""}, {"x", "http://b", "own", nil, ""}},
		},
		"switched off":  {[]string{p + "URL=http://h", p + "ENABLED=Off"}, nil},
		"off, older":    {[]string{p + "URL=http://h", old + "ENABLED=0"}, nil},
		"no clear word": {[]string{p + "URL=http://h", p + "ENABLED=maybe"}, []said{{"primary", "http://h", "", nil, ""}}},
		"on beats off":  {[]string{p + "URL=http://h", p + "ENABLED=YES", old + "ENABLED=0"}, []said{{"primary", "http://h", "", nil, ""}}},
		"allowed, all": {
			[]string{p + "URL=http://h", p + "URLS=http://a", p + `ALLOWED_MODULES=["m"]`},
			[]said{{"primary", "http://h", "", []string{"m"}, ""}, {"remote-1", "http://a", "", []string{"m"}, ""}},
		},
		"allowed, each": {
			[]string{p + "URL=http://h", p + "URLS=http://a", p + `ALLOWED_MODULES={"primary":["m","n"]}`},
			[]said{{"primary", "http://h", "", []string{"m", "n"}, ""}, {"remote-1", "http://a", "", nil, ""}},
		},
		"policy, all": {
			[]string{p + "URL=http://h", p + `TRUST_POLICY={"requireSignedProvenance":true}`},
			[]said{{"primary", "http://h", "", nil, `{"requireSignedProvenance":true}`}},
		},
		"policy, each": {
			[]string{p + "URL=http://h", p + "URLS=http://a", p + `TRUST_POLICY={"remote-1":{"strictNames":true}}`},
			[]said{{"primary", "http://h", "", nil, ""}, {"remote-1", "http://a", "", nil, `{"strictNames":true}`}},
		},
		"policy, both": {
			[]string{
				p + "URL=http://h",
				p + `TRUST_POLICY={"allowedProvenanceIssuers":["a"],"strictNames":true,"requireEndpointId":false,"trustedProvenancePublicKeys":{"a":"A"},"primary":{"allowedProvenanceIssuers":["b"],"strictNames":false,"requireEndpointId":true,"trustedProvenancePublicKeys":{"b":"B\n"}}}`,
			},
			[]said{{"primary", "http://h", "", nil, `{"allowedProvenanceIssuers":["a","b"],"requireEndpointId":true,"strictNames":true,"trustedProvenancePublicKeys":{"a":"A","b":"B\n"}}`}},
		},
	} {
		got, err := config.ReadEliza(append([]string{p + "TIMEOUT_MS=1500", p + "ENVIRONMENT=mobile"}, c.env...))
		var list []said
		for _, e := range got.Endpoints {
			if e.Timeout != 1500*time.Millisecond {
				t.Errorf("%s: timeout %s; want e.Timeout = 1500 * time.Millisecond", name, e.Timeout)
			}
			list = append(list, said{e.ID, e.BaseURL, e.Token.Reveal(), e.AllowedModules, string(e.TrustPolicy)})
		}
		if d := cmp.Diff(c.want, list); err != nil || d != "" {
			t.Errorf(`%s: %v %s; want no error, d = ""`, name, err, d)
		}
	}
}

func TestElizaVariablesThatCannotBeReadAreErrors(t *testing.T) {
	t.Parallel()
	const url = "URL=http://h"
	for _, c := range []struct {
		env  []string
		says string
	}{
		{[]string{`URLS=["http://a",7]`}, "URLS: item 2"},
		{[]string{`URLS=["http://a",""]`}, "URLS: item 2"},
		{[]string{`URLS=[{"id":"x"}]`}, "URLS: item 1"},
		{[]string{`URLS=[{"baseUrl":"http://a","token":7}]`}, "URLS: item 1"},
		{[]string{`URLS=[null]`}, "URLS: item 1"},
		{[]string{`URLS=["http://a"`}, "URLS: it begins like a JSON list"},
		{[]string{`URLS={"baseUrl":"http://a"}`}, "URLS: the URL of remote-1"},
		{[]string{`URLS=[{"id":"a/b","baseUrl":"http://a"}]`}, `URLS: the id "a/b"`},
		{[]string{`URLS=[{"id":"x","baseUrl":"http://a"},{"id":"x","baseUrl":"http://b"}]`}, "x is there twice"},
		{[]string{`URLS=http://a,http://a/`}, "remote-2 is there twice"},
		{[]string{url, `URLS=[{"id":"primary","baseUrl":"http://a"}]`}, "primary is there twice"},
		{[]string{`URL=ftp://h`}, "URL: the URL of primary"},
		{[]string{`URL=http://a:b@h`}, "credentials"},
		{[]string{url, `TIMEOUT_MS=12abc`}, `TIMEOUT_MS: "12abc"`},
		{[]string{url, `TIMEOUT_MS=0`}, "TIMEOUT_MS"},
		{[]string{url, `ENVIRONMENT=moon`}, `ENVIRONMENT: "moon"`},
		{[]string{url, `ALLOWED_MODULES=m`}, "ALLOWED_MODULES: it must be"},
		{[]string{url, `ALLOWED_MODULES=null`}, "ALLOWED_MODULES: it must be"},
		{[]string{url, `ALLOWED_MODULES=[]`}, "ALLOWED_MODULES: a list"},
		{[]string{url, `ALLOWED_MODULES=[null]`}, "ALLOWED_MODULES: a list"},
		{[]string{url, `ALLOWED_MODULES={"primary":"m"}`}, "ALLOWED_MODULES: a list"},
		{[]string{url, `ALLOWED_MODULES={"primry":["m"]}`}, `there is no endpoint "primry"`},
		{[]string{url, `TRUST_POLICY=` + "{\"x\""}, "TRUST_POLICY: it must be"},
		{[]string{url, `TRUST_POLICY=[]`}, "TRUST_POLICY: it must be"},
		{[]string{url, `TRUST_POLICY={"requireSigned":true}`}, `there is no endpoint "requireSigned"`},
		{[]string{url, `TRUST_POLICY={"primary":true}`}, "options of primary must be an object"},
		{[]string{url, `TRUST_POLICY={"allowedProvenanceIssuers":["a"],"primary":{"allowedProvenanceIssuers":"b"}}`}, "two types"},
		{[]string{url, `TRUST_AUDIT={}`}, "TRUST_AUDIT: it must be"},
		{[]string{url, `TRUST_AUDIT=null`}, "TRUST_AUDIT: it must be"},
		{[]string{url, `TRUST_AUDIT=[{},7]`}, "TRUST_AUDIT: record 2"},
	} {
		for i := range c.env {
			c.env[i] = "ELIZA_CAPABILITY_ROUTER_" + c.env[i]
		}
		_, err := config.Load(t.TempDir(), "none.yaml", false, append(c.env, "ELIZA_CAPABILITY_ROUTER_TOKEN=s3cret"), nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "ELIZA_CAPABILITY_ROUTER_") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", c.env, err, c.says)
		}
	}
}

func TestEveryAliasIsRead(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"URL": "x", "URLS": "[", "TIMEOUT_MS": "x", "ENVIRONMENT": "x", "ALLOWED_MODULES": "x", "TRUST_POLICY": "x",
		"TRUST_AUDIT": "x",
	}
	for _, a := range config.Aliases() {
		if a.Doc == "" {
			t.Errorf(`%s is not explained; want a.Doc other than ""`, a.Name)
		}
		for _, name := range []string{a.Name, a.Fallback} {
			value, ok := bad[strings.TrimPrefix(a.Name, "ELIZA_CAPABILITY_ROUTER_")]
			if !ok || name == "" {
				continue // tokens and flags take any text
			}
			if _, err := config.ReadEliza([]string{name + "=" + value}); err == nil {
				t.Errorf("%s is not read; want an error", name)
			}
		}
	}
}

func TestTheTrustAuditKeepsItsLastFifty(t *testing.T) {
	t.Parallel()
	records := make([]string, 60)
	for i := range records {
		records[i] = `{"n":` + strconv.Itoa(i) + `}`
	}
	got, err := config.ElizaVars(map[string]string{
		"ELIZA_CAPABILITY_ROUTER_URL":         "http://h",
		"ELIZA_CAPABILITY_ROUTER_TRUST_AUDIT": " [" + strings.Join(records, ",") + "]",
	})
	if want := "[" + strings.Join(records[10:], ",") + "]"; err != nil || string(got.TrustAudit) != want {
		t.Errorf("%v: %s; want no error, string(got.TrustAudit) = %v", err, got.TrustAudit, want)
	}
	if _, err := config.ElizaVars(map[string]string{"ELIZA_CAPABILITY_ROUTER_URL": "x"}); err == nil ||
		strings.Contains(err.Error(), "environment") {
		t.Errorf(`what is not from the environment: %v; want an error, err.Error() without "environment"`, err)
	}
}

// TestTheAgentsFilesAreTheLowestLayer: the environment over config.env over
// eliza.json, and none of it unless the environment names the place.
func TestTheAgentsFilesAreTheLowestLayer(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	const p = "ELIZA_CAPABILITY_ROUTER_"
	for name, text := range map[string]string{
		filepath.Join(dir, "config.env"): p + `URLS='[{"id":"a","baseUrl":"http://a","token":"t"}]'` + "\n",
		filepath.Join(dir, "eliza.json"): `{"env":{"vars":{"` + p + `URLS":"[{\"id\":\"a\",\"baseUrl\":\"http://a\"}]","` + p +
			`ALLOWED_MODULES":"{\"a\":[\"m\"]}","` + p + `TIMEOUT_MS":"7"}}}`,
		filepath.Join(elsewhere, "e"):    `{"env":{"vars":{"` + p + `URL":"http://e"}}}`,
		filepath.Join(elsewhere, "torn"): `{"env":`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(env ...string) (config.Eliza, error) {
		cfg, err := config.Load(t.TempDir(), "none.yaml", false, env, nil, nil)
		return cfg.Eliza, err
	}
	got, err := load("ELIZA_STATE_DIR="+dir, p+"TIMEOUT_MS=9", p+"URLS= ")
	if err != nil || len(got.Endpoints) != 1 {
		t.Fatalf("%v %+v; want no error, len(got.Endpoints) = 1", err, got)
	}
	if e := got.Endpoints[0]; e.Token.Reveal() != "t" || e.Timeout != 9*time.Millisecond || len(e.AllowedModules) != 1 {
		t.Errorf(`%+v; want e.Token.Reveal() = "t", e.Timeout = 9 * time.Millisecond, len(e.AllowedModules) = 1`, e)
	}
	if got, err := load("ELIZA_CONFIG_PATH=" + filepath.Join(elsewhere, "e")); err != nil || len(got.Endpoints) != 1 ||
		got.Endpoints[0].BaseURL != "http://e" {
		t.Errorf(`%v %+v; want no error, len(got.Endpoints) = 1, got.Endpoints[0].BaseURL = "http://e"`, err, got)
	}
	if got, err := load("HOME=" + dir); err != nil || len(got.Endpoints) != 0 {
		t.Errorf("endpoints of a home that was not named: %v %+v; want no error, len(got.Endpoints) = 0", err, got)
	}
	if got, err := load("ELIZA_STATE_DIR=" + elsewhere); err != nil || len(got.Endpoints) != 0 {
		t.Errorf("no files: %v %+v; want no error, len(got.Endpoints) = 0", err, got)
	}
	if _, err := load("ELIZA_CONFIG_PATH=" + filepath.Join(elsewhere, "torn")); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf(`%v; want an error, err.Error() with "torn"`, err)
	}
}
