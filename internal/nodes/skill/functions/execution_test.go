package functions_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

func node(t *testing.T, cfg functions.Config, of ...functions.Function) *functions.Executor {
	t.Helper()
	cfg.Node, cfg.Functions = "n", functions.New(0)
	for _, f := range of {
		if err := cfg.Functions.Register(f, true); err != nil {
			t.Fatal(err)
		}
	}
	return functions.NewExecutor(cfg)
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}

// blocking runs until it may end.
func blocking(name string, started chan<- string, finish <-chan struct{}) functions.Function {
	return functions.Function{Name: name, Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
		started <- c.ID
		select {
		case <-finish:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

func TestScenario41QueueFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, finish := make(chan string, 10), make(chan struct{})
		e := node(t, functions.Config{MaxConcurrent: 1, Queue: 2}, blocking("f", started, finish))
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				if _, err := e.Do(t.Context(), functions.Request{ID: fmt.Sprint(i), Function: "f"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if active, queued := e.Load(); active != 1 || queued != 2 {
			t.Errorf("e.Load(): active = %v, want 1; queued = %v, want 2", active, queued)
		}
		_, err := e.Do(t.Context(), functions.Request{Function: "f"})
		w := wire.FromError(err, "n", "f", false)
		if w.Code != wire.ReasonOverloaded || !w.Retryable || w.RetryAfter <= 0 ||
			w.Message != "Execution queue is full on node 'n'. Please retry later." {
			t.Errorf("%+v; want w.Code = wire.ReasonOverloaded, w.Retryable = true, w.RetryAfter more than 0, w.Message = "+
				`"Execution queue is full on node 'n'. Please retry later."`, w)
		}
		close(finish)
		wg.Wait()
		if active, queued := e.Load(); active != 0 || queued != 0 {
			t.Errorf("e.Load(): active = %v, want 0; queued = %v, want 0", active, queued)
		}
	})
}

func TestScenario42Timeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of    functions.Function
		asked time.Duration
		cfg   functions.Config
		want  time.Duration
	}{
		"function's": {functions.Function{Timeout: time.Second}, 0, functions.Config{}, time.Second},
		"caller's":   {functions.Function{Timeout: time.Minute}, 2 * time.Second, functions.Config{}, 2 * time.Second},
		"node's":     {functions.Function{}, 0, functions.Config{Timeout: 3 * time.Second}, 3 * time.Second},
		"default":    {functions.Function{}, 0, functions.Config{}, 300 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ended := make(chan error, 1)
			c.of.Name, c.of.Handle = "f", func(ctx context.Context, _ functions.Call) (json.RawMessage, error) {
				<-ctx.Done()
				ended <- ctx.Err()
				return nil, ctx.Err()
			}
			e := node(t, c.cfg, c.of)
			began := time.Now()
			_, err := e.Do(t.Context(), functions.Request{Function: "f", Timeout: c.asked})
			if reason(err) != wire.ReasonTimeout || time.Since(began) != c.want || !errors.Is(<-ended, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %s; want reason(err) = wire.ReasonTimeout, time.Since(began) = %v, <-ended is "+
					"context.DeadlineExceeded", name, err, time.Since(began), c.want)
			}
		})
	}
}

func TestACallerThatGoesEndsTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := make(chan string, 1)
		e := node(t, functions.Config{MaxConcurrent: 1}, blocking("f", started, nil))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		if _, err := e.Do(ctx, functions.Request{Function: "f"}); reason(err) != wire.ReasonCancelled {
			t.Errorf("%v; want reason(err) = wire.ReasonCancelled", err)
		}
		synctest.Wait()
		if active, _ := e.Load(); active != 0 {
			t.Errorf("the place is free again; got active = %v; want active = 0", active)
		}
	})
}

// A handler that does not listen keeps its place, but not its caller.
func TestAHandlerThatDoesNotListen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		e := node(t, functions.Config{MaxConcurrent: 1}, functions.Function{
			Name: "deaf",
			Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
				<-finish
				return nil, nil
			},
		})
		_, err := e.Do(t.Context(), functions.Request{Function: "deaf", Timeout: time.Second})
		if active, _ := e.Load(); reason(err) != wire.ReasonTimeout || active != 1 {
			t.Errorf("e.Load(): reason(err) = %q, want wire.ReasonTimeout; active = %v, want 1", reason(err), active)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Close(short); capability.CodeOf(err) != capability.CodeTimeout {
			t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTimeout", err)
		}
		close(finish)
		if err := e.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := e.Do(t.Context(), functions.Request{Function: "deaf"}); reason(err) != wire.ReasonOverloaded {
			t.Errorf("%v; want reason(err) = wire.ReasonOverloaded", err)
		}
	})
}

