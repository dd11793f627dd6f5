package record

import (
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

func TestWhatIsLeftOutIsFilledInOnTheSafeSide(t *testing.T) {
	t.Parallel()
	r := Record{Name: "n", Command: []string{"server"}}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	if r.Kind != KindMCP || r.Isolation != Shared || r.Trust != Trusted || r.Sampling != Deny || r.ChangedPin != Hold ||
		r.Idle() != time.Minute {
		t.Errorf("%+v; want r.Kind = %v, r.Isolation = %v, r.Trust = %v, r.Sampling = %v, r.ChangedPin = %v, r.Idle() = time.Minute",
			r, KindMCP, Shared, Trusted, Deny, Hold)
	}
	agent := Record{Name: "n", Kind: KindA2A, URL: "https://far.example/card"}
	if err := agent.Check(); err != nil || agent.Idle() != 5*time.Minute {
		t.Errorf("%v, %s; want no error, agent.Idle() = 5 * time.Minute", err, agent.Idle())
	}
	if agent.IdleTimeoutMS = 1500; agent.Idle() != 1500*time.Millisecond {
		t.Errorf("agent.Idle() = %v, want 1500*time.Millisecond", agent.Idle())
	}
}

func TestARecordThatContradictsItselfIsRefused(t *testing.T) {
	t.Parallel()
	program := func(change func(*Record)) Record {
		r := Record{Name: "n", Command: []string{"server"}}
		change(&r)
		return r
	}
	address := func(change func(*Record)) Record {
		r := Record{Name: "n", URL: "https://far.example/mcp"}
		change(&r)
		return r
	}
	for says, r := range map[string]Record{
		"not a name of an upstream": program(func(r *Record) { r.Name = "-n" }),
		"not one of trusted":        program(func(r *Record) { r.Trust = "somewhat" }),
		"between 0 and":             program(func(r *Record) { r.TimeoutMS = -1 }),
		"absolute directories":      program(func(r *Record) { r.Roots = []string{"here"} }),
		"not a name of a variable":  program(func(r *Record) { r.Env = map[string]string{"A=B": "x"} }),
		"given twice": program(func(r *Record) {
			r.Env, r.EnvSecrets = map[string]string{"A": "x"},
				map[string]string{"A": "s"}
		}),
		"are for URLs":                 program(func(r *Record) { r.BearerSecret = "s" }),
		"begins with https":            address(func(r *Record) { r.URL = "http://far.example/mcp" }),
		"no user or password":          address(func(r *Record) { r.URL = "https://u:p@far.example/mcp" }),
		"no fragment":                  address(func(r *Record) { r.URL += "#x" }),
		"holds a credential":           address(func(r *Record) { r.Headers = map[string]string{"Authorization": "Bearer x"} }),
		"not a header that can be set": address(func(r *Record) { r.Headers = map[string]string{"Mcp-Session-Id": "x"} }),
		"not a name of a secret":       address(func(r *Record) { r.HeaderSecrets = map[string]string{"X-Key": "a b"} }),
		"do not go together":           address(func(r *Record) { r.BearerSecret, r.OAuth = "s", &OAuth{} }),
		"an issuer is an https":        address(func(r *Record) { r.OAuth = &OAuth{Issuer: "http://as.example"} }),
		"own credentials are for":      address(func(r *Record) { r.OwnCredentials, r.BearerSecret = true, "s" }),
		"not one of shared, each":      address(func(r *Record) { r.OAuth = &OAuth{Login: "everyone"} }),
		"a login of each principal": address(func(r *Record) {
			r.OAuth = &OAuth{Login: LoginEach, Grant: "client_credentials", ClientID: "me"}
		}),
		"an isolation other than shared": address(func(r *Record) { r.OAuth, r.Isolation = &OAuth{Login: LoginEach}, Shared }),
		"needs the issuer that it is for": address(func(r *Record) {
			r.OAuth = &OAuth{Login: LoginEach, ClientID: "me", ClientSecret: "s"}
		}),
		"for servers of MCP, the grant": address(func(r *Record) { r.OAuth, r.Kind = &OAuth{Login: LoginEach}, KindA2A }),
		"has 80 characters at most":     address(func(r *Record) { r.OAuth, r.Name = &OAuth{Login: LoginEach}, strings.Repeat("n", 81) }),
		"keys are for A2A agents":       address(func(r *Record) { r.Keys = append(r.Keys, []byte(`{}`)) }),
		"connections to keep apart":     address(func(r *Record) { r.Kind, r.Isolation = KindA2A, PerPrincipal }),
	} {
		err := r.Check()
		if e := capability.AsError(err); err == nil || e.Code != capability.CodeInvalidInput || e.Reason != "invalid_upstream" ||
			!strings.Contains(e.Message, says) {
			t.Errorf(`%s: %v; want an error, e.Code = capability.CodeInvalidInput, e.Reason = "invalid_upstream", e.Message with %v`,
				says, err, says)
		}
	}
}

func TestSecretsAreNamedOnceAndInOrder(t *testing.T) {
	t.Parallel()
	r := Record{
		EnvSecrets: map[string]string{"A": "b", "B": "a"}, HeaderSecrets: map[string]string{"X": "b"}, BearerSecret: "c",
		OAuth: &OAuth{ClientSecret: "e", SubjectSecret: "d"},
	}
	if got := strings.Join(r.Secrets(), " "); got != "a b c d e" {
		t.Errorf(`strings.Join(r.Secrets(), " ") = %q, want "a b c d e"`, got)
	}
}

func TestNoPrincipalLeadsToTheSecretOfAnother(t *testing.T) {
	t.Parallel()
	if got := OwnSecret("key", "agent:ann"); got != "own.key.agent.ann" {
		t.Errorf(`OwnSecret("key", "agent:ann") = %q, want "own.key.agent.ann"`, got)
	}
	seen := map[string]string{}
	for _, id := range []string{
		"agent:ann", "agent.ann", "https://as.example|ann", "agent:ann.", "agent:../ann", "agent:_ann", "AGENT:ann",
		"agent:" + strings.Repeat("a", 200),
	} {
		name := OwnSecret("key", id)
		if other, twice := seen[name]; twice || !secretGrammar.MatchString(name) {
			t.Errorf("%s and %s are both %s; want twice = false, secretGrammar.MatchString(name)", id, other, name)
		}
		seen[name] = id
	}
}

func TestConfinementOfARecord(t *testing.T) {
	command := []string{"server"}
	for _, c := range []struct {
		name string
		rec  Record
		want string // "" for an error
	}{
		{"by default", Record{Command: command}, Sandboxed},
		{"a container", Record{Command: []string{"docker", "run", "image"}}, Container},
		{"a program that is called like an engine", Record{Command: []string{"./docker", "run"}}, Sandboxed},
		{"a container that is none", Record{Command: command, Confinement: Container}, ""},
		{"folders", Record{Command: command, ReadOnly: []string{"/a"}, ReadWrite: []string{"/b", "/a/c"}}, Sandboxed},
		{"reading in what may be written", Record{Command: command, ReadOnly: []string{"/a/b"}, ReadWrite: []string{"/a"}}, ""},
		{"a relative folder", Record{Command: command, ReadOnly: []string{"a"}}, ""},
		{"a folder with dots", Record{Command: command, ReadWrite: []string{"/a/../b"}}, ""},
		{"folders without confinement", Record{Command: command, Confinement: Unconfined, ReadOnly: []string{"/a"}}, ""},
		{"an unknown one", Record{Command: command, Confinement: "walls"}, ""},
		{"hosts", Record{Command: command, Network: []string{"example.org", "*.example.org:8443"}}, Sandboxed},
		{"all and hosts", Record{Command: command, Network: []string{"all", "example.org"}}, ""},
		{"no host", Record{Command: command, Network: []string{"http://example.org/"}}, ""},
		{"a work folder that is not shown", Record{Command: command, Dir: "/a"}, ""},
		{"a work folder that is shown", Record{Command: command, Dir: "/a/b", ReadOnly: []string{"/a"}}, Sandboxed},
		{"a URL", Record{URL: "https://example.org", Confinement: Sandboxed}, ""},
	} {
		c.rec.Name = "n"
		err := c.rec.Check()
		if got := c.rec.Confinement; err == nil && got != c.want || err != nil && c.want != "" {
			t.Errorf("%s: Check() = %v with the confinement %q, want %q", c.name, err, got, c.want)
		}
	}
}

func TestVariablesThatSteerProgramsAreRefused(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"LD_PRELOAD": "invalid_upstream", "SSL_CERT_FILE": "invalid_upstream", "MEMORY_FILE_PATH": ""} {
		for _, r := range []Record{
			{Name: "n", Command: []string{"server"}, Env: map[string]string{name: "x"}},
			{Name: "n", Command: []string{"server"}, EnvSecrets: map[string]string{name: "x"}},
		} {
			got := ""
			if err := r.CheckVariables(); err != nil {
				got = capability.AsError(err).Reason
			}
			if got != want {
				t.Errorf("CheckVariables(%s) = %q, want %q", name, got, want)
			}
			if err := r.Check(); err != nil { // a stored record stays usable
				t.Errorf("Check(%s) = %v, want nil", name, err)
			}
		}
	}
}
