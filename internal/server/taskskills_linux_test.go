package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// skilled is a home whose agents may use one of the two tools of an extension.
func skilled(t *testing.T, env ...string) *node {
	t.Helper()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	const rules = `@id("people") permit (principal in Role::"admin", action, resource);
@id("skills") permit (principal in Role::"task", action, resource in Module::"tools.say") when { resource.action like "*hello" };`
	if err := os.WriteFile(filepath.Join(home, "policy", "skills.cedar"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	n := serve(t, home, env...)
	pkg := sayPackage(t, "1.0.0")
	pkg = rezip(t, pkg, "commands/commands.yaml", "{id: hello,", "{id: hello, agent_visible: true, args: [{name: word, required: true}],")
	pkg = rezip(t, pkg, "commands/commands.yaml", "{id: greet,", "{id: greet, agent_visible: true,")
	if err := n.install(t, pkg); err != nil {
		t.Fatal(err)
	}
	if err := n.enableSay(t); err != nil {
		t.Fatal(err)
	}
	return n
}

// manifest is what a session's program is told of its skills.
func (n *node) manifest(t *testing.T, id string) (path, text string) {
	t.Helper()
	path, has := n.variables(t, id)["ELIZA_SKILLS_MANIFEST"]
	if !has {
		return "", ""
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return path, string(data)
}

func (n *node) told(t *testing.T, thread, session string) (list []string) {
	t.Helper()
	var d struct {
		Transcripts []struct{ SessionID, Direction, Content string }
	}
	n.ask(t, "GET", "/api/coding-agents/coordinator/threads/"+thread+"?fields=transcripts", "", http.StatusOK, &d)
	for _, x := range d.Transcripts {
		if x.SessionID == session && x.Direction == "stdin" {
			list = append(list, x.Content)
		}
	}
	return list
}

// TestSkillsOfAgents: what a session may use is written down for its program, is used when
// it asks, and is taken back; what it may not is refused.
func TestSkillsOfAgents(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := skilled(t, env...)
	var made createdThread
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads", mustJSON(t, map[string]any{
		"task": "Say hello.", "agents": []any{
			map[string]any{"label": "may", "agentType": "claude", "task": `say USE_SKILL say-hello {"word":"good day"}`},
			map[string]any{"label": "words", "agentType": "claude", "task": `say USE_SKILL say-hello good evening`},
			map[string]any{"label": "wrong", "agentType": "claude", "task": `say USE_SKILL say-hello {"loud":true}`},
			map[string]any{"label": "may not", "agentType": "claude", "task": "say USE_SKILL say-greet"},
			map[string]any{"label": "waits", "agentType": "claude", "task": "linger say hello"},
		},
	}), http.StatusCreated, &made)
	path, text := n.manifest(t, made.Agents[4].SessionID)
	if !strings.HasPrefix(path, made.Agents[4].Workdir+"/.task-agents/SKILLS") ||
		!strings.Contains(text, "## Recommended for your task\n\n- `say-hello`") || !strings.Contains(text, "Input: word.") ||
		strings.Contains(text, "greet") {
		t.Errorf(`%s holds %s; want path beginning with made.Agents[4].Workdir + "/.task-agents/SKILLS", text with "## `+
			"Recommended for your task\\n\\n- `say-hello`\", text with \"Input: word.\", text without \"greet\"", path, text)
	}
	for i, want := range []string{
		"[skill say-hello: ok]\ngood day\n[end of skill say-hello]", "[skill say-hello: ok]\ngood evening\n[end of skill say-hello]",
		"[skill say-hello: error]\n",
		"[skill say-greet: error]\nthis skill is not among yours, which are: say-hello\n[end of skill say-greet]",
	} {
		id := made.Agents[i].SessionID
		eventually(t, made.Agents[i].Label+" is done", func() bool {
			for _, s := range n.thread(t, made.ThreadID).Sessions {
				if s.SessionID == id {
					return s.Status == "completed"
				}
			}
			return false
		})
		var told []string
		defer func() {
			if t.Failed() {
				t.Logf("%s was told %q", made.Agents[i].Label, told)
			}
		}()
		eventually(t, made.Agents[i].Label+" was told "+want, func() bool { // transcripts follow what happens
			told = n.told(t, made.ThreadID, id)
			return len(told) > 0 && strings.HasPrefix(told[len(told)-1], want)
		})
	}
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads/"+made.ThreadID+"/control", `{"action":"stop"}`, http.StatusOK, nil)
	eventually(t, "the manifest is taken back", func() bool { return !exists(filepath.Dir(path)) })

	// A task without a coordinator goes on too, and is stopped when it is really done.
	alone := n.spawnAgent(t, `{"agentType":"claude","task":"say USE_SKILL say-hello {\"word\":\"good night\"}"}`)
	eventually(t, "it has ended", func() bool { return n.shown(t, alone.ID).Status == "stopped" })
	if got := n.shown(t, alone.ID); got.CompletedTurns != 2 {
		t.Errorf("%+v; want got.CompletedTurns = 2", got)
	}
	// And one whose maker may use nothing.
	var olga struct{ Token string }
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]string{"role": "operator", "name": "olga"},
		&olga); err != nil {
		t.Fatal(err)
	}
	a := n.request(t, "POST", "/api/coding-agents/spawn", olga.Token, `{"agentType":"claude","task":"linger"}`)
	var hers struct{ SessionID string }
	if err := json.Unmarshal([]byte(a.body), &hers); err != nil || hers.SessionID == "" {
		t.Fatalf(`%d %s; want no error, hers.SessionID other than ""`, a.status, a.body)
	}
	if path, _ := n.manifest(t, hers.SessionID); path != "" {
		t.Errorf(`it has %s; want path = ""`, path)
	}
	n.terminate(t)
}

// TestNoSkillsOfAgents: agents.skill_callback takes it all away.
func TestNoSkillsOfAgents(t *testing.T) {
	t.Parallel()
	_, env := scriptedHome(t)
	n := skilled(t, append(env, "JUNCTOR_AGENTS_SKILL_CALLBACK=false")...)
	alone := n.spawnAgent(t, `{"agentType":"claude","task":"say USE_SKILL say-hello {\"word\":\"good night\"}"}`)
	if path, _ := n.manifest(t, alone.ID); path != "" {
		t.Errorf(`it has %s; want path = ""`, path)
	}
	eventually(t, "it has ended", func() bool { return n.shown(t, alone.ID).Status == "stopped" })
	if got := n.shown(t, alone.ID); got.CompletedTurns != 1 {
		t.Errorf("%+v; want got.CompletedTurns = 1", got)
	}
	n.terminate(t)
}
