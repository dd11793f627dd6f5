package functions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handle(context.Context, functions.Call) (json.RawMessage, error) { return nil, nil }

func f(name string) functions.Function { return functions.Function{Name: name, Handle: handle} }

func TestRegisterAndUnregister(t *testing.T) {
	t.Parallel()
	r := functions.New(3)
	for name, c := range map[string]struct {
		of   functions.Function
		code capability.Code
	}{
		"empty": {f(" "), capability.CodeInvalidInput}, "no handler": {functions.Function{Name: "a"}, capability.CodeInvalidInput},
		"negative": {functions.Function{Name: "a", Handle: handle, MaxConcurrent: -1}, capability.CodeInvalidInput},
		"priority": {functions.Function{Name: "a", Handle: handle, Priority: 11}, capability.CodeInvalidInput},
	} {
		if got := capability.CodeOf(r.Register(c.of, false)); got != c.code {
			t.Errorf("%s: %s; want got = %v", name, got, c.code)
		}
	}
	if err := r.Register(f("a"), false); err != nil {
		t.Fatal(err)
	}
	old, _ := r.Get("a")
	old.Began(time.Now())(time.Second, true)
	if capability.CodeOf(r.Register(f("a"), false)) != capability.CodeConflict || r.Register(f("a"), true) != nil {
		t.Error(`a name that is taken is replaced only when that is asked for; want capability.CodeOf(r.Register(f("a"), ` +
			`false)) = capability.CodeConflict, r.Register(f("a"), true) = nil`)
	}
	list, revision := r.List(true)
	if revision != 2 || list[0].Stats.Total != 0 || list[0].Owner != functions.OwnerNode || list[0].Effect != "execute" {
		t.Errorf(`%d %+v; want revision = 2, list[0].Stats.Total = 0, list[0].Owner = functions.OwnerNode, list[0].Effect = "execute"`,
			revision, list)
	}
	for _, c := range []struct {
		name string
		want string
	}{{"  a ", "true <nil>"}, {"a", "false <nil>"}, {"nobody", "false <nil>"}} {
		there, err := r.Unregister(c.name)
		if got := fmt.Sprint(there, " ", err); got != c.want {
			t.Errorf(`fmt.Sprint(there, " ", err) = %q, want %q; c.name = %q`, got, c.want, c.name)
		}
	}
	if _, err := r.Unregister(" "); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeInvalidInput", err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := r.Register(f(name), false); err != nil {
			t.Fatal(err)
		}
	}
	if capability.CodeOf(r.Register(f("d"), false)) != capability.CodeTooLarge || len(r.Names()) != 3 {
		t.Error(`the table is bounded; want capability.CodeOf(r.Register(f("d"), false)) = capability.CodeTooLarge, len(r.Names()) = 3`)
	}
}

func TestAChangeIsForOneRevision(t *testing.T) {
	t.Parallel()
	r := functions.New(0)
	_, revision := r.Owners()
	if err := r.Register(f("a"), false); err != nil {
		t.Fatal(err)
	}
	if done, err := r.Apply(functions.Change{Put: []functions.Function{f("b")}}, revision); done || err != nil {
		t.Errorf("r.Apply: done = %v, want false; err = %v, want nil", done, err)
	}
	_, revision = r.Owners()
	if done, err := r.Apply(functions.Change{Remove: []string{"a"}, Put: []functions.Function{f("b"), {Name: "*", Handle: handle}}},
		revision); done || err == nil {
		t.Errorf("r.Apply: done = %v, want false; err = %v, want an error", done, err)
	}
	done, err := r.Apply(functions.Change{
		Remove: []string{"a"}, Put: []functions.Function{f("b")},
		Own: map[string]string{"b": "skill:s", "nobody": "x"},
	}, revision)
	owners, _ := r.Owners()
	if !done || err != nil || fmt.Sprint(owners) != "map[b:skill:s]" {
		t.Errorf(`done = %v, want true; err = %v, want nil; fmt.Sprint(owners) = %q, want "map[b:skill:s]"`, done, err, fmt.Sprint(owners))
	}
}

func TestStatistics(t *testing.T) {
	t.Parallel()
	r := functions.New(0)
	_ = r.Register(functions.Function{Name: "a", Handle: handle, Timeout: 1500 * time.Millisecond}, false)
	g, _ := r.Get("a")
	end := g.Began(time.Unix(0, 0))
	if e := g.Entry(false); e.Active != 1 || e.Stats != nil || *e.TimeoutSeconds != 1.5 {
		t.Errorf("%+v; want e.Active = 1, e.Stats = nil, *e.TimeoutSeconds = 1.5", e)
	}
	end(2*time.Second, false)
	g.Began(time.Unix(60, 0))(4*time.Second, true)
	if s := g.Entry(true).Stats; s.Total != 2 || s.Successful != 1 || s.Failed != 1 || s.AverageTime != 3 ||
		s.LastExecuted != "1970-01-01T00:01:00.000000+00:00" {
		t.Errorf("%+v; want s.Total = 2, s.Successful = 1, s.Failed = 1, s.AverageTime = 3, s.LastExecuted = "+
			`"1970-01-01T00:01:00.000000+00:00"`, s)
	}
}

func TestChangesTravelTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := functions.New(0)
		var mu sync.Mutex
		var told []uint64
		var fails error
		refresher := functions.NewRefresher(r, func(_ context.Context, revision uint64) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, revision)
			return fails
		})
		for i := range 5 {
			_ = r.Register(f(fmt.Sprint("f", i)), false)
		}
		time.Sleep(functions.DebounceDelay + time.Millisecond)
		_ = r.Register(f("now"), false)
		if err := refresher.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second) // the timer finds that it is known
		if fmt.Sprint(told) != "[5 6]" {
			t.Errorf(`fmt.Sprint(told) = %q, want "[5 6]"`, fmt.Sprint(told))
		}
		fails = errors.New("away")
		_ = r.Register(f("later"), false)
		if err := refresher.Flush(t.Context()); err == nil {
			t.Error("a failure is told; want an error")
		}
		refresher.Close()
		_ = r.Register(f("after"), false)
		time.Sleep(time.Second)
		if fmt.Sprint(told) != "[5 6 7]" {
			t.Errorf(`fmt.Sprint(told) = %q, want "[5 6 7]"`, fmt.Sprint(told))
		}
	})
}
