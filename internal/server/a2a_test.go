package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestATaskThatWaitsOutlivesAKill: an agent's write waits for an operator, the server is
// killed, and after the approval the next process carries it out.
func TestATaskThatWaitsOutlivesAKill(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	n := serve(t, home)
	data, err := os.ReadFile(filepath.Join(home, "run", "agent.token"))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(data))
	type task struct {
		ID     string
		Status struct {
			State   string
			Message struct{ Parts []map[string]any }
		}
	}
	rpc := func(method, params string) (out struct {
		Result json.RawMessage
		Error  any
	},
	) {
		t.Helper()
		a := n.request(t, "POST", "/a2a", token, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`,
			func(r *http.Request) { r.Header.Set("A2A-Version", "1.0") })
		if err := json.Unmarshal([]byte(a.body), &out); err != nil || out.Error != nil {
			t.Fatalf("%s: %d %s %v; want no error, out.Error = nil", method, a.status, a.body, err)
		}
		return out
	}
	card := n.request(t, "GET", "/.well-known/jwks.json", "", "").body
	var sent struct{ Task task }
	raw := rpc("SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"capability":"fs.writeText","arguments":{"path":"a2a.txt","text":"hello"}}}]}}`).Result
	if err := json.Unmarshal(raw, &sent); err != nil || sent.Task.Status.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Fatalf(`%s %v; want no error, sent.Task.Status.State = "TASK_STATE_AUTH_REQUIRED"`, raw, err)
	}
	about, _ := sent.Task.Status.Message.Parts[1]["data"].(map[string]any)
	approval, _ := about["approval"].(string)
	n.kill()

	n = serve(t, home)
	if again := n.request(t, "GET", "/.well-known/jwks.json", "", "").body; again != card {
		t.Errorf("another key signs the cards: %s, %s; want again = %v", card, again, card)
	}
	get := func() (got task) {
		t.Helper()
		if err := json.Unmarshal(rpc("GetTask", `{"id":"`+sent.Task.ID+`"}`).Result, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := get(); got.Status.State != "TASK_STATE_AUTH_REQUIRED" {
		t.Errorf(`%+v; want got.Status.State = "TASK_STATE_AUTH_REQUIRED"`, got)
	}
	if err := n.admin.Do(t.Context(), http.MethodPost, "/api/v1/confirmations/"+approval, map[string]string{"decision": "once"},
		nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the write was carried out", func() bool { return get().Status.State == "TASK_STATE_COMPLETED" })
	if a := n.request(t, "GET", "/api/v1/tasks", token, ""); a.status != http.StatusOK || !strings.Contains(a.body, sent.Task.ID) {
		t.Errorf("%d %s; want a.status = http.StatusOK, a.body with %v", a.status, a.body, sent.Task.ID)
	}
	n.terminate(t)
}

// TestAnAgentSaysYesForItself: a permit that asks on channel client is asked for over
// A2A, and the agent's own answer decides, once.
func TestAnAgentSaysYesForItself(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "policy"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, "policy", "all.cedar"),
		[]byte(`@id("ask") @consent("client") permit (principal, action, resource);`), 0o600); err != nil {
		t.Fatal(err)
	}
	n := serve(t, home)
	send := func(token, message string) (task struct {
		ID     string
		Status struct{ State string }
	},
	) {
		t.Helper()
		a := n.request(t, "POST", "/a2a", token, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER",`+message+`}}}`, func(r *http.Request) { r.Header.Set("A2A-Version", "1.0") })
		var out struct {
			Result struct{ Task json.RawMessage }
			Error  struct{ Message string }
		}
		if err := json.Unmarshal([]byte(a.body), &out); err != nil {
			t.Fatalf("answer = %s, want JSON: %v", a.body, err)
		}
		if task.Status.State = out.Error.Message; out.Result.Task != nil {
			if err := json.Unmarshal(out.Result.Task, &task); err != nil {
				t.Fatal(err)
			}
		}
		return task
	}
	agent, admin := n.token(t, "agent"), n.token(t, "admin")
	write := func(name string) string {
		return `"parts":[{"data":{"capability":"fs.writeText","arguments":{"path":"` + name + `","text":"hello"}}}]`
	}
	for answer, want := range map[string]string{
		`{"decision":"once"}`: "TASK_STATE_COMPLETED", `{"action":"decline"}`: "TASK_STATE_REJECTED",
		`{"decision":"deny"}`: "TASK_STATE_REJECTED",
	} {
		asked := send(agent, write("x.txt"))
		if asked.Status.State != "TASK_STATE_INPUT_REQUIRED" {
			t.Fatalf(`%+v; want asked.Status.State = "TASK_STATE_INPUT_REQUIRED"`, asked)
		}
		if other := send(admin, `"taskId":"`+asked.ID+`","parts":[{"data":`+answer+`}]`); !strings.Contains(other.Status.State, "no task") {
			t.Errorf(`somebody else answered: %+v; want other.Status.State with "no task"`, other)
		}
		end := send(agent, `"taskId":"`+asked.ID+`","parts":[{"data":`+answer+`}]`)
		if end.Status.State != want {
			t.Errorf("%s: %+v; want end.Status.State = %v", answer, end, want)
		}
		_, err := os.Stat(filepath.Join(home, "files", "x.txt"))
		if wrote := err == nil; wrote != (want == "TASK_STATE_COMPLETED") {
			t.Errorf(`%s: written: %v; want wrote = (want == "TASK_STATE_COMPLETED")`, answer, wrote)
		}
		_ = os.Remove(filepath.Join(home, "files", "x.txt"))
	}
	n.verify(t)
}
