package taskagents

import (
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge/githubforge"
)

func TestForgesAreOfTheirKind(t *testing.T) {
	t.Parallel()
	kinds := kindsOf([]string{"Git.Example.org = Forgejo", "plain.example", "hub.example=github", "lab.example:8443=gitlab"})
	for host, want := range map[string]forge.RESTHost{
		"gitlab.com":       {Kind: forge.GitLab, Base: "https://gitlab.com"},
		"git.example.org":  {Kind: forge.Forgejo, Base: "https://git.example.org"},
		"lab.example:8443": {Kind: forge.GitLab, Base: "https://lab.example:8443"},
	} {
		got, ok := hostOf(forge.Repo{Host: host, URL: "https://" + host + "/a/b"}, kinds[host]).(*forge.RESTHost)
		if !ok || *got != want {
			t.Errorf("hostOf(%s) = %+v, want %+v", host, got, want)
		}
	}
	for _, host := range []string{"github.com", "hub.example"} {
		if _, ok := hostOf(forge.Repo{Host: host}, kinds[host]).(*githubforge.Host); !ok {
			t.Errorf("hostOf(%s) is not GitHub, want it", host)
		}
	}
	if kind, ok := kinds["plain.example"]; !ok || hostOf(forge.Repo{Host: "plain.example"}, kind) != nil {
		t.Error("plain.example has a forge, want a host that may be used without one")
	}
	for host, want := range map[string]string{"git.example.org": "forge.git.example.org", "lab.example:8443": "forge.lab.example_8443", "[::1]:80": "forge.__1_80"} {
		if got := tokenOf(host); got != want {
			t.Errorf("tokenOf(%s) = %s, want %s", host, got, want)
		}
	}
}
