package runner_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/queue"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
	"github.com/junctor-run/junctor/internal/testkit/sessiontest"
)

// recorder is an executor that states what it was asked.
type recorder struct {
	mu    sync.Mutex
	runs  []runner.Run
	needs []string
	fail  error
	wait  chan struct{} // told when a run begins, which then lasts until it is ended
}

func (*recorder) Supports(runner string) bool      { return runner != "exec.unsupported" }
func (r *recorder) Needs(*command.Action) []string { return r.needs }

func (r *recorder) Execute(ctx context.Context, run runner.Run) (runner.Outcome, error) {
	if r.wait != nil {
		r.wait <- struct{}{}
		<-ctx.Done()
		return runner.Outcome{}, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, run)
	return runner.Outcome{
		Output: fmt.Sprintf("%q", run.Route.Args), Kept: true, Ran: capability.Ran{Tool: "t"},
		Metadata: map[string]any{"exit_code": 0},
	}, r.fail
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

type rig struct {
	testing.TB
	exec    *recorder
	results *session.Results
	away    atomic.Bool // the store of results
	running runner.Running
	digest  atomic.Pointer[string] // of the settings
	entries map[string]capability.Contribution
	module  capability.Module
	by      capability.Provider
	batches chan capability.Batch
	news    chan struct{}
}

// leaving is a store that may be away.
type leaving struct {
	session.Store
	away *atomic.Bool
}

func (s *leaving) PutResult(ctx context.Context, o session.Owner, r session.Result, most session.ResultBounds) error {
	if s.away.Load() {
		return capability.Errorf(capability.CodeUnavailable, "store", "the shared store does not answer")
	}
	return s.Store.PutResult(ctx, o, r, most)
}

func sample() runner.Extension {
	flag := func(name string, value bool) command.Flag {
		return command.Flag{Arg: command.Arg{Name: name}, TakesValue: value}
	}
	return runner.Extension{
		Module: capability.Module{
			Extension: "tools.sample", ID: "tools.sample", Name: "Sample", Origin: "workspace", Digest: "sha256:aa",
			Contributions: []capability.Contribution{{
				ID: "tool.sample.get", Kind: "capability.agent-tool", Tool: "sample.get", Effect: capability.EffectExternal,
				Member: capability.Member{Module: "tools.sample", Kind: "contribution", Name: "tool.sample.get"},
			}},
		},
		Commands: []command.Command{{
			Name: "sample", Permissions: []string{"exec"}, DefaultAction: "get", Actions: []command.Action{
				{ID: "get", Runner: "exec.curl", Args: []command.Arg{
					{Name: "url", Required: true},
					{Name: "depth", Type: "integer", Default: "1"},
					{Name: "note"},
				}, Flags: []command.Flag{flag("head", true), flag("quiet", false)}, Timeout: time.Second},
				{ID: "keep", Runner: "exec.curl", Cache: time.Minute, Permissions: []string{"network"}},
				{ID: "sure", Runner: "exec.curl", Confirm: "always"},
				{ID: "change", Runner: "db.exec"},
				{ID: "explain", Runner: "analyze.response"},
				{ID: "strange", Runner: "teleport.now"},
				{ID: "refused", Runner: "exec.unsupported"},
			},
		}},
	}
}

func newRig(t testing.TB, exec *recorder, rates queue.Rates) *rig {
	t.Helper()
	r := &rig{
		TB: t, exec: exec, entries: make(map[string]capability.Contribution), news: make(chan struct{}),
		batches: make(chan capability.Batch),
	}
	r.results = session.NewResults(session.ResultsConfig{Store: &leaving{Store: sessiontest.NewMemory(), away: &r.away}})
	effect := func(permissions []string) capability.Effect {
		if slices.Contains(permissions, "network") {
			return capability.EffectExternal
		}
		return capability.EffectRead
	}
	src := runner.New(runner.Config{
		Executors: map[string]runner.Executor{"exec": exec, "analyze.response": exec, "db": exec},
		Queue:     queue.New(queue.Limits{}), Limiter: queue.NewLimiter(rates, time.Now), Cache: queue.NewCache(time.Now), Results: r.results,
		Running: &r.running, QueueWait: time.Minute, Effect: effect,
		Settings: func(context.Context, string) (string, error) {
			if d := r.digest.Load(); d != nil {
				return *d, nil
			}
			return "", nil
		},
	}, func() []runner.Extension { return []runner.Extension{sample()} }, r.news)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- src.Run(ctx, func(b capability.Batch) error { r.batches <- b; return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
	r.take()
	return r
}

// take reads the next batch.
func (r *rig) take() {
	b := <-r.batches
	r.module, r.by = b.Modules[0], b.Providers[0]
	for _, c := range r.module.Contributions {
		r.entries[c.Member.Kind+":"+c.Member.Name] = c
	}
}

func (r *rig) call(kind, name, input string) (runner.Reply, error) {
	r.Helper()
	out, err := r.by.Invoke(r.Context(), capability.Call{
		Invocation: "run_1", Member: capability.Member{Module: "tools.sample", Kind: kind, Name: name}, Session: "s",
		Principal: capability.Principal{ID: "agent:x"},
		Input:     json.RawMessage(input), Progress: func(capability.Chunk) {},
	})
	var reply runner.Reply
	if err == nil {
		err = json.Unmarshal(out.Value, &reply)
	}
	return reply, err
}

func TestEachActionHasAnEntryAndToolsTheirWay(t *testing.T) {
	t.Parallel()
	r := newRig(t, &recorder{}, queue.Rates{})
	if r.module.Origin != capability.OriginExtension {
		t.Errorf("r.module.Origin = %q, want capability.OriginExtension", r.module.Origin)
	}
	for name, want := range map[string]struct {
		state   capability.State
		effect  capability.Effect
		confirm bool
		time    time.Duration
	}{
		"command:sample.get":     {capability.StateReady, capability.EffectExternal, false, time.Minute + time.Second},
		"command:sample.sure":    {capability.StateReady, capability.EffectExternal, true, 0},
		"command:sample.change":  {capability.StateReady, capability.EffectRead, true, 0},
		"command:sample.explain": {capability.StateReady, capability.EffectRead, false, 0},
		"command:sample.strange": {capability.StateUnconfigured, capability.EffectRead, false, 0},
		"command:sample.refused": {capability.StateUnconfigured, capability.EffectExternal, false, 0},
	} {
		c := r.entries[name]
		if c.Availability.State != want.state || c.Effect != want.effect || c.Approval != want.confirm || c.Timeout != want.time ||
			c.Provider != r.by.Key() {
			t.Errorf("%s: %+v; want c.Availability.State = %v, c.Effect = %v, c.Approval = %v, c.Timeout = %v, c.Provider = r.by.Key()",
				name, c, want.state, want.effect, want.confirm, want.time)
		}
	}
	if c := r.entries["contribution:tool.sample.get"]; c.Provider != r.by.Key() || c.Availability.State != capability.StateReady {
		t.Errorf("%+v; want c.Provider = r.by.Key(), c.Availability.State = capability.StateReady", c)
	}
	c := catalogtest.New(t)
	if _, _, err := c.Replace(capability.Batch{
		Source: "extension", Modules: []capability.Module{r.module},
		Providers: []capability.Provider{r.by},
	}); err != nil {
		t.Fatal(err)
	}
	if rejected := c.Snapshot().Rejected(); len(rejected) != 0 {
		t.Errorf("%+v; want len(rejected) = 0", rejected)
	}
}

func TestWhatARunnerNeedsMustBeDeclared(t *testing.T) {
	t.Parallel()
	r := newRig(t, &recorder{needs: []string{"exec"}}, queue.Rates{})
	if _, err := r.call("command", "sample.keep", `{}`); capability.AsError(err).Reason != "permission_denied" ||
		!strings.Contains(err.Error(), "exec") || r.exec.count() != 0 {
		t.Errorf(`%v; want capability.AsError(err).Reason = "permission_denied", err.Error() with "exec", r.exec.count() = 0`, err)
	}
	if _, err := r.call("command", "sample.get", `{"args":["https://a"]}`); err != nil {
		t.Error(err)
	}
}

func TestWordsAndObjectsMeanTheSame(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, kind, member, input, want, code string }{
		{"words", "command", "sample.get", `{"args":["https://a","2"]}`, `["https://a" "2"]`, ""},
		{"a word stays one, whatever it holds", "command", "sample.get", `{"args":["a b; $(c) 'd' \"e\" \\"]}`, `["a b; $(c) 'd' \"e\" \\"]`, ""},
		{
			"an object", "contribution", "tool.sample.get", `{"url":"a b","head":"x y","quiet":true,"depth":3}`,
			`["--head=x y" "--quiet" "a b" "3"]`, "",
		},
		{"a switch that is off", "contribution", "tool.sample.get", `{"url":"a","quiet":false}`, `["a"]`, ""},
		{"a default between", "contribution", "tool.sample.get", `{"url":"a","note":"n"}`, `["a" "1" "n"]`, ""},
		{"a large number", "contribution", "tool.sample.get", `{"url":"a","depth":9007199254740993}`, `["a" "9007199254740993"]`, ""},
		{"no url", "contribution", "tool.sample.get", `{"depth":1}`, "", "invalid_input"},
		{"a list", "contribution", "tool.sample.get", `{"url":["a"]}`, "", "invalid_input"},
		{"no number", "command", "sample.get", `{"args":["a","b"]}`, "", "invalid_input"},
		{"no words", "command", "sample.get", `{"args":7}`, "", "invalid_input"},
		{"no object", "contribution", "tool.sample.get", `[]`, "", "invalid_input"},
		{"an action nobody has", "command", "sample.none", `{}`, "", "unknown_capability"},
		{"a tool by a command's door", "command", "tool.sample.get", `{}`, "", "unknown_capability"},
		{"a runner nobody has", "command", "sample.strange", `{}`, "", "invalid_input"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, &recorder{}, queue.Rates{})
			reply, err := r.call(tt.kind, tt.member, tt.input)
			if reply.Output != tt.want || string(capability.CodeOf(err)) != tt.code {
				t.Errorf("%s, %v; want reply.Output = %v, string(capability.CodeOf(err)) = %v", reply.Output, err, tt.want, tt.code)
			}
		})
	}
}

