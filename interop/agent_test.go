package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// agentLine is one line of agent.mjs.
type agentLine struct {
	URL, Message, Skill, Cancelled string
	Key                            json.RawMessage
}

// agent starts agent.mjs and hands on what reaches it.
func (w *world) agent(t *testing.T, kind string) (ready agentLine, heard <-chan agentLine) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := w.command(ctx, "agent.mjs", kind)
	cmd.Stderr = logWriter{t, "agent " + kind}
	out, err := cmd.StdoutPipe()
	ok(t, err)
	ok(t, cmd.Start())
	lines := make(chan agentLine, 64)
	over := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-over
		_ = cmd.Wait() // killed: its status says so
	})
	go func() {
		defer close(over)
		defer close(lines)
		for scan := bufio.NewScanner(out); scan.Scan(); {
			var l agentLine
			if json.Unmarshal(scan.Bytes(), &l) == nil {
				lines <- l
			}
		}
	}()
	if ready = <-lines; ready.URL == "" {
		t.Fatalf(`the agent does not start; got ready.URL = %q; want ready.URL other than ""`, ready.URL)
	}
	return ready, lines
}

// TestAgents puts an agent of the official JavaScript SDK behind the server, once for
// each way of speaking to it, and calls it as a tool with each client: what it says on
// its way, a question of its own, and a call that is withdrawn arrive.
func TestAgents(t *testing.T) {
	w := newWorld(t, func(home string) {
		policy := filepath.Join(home, "policy")
		ok(t, os.Mkdir(policy, 0o700))
		ok(t, os.WriteFile(filepath.Join(policy, "all.cedar"), []byte(`@id("all") permit (principal, action, resource);`), 0o600))
	})
	for i, kind := range []string{"1.0-rpc", "1.0-rest", "0.3"} {
		ready, heard := w.agent(t, kind)
		key := filepath.Join(t.TempDir(), "key.jwk")
		ok(t, os.WriteFile(key, ready.Key, 0o600))
		name := "peer" + string(rune('a'+i))
		w.cli("upstreams", "add", name, "--a2a", "--local", "--url", ready.URL, "--key", key)
		tool := "agent_" + name + "_do_it"
		for _, client := range []string{"v1", "v2-legacy", "v2-modern"} {
			t.Run(kind+" from "+client, func(t *testing.T) { w.callAgent(t, client, tool, heard) })
		}
	}
}

func (w *world) callAgent(t *testing.T, client, tool string, heard <-chan agentLine) {
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := w.command(ctx, "agentcall.mjs", client, tool)
	cmd.Stderr = logWriter{t, client}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	steps := make(map[string]step)
	for line := range strings.Lines(string(out)) {
		var s step
		ok(t, json.Unmarshal([]byte(line), &s))
		steps[s.Step] = s
	}
	if !slices.Contains(steps["tools"].Names, tool) {
		t.Errorf(`no %s among %v; want steps["tools"].Names with %v`, tool, steps["tools"].Names, tool)
	}
	if s := steps["done"]; s.IsError || !strings.Contains(s.Text, `"text":"done"`) || !strings.Contains(s.Text, `{\"n\":7}`) {
		t.Errorf(`done: %+v; want s.IsError = false, s.Text with "\"text\":\"done\"", s.Text with "{\\\"n\\\":7}"`, s)
	}
	if s := steps["progress"]; !slices.Equal(s.Names, []string{"half way"}) {
		t.Errorf(`progress: %+v; want s.Names = []string{"half way"}`, s)
	}
	if s := steps["question"]; !strings.Contains(s.Text, "which one?") {
		t.Errorf(`question: %+v; want s.Text with "which one?"`, s)
	}
	if s := steps["answered"]; s.IsError || !strings.Contains(s.Text, "you said that one") {
		t.Errorf(`answered: %+v; want s.IsError = false, s.Text with "you said that one"`, s)
	}
	if _, there := steps["cancelled"]; !there {
		t.Error("the client did not see the end of the call that it withdrew")
	}
	for late := time.After(waitTimeout); ; {
		select {
		case l := <-heard:
			if l.Message == "go" && l.Skill != "do it" {
				t.Errorf(`%+v; want not (l.Message == "go" && l.Skill != "do it")`, l)
			}
			if l.Cancelled != "" {
				return
			}
		case <-late:
			t.Fatal("the cancellation did not reach the agent")
		}
	}
}