func counting(n int) functions.Function {
	return functions.Function{Name: "count", Stream: true, Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
		for i := range n {
			if err := c.Emit(ctx, json.RawMessage(fmt.Sprint(i))); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}}
}

func TestScenario44Streams(t *testing.T) {
	t.Parallel()
	e := node(t, functions.Config{}, counting(5), functions.Function{
		Name:   "plain",
		Handle: func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(`7`), nil },
	})
	var got []string
	emit := func(_ context.Context, chunk json.RawMessage) error { got = append(got, string(chunk)); return nil }
	out, err := e.Do(t.Context(), functions.Request{Function: "count", Stream: true, Emit: emit})
	if err != nil || !out.Streamed || out.Chunks != 5 || out.Bytes != 5 || out.Value != nil || strings.Join(got, "") != "01234" {
		t.Errorf("%+v %v %v; want no error, out.Streamed = true, out.Chunks = 5, out.Bytes = 5, out.Value = nil, "+
			`strings.Join(got, "") = "01234"`, out, got, err)
	}
	out, err = e.Do(t.Context(), functions.Request{Function: "count"})
	if err != nil || string(out.Value) != "[0,1,2,3,4]" || out.Streamed {
		t.Errorf(`%s %v; want no error, string(out.Value) = "[0,1,2,3,4]", out.Streamed = false`, out.Value, err)
	}
	out, err = e.Do(t.Context(), functions.Request{Function: "plain", Stream: true, Emit: emit})
	if err != nil || out.Streamed || string(out.Value) != "7" {
		t.Errorf(`%+v %v; want no error, out.Streamed = false, string(out.Value) = "7"`, out, err)
	}
	none := node(t, functions.Config{}, counting(0))
	if out, err := none.Do(t.Context(), functions.Request{Function: "count"}); err != nil || string(out.Value) != "[]" {
		t.Errorf(`%s %v; want no error, string(out.Value) = "[]"`, out.Value, err)
	}
	_, err = e.Do(t.Context(), functions.Request{
		Function: "count", Stream: true,
		Emit: func(context.Context, json.RawMessage) error { return errors.New("the reader is gone") },
	})
	if reason(err) != wire.ReasonExecution {
		t.Errorf("a reader that refuses a chunk ends the stream: %v; want reason(err) = wire.ReasonExecution", err)
	}
	many := node(t, functions.Config{}, counting(functions.MaxChunks+1))
	if _, err := many.Do(t.Context(), functions.Request{Function: "count"}); reason(err) != wire.ReasonTooLarge {
		t.Errorf("%v; want reason(err) = wire.ReasonTooLarge", err)
	}
}

func TestWhatHandlersDoWrong(t *testing.T) {
	t.Parallel()
	var panicked string
	cfg := functions.Config{
		Panicked: func(f string, v any) { panicked = fmt.Sprint(f, v) },
		Redact:   func(s string) string { return strings.ReplaceAll(s, "hunter2", "•••") },
	}
	answer := func(v string, err error) functions.Handler {
		return func(context.Context, functions.Call) (json.RawMessage, error) { return json.RawMessage(v), err }
	}
	e := node(
		t, cfg, functions.Function{Name: "panics", Handle: func(context.Context, functions.Call) (json.RawMessage, error) { panic("hunter2") }},
		functions.Function{Name: "fails", Handle: answer("", errors.New("no camera; hunter2"))},
		functions.Function{Name: "refuses", Handle: answer("", wire.Errorf(wire.ReasonParams, "hunter2"))},
		functions.Function{Name: "babbles", Handle: answer("{", nil)},
		functions.Function{Name: "large", Handle: answer(`"`+strings.Repeat("x", functions.MaxResult)+`"`, nil)},
		functions.Function{Name: "nothing", Handle: answer("", nil)},
	)
	for name, want := range map[string]string{
		"panics": wire.ReasonExecution, "fails": wire.ReasonExecution, "refuses": wire.ReasonParams, "babbles": wire.ReasonEncoding,
		"large": wire.ReasonTooLarge, "nobody": wire.ReasonFunctionNotFound, "nothing": "",
	} {
		out, err := e.Do(t.Context(), functions.Request{Function: name})
		if reason(err) != want || err != nil && strings.Contains(err.Error(), "hunter2") || want == "" && string(out.Value) != "null" {
			t.Errorf(`%s: %v; want reason(err) = %v, not (err != nil && strings.Contains(err.Error(), "hunter2")), not (want == `+
				`"" && string(out.Value) != "null")`, name, err, want)
		}
		if name == "fails" && !strings.Contains(err.Error(), "no camera") {
			t.Errorf(`a handler's own text is kept: %v; want not (name == "fails" && !strings.Contains(err.Error(), "no camera"))`, err)
		}
	}
	if panicked != "panicshunter2" {
		t.Errorf(`panicked = %q, want "panicshunter2"`, panicked)
	}
}

func TestTheMoreImportantComeFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started, finish := make(chan string, 10), make(chan struct{}, 10)
		low, high, one := blocking("low", started, finish), blocking("high", started, finish), blocking("one", started, finish)
		low.Priority, high.Priority, one.Priority, one.MaxConcurrent = 1, 9, 9, 1
		e := node(t, functions.Config{MaxConcurrent: 2}, low, high, one)
		var wg sync.WaitGroup
		for _, name := range []string{"one", "one", "low", "low", "high"} { // the second one waits for the first, and lets others pass
			wg.Go(func() { _, _ = e.Do(t.Context(), functions.Request{ID: name, Function: name}) })
			synctest.Wait()
		}
		var order []string
		for range 5 {
			order = append(order, <-started)
			if len(order) >= 2 {
				finish <- struct{}{}
				synctest.Wait()
			}
		}
		finish <- struct{}{}
		wg.Wait()
		if !slices.Equal(order[:2], []string{"one", "low"}) || slices.Index(order, "high") > 3 || order[4] != "low" {
			t.Errorf("order = %q, want one and low first, high within four, then low", order)
		}
	})
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		e := node(t, functions.Config{MaxConcurrent: 1, Queue: 1},
			functions.Function{Name: "f", Handle: func(_ context.Context, c functions.Call) (json.RawMessage, error) {
				runs++
				time.Sleep(time.Second)
				if len(c.Args.Args) > 1 {
					return nil, wire.Errorf(wire.ReasonExecution, "it failed")
				}
				return json.RawMessage(fmt.Sprint(runs)), nil
			}}, counting(3))
		call := func(function, caller, args string) (string, error) {
			a, _ := wire.ParseArguments(json.RawMessage(args))
			out, err := e.Do(t.Context(), functions.Request{Function: function, Caller: caller, Key: "k", Args: a})
			return string(out.Value), err
		}
		var wg sync.WaitGroup
		for range 5 { // at once
			wg.Go(func() {
				if v, err := call("f", "a", `[1]`); v != "1" || err != nil {
					t.Errorf(`call: v = %q, want "1"; err = %v, want nil`, v, err)
				}
			})
		}
		wg.Wait()
		if v, err := call("f", "a", ` [ 1 ] `); v != "1" || err != nil || runs != 1 {
			t.Errorf(`call: v = %q, want "1"; err = %v, want nil; runs = %v, want 1`, v, err, runs)
		}
		if _, err := call("f", "a", `[2]`); reason(err) != "idempotency_conflict" {
			t.Errorf(`%v; want reason(err) = "idempotency_conflict"`, err)
		}
		if v, err := call("f", "b", `[1]`); v != "2" || err != nil {
			t.Errorf(`another caller has keys of its own: %v %v; want v = "2", no error`, v, err)
		}
		for range 2 {
			if _, err := call("f", "c", `[1,2]`); reason(err) != wire.ReasonExecution || runs != 3 {
				t.Errorf("failures are remembered too: %v %v; want reason(err) = wire.ReasonExecution, runs = 3", err, runs)
			}
		}
		time.Sleep(functions.KeyTTL)
		if v, err := call("f", "a", `[2]`); v != "4" || err != nil {
			t.Errorf(`keys live a day: %v %v; want v = "4", no error`, v, err)
		}
		for range 2 {
			var got []string
			out, err := e.Do(t.Context(), functions.Request{
				Function: "count", Caller: "d", Key: "k", Stream: true,
				Emit: func(_ context.Context, c json.RawMessage) error {
					got = append(got, string(c))
					return nil
				},
			})
			if err != nil || !out.Streamed || strings.Join(got, "") != "012" {
				t.Errorf(`a stream is repeated: %v %v; want no error, out.Streamed = true, strings.Join(got, "") = "012"`, got, err)
			}
		}
		if _, err := call("nobody", "e", `[]`); reason(err) != wire.ReasonFunctionNotFound {
			t.Errorf("%v; want reason(err) = wire.ReasonFunctionNotFound", err)
		}
		if _, err := call("count", "e", `[]`); err != nil {
			t.Error("what never started is not remembered:", err)
		}
	})
}

func TestALargeOutcomeIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	runs := 0
	e := node(t, functions.Config{}, functions.Function{Name: "f", Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
		runs++
		return json.RawMessage(`"` + strings.Repeat("x", 2<<20) + `"`), nil
	}})
	for _, want := range []string{"", "outcome_not_kept", "outcome_not_kept"} {
		if _, err := e.Do(t.Context(), functions.Request{Function: "f", Key: "k"}); reason(err) != want || runs != 1 {
			t.Errorf("e.Do: reason(err) = %q, want %q; runs = %v, want 1", reason(err), want, runs)
		}
	}
}