func TestARunIsCountedQueuedAndKept(t *testing.T) {
	t.Parallel()
	exec := &recorder{}
	r := newRig(t, exec, queue.Rates{PerMinute: 1, Burst: 6})
	keep := func(input string) runner.Reply {
		t.Helper()
		reply, err := r.call("command", "sample.keep", input)
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	first, second := keep(`{"args":["a"]}`), keep(`{"args":["a"]}`)
	if second.Metadata["cached"] != true || second.Output != first.Output || exec.count() != 1 {
		t.Errorf(`%+v %d; want second.Metadata["cached"] = true, second.Output = %v, exec.count() = 1`,
			second, exec.count(), first.Output)
	}
	keep(`{"args":["a"],"no_cache":true}`)
	r.news <- struct{}{}
	r.take()
	if reply := keep(`{"args":["a"]}`); reply.Metadata["cached"] != nil || exec.count() != 3 {
		t.Errorf(`%+v %d; want reply.Metadata["cached"] = nil, exec.count() = 3`, reply, exec.count())
	}
	if _, err := r.call("command", "sample.keep", `{"args":["a"]}`); capability.CodeOf(err) != capability.CodeOverloaded || exec.count() != 3 {
		t.Errorf("%v %d; want capability.CodeOf(err) = capability.CodeOverloaded, exec.count() = 3", err, exec.count())
	}
	run := exec.runs[0]
	if d := cmp.Diff([]string{"network"}, run.Permissions); d != "" || run.ID != "run_1" || run.Digest != "sha256:aa" {
		t.Errorf(`%s %+v; want d = "", run.ID = "run_1", run.Digest = "sha256:aa"`, d, run)
	}
	last, err := r.results.Last(t.Context(), session.Owner{Principal: "agent:x", Session: "s"}, session.Reader{Extension: "tools.sample"})
	if err != nil || last.Text != `["a"]` || last.Command != "/sample" || last.Action != "keep" || last.Run != "run_1" {
		t.Errorf(`%+v %v; want no error, last.Text = "[\"a\"]", last.Command = "/sample", last.Action = "keep", last.Run = "run_1"`,
			last, err)
	}
}

func TestARunThatCannotBeKeptDoesNotSayThatItDidNotStart(t *testing.T) {
	t.Parallel()
	exec := &recorder{}
	r := newRig(t, exec, queue.Rates{})
	r.away.Store(true)
	_, err := r.call("command", "sample.get", `{"args":["https://a"]}`)
	if e := capability.AsError(err); e.Code != capability.CodeFailed || e.Reason != "result_not_kept" || exec.count() != 1 {
		t.Errorf(`%v, %d runs; want e.Code = capability.CodeFailed, e.Reason = "result_not_kept", exec.count() = 1`, err, exec.count())
	}
}

func TestAFailureLeavesNothing(t *testing.T) {
	t.Parallel()
	exec := &recorder{fail: fault.ExecutionFailed(3, "no")}
	r := newRig(t, exec, queue.Rates{})
	for range 2 {
		if _, err := r.call("command", "sample.keep", `{}`); capability.AsError(err).Reason != "execution_failed" {
			t.Fatalf(`%v; want capability.AsError(err).Reason = "execution_failed"`, err)
		}
	}
	if exec.count() != 2 {
		t.Error("a failure was kept; want exec.count() = 2")
	}
	if _, err := r.results.Last(t.Context(), session.Owner{Principal: "agent:x", Session: "s"},
		session.Reader{Extension: "tools.sample"}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

func TestRunsOfAnExtensionCanBeEnded(t *testing.T) {
	t.Parallel()
	exec := &recorder{wait: make(chan struct{})}
	r := newRig(t, exec, queue.Rates{})
	ended := make(chan error)
	go func() {
		_, err := r.call("command", "sample.keep", `{}`)
		ended <- err
	}()
	<-exec.wait
	if err := r.running.Stop(t.Context(), "another"); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	// One that does not wait long enough is told so; the runs end all the same.
	err := r.running.Stop(over, "tools.sample")
	if err != nil && capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want not (err != nil && capability.CodeOf(err) != capability.CodeCancelled)", err)
	}
	if err := <-ended; err == nil {
		t.Error("it went on; want an error")
	}
	if err := r.running.Stop(t.Context(), "tools.sample"); err != nil {
		t.Error(err)
	}
}

// BenchmarkExecute measures the runner without the executor: the choice of action and
// executor, parsing of arguments, queue, rate limit, and formatting of the result.
func BenchmarkExecute(b *testing.B) {
	r := newRig(b, &recorder{}, queue.Rates{PerMinute: 1 << 30, Burst: 1 << 30})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.call("command", "sample.get", `{"args":["https://a","2"]}`); err != nil {
			b.Fatal(err)
		}
		r.exec.runs = r.exec.runs[:0]
	}
}

func TestTheTaskAgentsOfAPersonAreOneUser(t *testing.T) {
	t.Parallel()
	exec := &recorder{}
	r := newRig(t, exec, queue.Rates{PerMinute: 1, Burst: 2})
	var got []string
	for _, by := range []capability.Principal{{ID: "agent:a", OnBehalfOf: "user:p"}, {ID: "agent:b", OnBehalfOf: "user:p"}, {ID: "user:q"}} {
		_, err := r.by.Invoke(t.Context(), capability.Call{
			Invocation: "run_1", Member: capability.Member{Module: "tools.sample", Kind: runner.Kind, Name: "sample.change"},
			Principal: by, Input: json.RawMessage(`{}`), Progress: func(capability.Chunk) {},
		})
		got = append(got, by.ID+" "+string(capability.CodeOf(err)))
	}
	if d := cmp.Diff([]string{"agent:a ", "agent:b overloaded", "user:q "}, got); d != "" {
		t.Errorf("outcome of one call each (-want +got):\n%s", d)
	}
	if len(exec.runs) != 2 || exec.runs[0].Person != "user:p" || exec.runs[1].Person != "user:q" {
		t.Errorf("runs = %+v, want one of user:p and one of user:q", exec.runs)
	}
}

func TestChangedSettingsUndoAnApproval(t *testing.T) {
	t.Parallel()
	exec := &recorder{}
	r := newRig(t, exec, queue.Rates{PerMinute: 1000, Burst: 1000})
	set := func(s string) { r.digest.Store(&s) }
	set("one")
	call := capability.Call{
		Invocation: "run_1", Member: capability.Member{Module: "tools.sample", Kind: runner.Kind, Name: "sample.change"},
		Principal: capability.Principal{ID: "agent:x"}, Input: json.RawMessage(`{}`), Progress: func(capability.Chunk) {},
	}
	preview := func() string {
		t.Helper()
		p, err := r.by.(capability.Previewer).Preview(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		return p.Binds
	}
	call.Agreed = preview()
	if _, err := r.by.Invoke(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	set("two")
	if now := preview(); now == call.Agreed {
		t.Errorf("Binds after a change of the settings = %q, want another than before", now)
	}
	if _, err := r.by.Invoke(t.Context(), call); capability.CodeOf(err) != capability.CodeConflict || exec.count() != 1 {
		t.Errorf("Invoke(approved with other settings) = %v after %d runs, want conflict after 1", err, exec.count())
	}
}
