package host

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func echo(id string) Function {
	return Function{
		ID: id, Tool: id, Effect: capability.EffectRead,
		Handle: func(_ context.Context, c capability.Call) (capability.Result, error) {
			return capability.Result{Value: c.Input}, nil
		},
	}
}

func TestRegisterIsAllOrNothing(t *testing.T) {
	t.Parallel()
	list := Function{ID: "list", Action: "fs.list", Handle: echo("x").Handle}
	tests := []struct {
		name   string
		second []Function
		code   capability.Code
	}{
		{"duplicate id", []Function{echo("new"), echo("first")}, capability.CodeConflict},
		{"same id twice in one call", []Function{echo("new"), echo("new")}, capability.CodeConflict},
		{"action carried already", []Function{echo("new"), {ID: "other", Action: "fs.list", Handle: list.Handle}}, capability.CodeConflict},
		{"neither action nor tool", []Function{echo("new"), {ID: "other", Effect: "read", Handle: list.Handle}}, capability.CodeInvalidInput},
		{"both action and tool", []Function{{ID: "new", Action: "a.b", Tool: "t", Handle: list.Handle}}, capability.CodeInvalidInput},
		{"bad id", []Function{echo("-new")}, capability.CodeInvalidInput},
		{"tool without effect", []Function{{ID: "new", Tool: "t", Handle: list.Handle}}, capability.CodeInvalidInput},
		{"unknown effect", []Function{{ID: "new", Tool: "t", Effect: "execute", Handle: list.Handle}}, capability.CodeInvalidInput},
		{"no handler and no reason", []Function{{ID: "new", Tool: "t", Effect: "read"}}, capability.CodeInvalidInput},
		{"schema that is not an object", []Function{{
			ID: "new", Tool: "t", Effect: "read", Handle: list.Handle,
			InputSchema: json.RawMessage("null"),
		}}, capability.CodeInvalidInput},
		{"too many", []Function{echo("a"), echo("b"), echo("c")}, capability.CodeTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := New(Config{MaxFunctions: 4})
			if err := h.Register(echo("first"), list); err != nil {
				t.Fatal(err)
			}
			changed := h.Changed()
			err := h.Register(tt.second...)
			if got := capability.CodeOf(err); got != tt.code {
				t.Errorf("code %q (%v), want %q", got, err, tt.code)
			}
			if n := len(h.Functions()); n != 2 {
				t.Errorf("%d functions after a refused registration, want 2", n)
			}
			select {
			case <-changed:
				t.Error("a refused registration announced a change")
			default:
			}
		})
	}
}

func TestReplaceAndUnregister(t *testing.T) {
	t.Parallel()
	h := New(Config{MaxFunctions: 1})
	if err := h.Register(Function{ID: "list", Action: "fs.list", Handle: echo("x").Handle}); err != nil {
		t.Fatal(err)
	}
	changed := h.Changed()
	if err := h.Replace(Function{ID: "list", Action: "fs.list", Unavailable: "no root is configured"}); err != nil {
		t.Fatal(err)
	}
	<-changed
	_, err := h.Invoke(t.Context(), capability.Call{Action: "fs.list"})
	if capability.CodeOf(err) != capability.CodeUnavailable || !strings.Contains(err.Error(), "no root is configured") {
		t.Errorf("unavailable function answered %v; want capability.CodeOf(err) = capability.CodeUnavailable, err.Error() with "+
			`"no root is configured"`, err)
	}
	if got := capability.CodeOf(h.Replace(echo("absent"))); got != capability.CodeNotFound {
		t.Errorf("replacing an absent function: %q, want not_found", got)
	}
	if n := h.Unregister("list", "absent"); n != 1 {
		t.Errorf("unregistered %d, want 1", n)
	}
	_, err = h.Invoke(t.Context(), capability.Call{Action: "fs.list"})
	if capability.CodeOf(err) != capability.CodeUnknownCapability {
		t.Errorf("withdrawn function answered %v; want capability.CodeOf(err) = capability.CodeUnknownCapability", err)
	}
}

