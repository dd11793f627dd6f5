package mcpserve

import (
	"context"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// tokens is an authorization server that knows two tokens.
type tokens struct{}

func (tokens) Principal(_ context.Context, token string) (capability.Principal, error) {
	who := capability.Principal{ID: "agent:oidc/ann", Role: capability.RoleAgent, Scoped: true}
	switch token {
	case "reader":
		who.Most = capability.EffectRead
	case "nothing":
	default:
		return capability.Principal{}, capability.Errorf(capability.CodeUnauthenticated, "oauth", "this access token is not valid here")
	}
	return who, nil
}

func (tokens) ScopesFor(e capability.Effect) []string { return []string{"j." + string(e)} }

func TestChallengesSayWhereToGetAWiderToken(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{oauth: tokens{}})
	const where = `resource_metadata="https://public.example/.well-known/oauth-protected-resource/mcp"`
	for name, tt := range map[string]struct {
		r    reply
		want int
		says []string
	}{
		"none":        {st.modern("", "tools/list", "", ""), 401, []string{where, `scope="j.read"`}},
		"wrong":       {st.modern("other", "tools/list", "", ""), 401, []string{where, `error="invalid_token"`, `scope="j.read"`}},
		"ours":        {st.modern(st.agent, "tools/list", "", ""), 200, nil},
		"wide enough": {st.modern("reader", "tools/call", "raw", `"name":"raw",`), 200, nil},
		"too narrow": {
			st.modern("reader", "tools/call", "write", `"name":"write",`), 403,
			[]string{where, `error="insufficient_scope"`, `scope="j.write"`},
		},
		"for nothing":  {st.modern("nothing", "tools/call", "raw", `"name":"raw",`), 403, []string{`scope="j.read"`}},
		"in the query": {st.doTo(st.url+"?access_token=reader", "POST", "", modernBody("tools/list", "")), 401, []string{where}},
		"in a session": {st.do("POST", "reader", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write"}}`,
			mcpwire.HeaderSession, openAs(st, "reader")), 403, []string{`scope="j.write"`}},
		"hidden things": {st.modern("reader", "tools/call", "hidden", `"name":"hidden",`), 400, nil},
	} {
		if tt.r.status != tt.want {
			t.Errorf("%s: %d %s; want tt.r.status = %v", name, tt.r.status, tt.r.body, tt.want)
		}
		for _, part := range tt.says {
			if got := tt.r.header.Get("WWW-Authenticate"); !strings.Contains(got, part) {
				t.Errorf("%s: %s is not in %q; want got with %v", name, part, got, part)
			}
		}
	}
	if len(u.inputs) != 1 {
		t.Errorf("the upstream was called %d times; want len(u.inputs) = 1", len(u.inputs))
	}
}

func openAs(st *stack, token string) string { return st.open(token, mcpwire.Version20251125) }
