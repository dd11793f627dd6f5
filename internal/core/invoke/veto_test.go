package invoke_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/invoke"
)

// augmenter publishes a route augmenter that answers as f says.
func (r *rig) augmenter(name string, a capability.Augment, f func(question string) (string, error)) *fake {
	r.Helper()
	p := &fake{
		key: capability.NewProviderKey("route", "node", name),
		do: func(_ context.Context, c capability.Call) (capability.Result, error) {
			answer, err := f(string(c.Input))
			return capability.Result{Value: json.RawMessage(answer)}, err
		},
	}
	_, _, err := r.catalog.Replace(capability.Batch{
		Source: name, Providers: []capability.Provider{p},
		Modules: []capability.Module{{Extension: name, ID: name, Origin: "node", Contributions: []capability.Contribution{
			{ID: "veto", Kind: "capability.route-augmenter", Provider: p.key, Effect: capability.EffectRead, Augment: &a},
		}}},
	})
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// chat publishes accounts of a messaging adapter, each with its provider.
func (r *rig) chat(action capability.Action, effect capability.Effect, accounts ...string) map[string]*fake {
	r.Helper()
	out := make(map[string]*fake)
	b := capability.Batch{Source: "chat"}
	m := capability.Module{Extension: "chat", ID: "chat", Origin: "extension"}
	domain, _, _ := strings.Cut(string(action), ".")
	if domain == "message" {
		domain = "messaging"
	}
	for _, account := range accounts {
		p := &fake{key: capability.NewProviderKey(domain, "chat", account)}
		out[account] = p
		b.Providers = append(b.Providers, p)
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: "adapter", Kind: "adapter.runtime", Action: action, Effect: effect,
			Provider: p.key,
		})
	}
	b.Modules = []capability.Module{m}
	if _, _, err := r.catalog.Replace(b); err != nil {
		r.Fatal(err)
	}
	return out
}

func send() capability.Invocation {
	return capability.Invocation{
		Principal: operator(), Target: capability.Target{Action: "message.send"}, Input: json.RawMessage(`{"text":"hello"}`),
		Context: &capability.Context{Route: &capability.Route{Kind: "chat", Account: "work", Conversation: "C1", Thread: "T1"}},
	}
}

func TestAVetoStopsACallAndNothingElseIsTried(t *testing.T) {
	t.Parallel()
	const all = `permit (principal, action, resource);`
	for name, tt := range map[string]struct {
		augment capability.Augment
		answer  string
		fails   error
		stopped bool
	}{
		"a veto": {
			capability.Augment{Effect: "veto", Targets: []string{"message.send"}},
			`{"veto":true,"reason":"bob owns the thread"}`, nil, true,
		},
		"a glob":         {capability.Augment{Effect: "veto", Targets: []string{"message.*"}}, `{"veto":true}`, nil, true},
		"no veto":        {capability.Augment{Effect: "veto", Targets: []string{"message.send"}}, `{"veto":false}`, nil, false},
		"another action": {capability.Augment{Effect: "veto", Targets: []string{"message.reply"}}, `{"veto":true}`, nil, false},
		"who only looks on": {
			capability.Augment{Effect: "observe-only", Targets: []string{"message.send"}},
			`{"veto":true}`, nil,
			false,
		},
		"a failure, open": {capability.Augment{Effect: "veto", Targets: []string{"message.send"}}, "", errors.New("broken"), false},
		"a failure, closed": {
			capability.Augment{Effect: "veto", Targets: []string{"message.send"}, FailureMode: "fail-closed"},
			"",
			errors.New("broken"), true,
		},
		"an answer that is none": {capability.Augment{Effect: "veto", Targets: []string{"message.send"}}, `7`, nil, false},
		"an answer that is none, cl": {
			capability.Augment{Effect: "veto", Targets: []string{"message.send"}, FailureMode: "fail-closed"},
			`7`,
			nil, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := ""
			r := newRig(t, options{rules: all, tune: func(c *invoke.Config) {
				c.Vetoed = func(_ *capability.Invocation, _ *catalog.Entry, by, reason string) { told = by + ": " + reason }
			}})
			accounts := r.chat("message.send", capability.EffectExternal, "work", "home")
			r.augmenter("owner", tt.augment, func(question string) (string, error) {
				if !strings.Contains(question, `"stage":"egress.preparing"`) || !strings.Contains(question, `"thread":"T1"`) ||
					!strings.Contains(question, "hello") {
					t.Errorf(`asked %s; want question with "\"stage\":\"egress.preparing\"", question with "\"thread\":\"T1\"", `+
						`question with "hello"`, question)
				}
				return tt.answer, tt.fails
			})
			reply, err := r.engine.Invoke(t.Context(), send())
			if !tt.stopped {
				if err != nil || accounts["work"].calls.Load() != 1 || told != "" {
					t.Errorf(`%v %s; want no error, accounts["work"].calls.Load() = 1, told = ""`, err, told)
				}
				return
			}
			fails(t, err, capability.CodeDenied, "route_vetoed")
			if n := accounts["work"].calls.Load() + accounts["home"].calls.Load(); n != 0 || !strings.HasPrefix(told, "owner/veto: ") ||
				reply.State != invoke.StateFailed {
				t.Errorf(`%d calls, told %q, %s; want n = 0, told beginning with "owner/veto: ", reply.State = invoke.StateFailed`,
					n, told, reply.State)
			}
		})
	}
}

func TestReasonOfAVetoIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	told := ""
	r := newRig(t, options{rules: `permit (principal, action, resource);`, tune: func(c *invoke.Config) {
		c.Vetoed = func(_ *capability.Invocation, _ *catalog.Entry, _, reason string) { told = reason }
	}})
	r.chat("message.send", capability.EffectExternal, "work")
	r.augmenter("owner", capability.Augment{Effect: "veto", Targets: []string{"message.send"}}, func(string) (string, error) {
		return `{"veto":true,"reason":"x` + strings.Repeat("é", 150) + `"}`, nil
	})
	_, err := r.engine.Invoke(t.Context(), send())
	fails(t, err, capability.CodeDenied, "route_vetoed")
	if !utf8.ValidString(told) || strings.Contains(told, "\ufffd") || !strings.Contains(told, "éé") {
		t.Errorf("reason = %q, want valid UTF-8", told)
	}
}

func TestAReadIsNotAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{rules: `permit (principal, action, resource);`})
	r.chat("message.read", capability.EffectRead, "work")
	p := r.augmenter("owner", capability.Augment{Effect: "veto", Targets: []string{"*"}},
		func(string) (string, error) { return `{"veto":true}`, nil })
	inv := send()
	inv.Target.Action = "message.read"
	inv.Input = json.RawMessage(`{}`)
	r.passes(inv)
	if p.calls.Load() != 0 {
		t.Error("asked about a read; want p.calls.Load() = 0")
	}
}

func TestAllAsksEveryProviderOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, options{rules: `permit (principal, action, resource);`})
	accounts := r.chat("directory.lookup", capability.EffectRead, "a", "b", "c")
	accounts["b"].do = func(context.Context, capability.Call) (capability.Result, error) {
		return capability.Result{}, capability.Errorf(capability.CodeFailed, "", "no such person")
	}
	for _, p := range []string{"a", "c"} {
		accounts[p].do = func(_ context.Context, c capability.Call) (capability.Result, error) {
			if strings.Contains(string(c.Input), "all") {
				t.Errorf(`a provider was told %s; want string(c.Input) without "all"`, c.Input)
			}
			return capability.Result{Value: json.RawMessage(fmt.Sprintf(`{"matches":[%q]}`, p))}, nil
		}
	}
	inv := capability.Invocation{
		Principal: operator(), Target: capability.Target{Action: "directory.lookup"},
		Input: json.RawMessage(`{"query":"ann","all":true}`),
	}
	reply, err := r.engine.Invoke(t.Context(), inv)
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Results []struct {
			ProviderKey string
			OK          bool
			Error       struct{ Code string }
		}
	}
	if err := json.Unmarshal(reply.Result, &out); err != nil || len(out.Results) != 3 {
		t.Fatalf("%s %v; want no error, len(out.Results) = 3", reply.Result, err)
	}
	keys := []string{}
	for _, one := range out.Results {
		keys = append(keys, one.ProviderKey)
		if one.OK != (one.ProviderKey != "directory:chat:b") || one.OK != (one.Error.Code == "") {
			t.Errorf(`%+v; want one.OK = (one.ProviderKey != "directory:chat:b"), one.OK = (one.Error.Code == "")`, one)
		}
	}
	if !slices.IsSorted(keys) || reply.Selection.DecidedBy != "all" {
		t.Errorf(`%v %+v; want slices.IsSorted(keys), reply.Selection.DecidedBy = "all"`, keys, reply.Selection)
	}
	inv.Target.Select, inv.Input = capability.Selector{"account": "a"}, json.RawMessage(`{"query":"ann"}`) // an ordinary call
	if reply, err = r.engine.Invoke(t.Context(), inv); err != nil || reply.Selection.Step != 1 {
		t.Errorf("%+v %v; want no error, reply.Selection.Step = 1", reply.Selection, err)
	}
}