func TestInvokeFindsTheFunction(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	if err := h.Register(echo("tool"), Function{ID: "list", Action: "fs.list", Handle: echo("x").Handle}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		call capability.Call
		code capability.Code
	}{
		{"by member", capability.Call{Member: capability.Member{Module: "local", Kind: "function", Name: "tool"}}, ""},
		{"by capability id", capability.Call{Capability: "local/tool#ext.local.tool@local"}, ""},
		{"by action", capability.Call{Action: "fs.list"}, ""},
		{
			"member wins over action",
			capability.Call{Member: capability.Member{Name: "gone"}, Action: "fs.list"},
			capability.CodeUnknownCapability,
		},
		{"unknown action", capability.Call{Action: "fs.remove"}, capability.CodeUnknownCapability},
		{"nothing named", capability.Call{}, capability.CodeUnknownCapability},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			result, err := h.Invoke(t.Context(), tt.call)
			if got := capability.CodeOf(err); got != tt.code {
				t.Fatalf("code %q (%v), want %q", got, err, tt.code)
			}
			if err == nil && string(result.Value) != "{}" {
				t.Errorf(`absent input reached the function as %s; want not (err == nil && string(result.Value) != "{}")`, result.Value)
			}
		})
	}
}

func TestInvokeNamesEveryFailure(t *testing.T) {
	t.Parallel()
	shared := capability.Errorf(capability.CodeNotFound, "x", "no such file")
	tests := []struct {
		name   string
		handle func(context.Context, capability.Call) (capability.Result, error)
		code   capability.Code
		hidden string
	}{
		{
			"panic", func(context.Context, capability.Call) (capability.Result, error) { panic("inner detail") }, capability.CodeInternal,
			"inner detail",
		},
		{"foreign error", func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, errors.New("inner detail")
		}, capability.CodeFailed, "inner detail"},
		{"own error", func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, shared
		}, capability.CodeNotFound, ""},
		{"deadline", func(context.Context, capability.Call) (capability.Result, error) {
			return capability.Result{}, context.DeadlineExceeded
		}, capability.CodeTimeout, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := New(Config{})
			if err := h.Register(Function{ID: "f", Tool: "f", Effect: "read", Handle: tt.handle}); err != nil {
				t.Fatal(err)
			}
			_, err := h.Invoke(t.Context(), capability.Call{Member: capability.Member{Name: "f"}})
			e := capability.AsError(err)
			if e == nil || e.Code != tt.code || e.Target != "f" {
				t.Fatalf("got %+v, want code %q and target f", e, tt.code)
			}
			if tt.hidden != "" && strings.Contains(e.Error(), tt.hidden) {
				t.Errorf(`the message tells strangers %q; want not (tt.hidden != "" && strings.Contains(e.Error(), tt.hidden))`,
					e.Error())
			}
		})
	}
	if shared.Target != "" {
		t.Errorf(`a handler's shared error was changed; got shared.Target = %q; want shared.Target = ""`, shared.Target)
	}
}

func TestProgressStopsWithTheAnswer(t *testing.T) {
	t.Parallel()
	var kept func(capability.Chunk)
	h := New(Config{})
	err := h.Register(Function{
		ID: "f", Tool: "f", Effect: "read",
		Handle: func(_ context.Context, c capability.Call) (capability.Result, error) {
			kept = c.Progress
			c.Progress(capability.Chunk{Progress: 1})
			return capability.Result{}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_, err = h.Invoke(t.Context(), capability.Call{Member: capability.Member{Name: "f"}, Progress: func(capability.Chunk) { n++ }})
	kept(capability.Chunk{Progress: 2})
	if err != nil || n != 1 {
		t.Errorf("%d chunks (%v), want the one from before the answer", n, err)
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	var wg sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d"} {
		wg.Go(func() {
			for range 100 {
				if err := h.Register(echo(id)); err != nil {
					t.Error(err)
				}
				if _, err := h.Invoke(t.Context(), capability.Call{Member: capability.Member{Name: id}}); err != nil {
					t.Error(err)
				}
				_ = h.Functions()
				h.Unregister(id)
			}
		})
	}
	wg.Wait()
}
