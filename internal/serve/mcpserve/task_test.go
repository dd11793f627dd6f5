package mcpserve

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/policy"
)

const takesTasks = `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// taskOf is a task as a client sees it.
type taskOf struct {
	Result struct {
		ResultType, TaskID, Status, StatusMessage, RequestState string
		TTLMs, PollIntervalMs                                   int64
		Result                                                  json.RawMessage
		Error                                                   json.RawMessage
		InputRequests                                           map[string]json.RawMessage
	}
}

func readTask(t testing.TB, r reply) taskOf {
	t.Helper()
	var task taskOf
	if err := json.Unmarshal([]byte(r.body), &task); err != nil {
		t.Fatalf("%v in %d %s", err, r.status, r.body)
	}
	return task
}

func (st *stack) task(token, method, id, rest string) reply {
	st.t.Helper()
	return st.asModern(token, method, id, `"taskId":"`+id+`",`+rest, takesTasks)
}

// until asks for a task until it has the status.
func (st *stack) until(id, status string) taskOf {
	st.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; {
		task := readTask(st.t, st.task(st.agent, "tasks/get", id, ""))
		if task.Result.Status == status {
			return task
		}
		if time.Now().After(end) {
			st.t.Fatalf("%+v is not %s; want not time.Now().After(end)", task, status)
		}
	}
}

func TestACallThatTakesItsTimeBecomesATask(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{taskAfter: 10 * time.Millisecond})
	call := func(able string) reply {
		return st.asModern(st.agent, "tools/call", "slow", `"name":"slow",`, able)
	}
	task := readTask(t, call(takesTasks))
	id := task.Result.TaskID
	if task.Result.ResultType != "task" || task.Result.Status != "working" || task.Result.TTLMs < 1000 || id == "" {
		t.Fatalf(`%+v; want task.Result.ResultType = "task", task.Result.Status = "working", task.Result.TTLMs at least 1000, `+
			`id other than ""`, task)
	}
	receive(t, st.fake.started)
	for name, r := range map[string]reply{
		"somebody else": st.task(st.agent2, "tasks/get", id, ""), "cancelled by somebody else": st.task(st.agent2, "tasks/cancel", id, ""),
		"answered by somebody else": st.task(st.agent2, "tasks/update", id, `"inputResponses":{"q1":{}},`),
	} {
		nobody := st.task(st.agent2, "tasks/get", "tsk_0", "")
		if !strings.Contains(r.body, "-32602") || strings.ReplaceAll(r.body, id, "tsk_0") != nobody.body {
			t.Errorf("%s: %s\nnobody's: %s\nwant r.body with \"-32602\", strings.ReplaceAll(r.body, id, \"tsk_0\") = %v",
				name, r.body, nobody.body, nobody.body)
		}
	}
	if r := st.asModern(st.agent, "tasks/get", id, `"taskId":"`+id+`",`, `{}`); r.status != 400 || !strings.Contains(r.body, "-32021") {
		t.Errorf(`without the extension: %d %s; want r.status = 400, r.body with "-32021"`, r.status, r.body)
	}
	close(st.fake.release)
	done := st.until(id, "completed")
	wants(t, string(done.Result.Result), `"structuredContent":{"done":true}`)
	if r := st.task(st.agent, "tasks/cancel", id, ""); !strings.Contains(r.body, `"resultType":"complete"`) {
		t.Errorf(`cancelled too late: %s; want r.body with "\"resultType\":\"complete\""`, r.body)
	}
}

func TestATaskIsCancelledAndAClientThatLeavesCancelsNone(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{taskAfter: time.Millisecond})
	task := readTask(t, st.asModern(st.agent, "tools/call", "slow", `"name":"slow",`, takesTasks))
	receive(t, st.fake.started) // its request is answered and gone, and it goes on
	if got := readTask(t, st.task(st.agent, "tasks/get", task.Result.TaskID, "")); got.Result.Status != "working" {
		t.Errorf(`%+v; want got.Result.Status = "working"`, got)
	}
	st.task(st.agent, "tasks/cancel", task.Result.TaskID, "")
	if err := receive(t, st.fake.ended); err == nil {
		t.Error("the call goes on; want an error")
	}
	st.until(task.Result.TaskID, "cancelled")
}

func TestAMissingApprovalOfAnOperatorIsWaitedForByATask(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{taskAfter: time.Minute})
	task := readTask(t, st.asModern(st.agent, "tools/call", "write", `"name":"write",`, takesTasks))
	if task.Result.ResultType != "task" || task.Result.Status != "working" {
		t.Fatalf(`%+v; want task.Result.ResultType = "task", task.Result.Status = "working"`, task)
	}
	waiting := st.until(task.Result.TaskID, "working")
	wants(t, waiting.Result.StatusMessage, "needs an operator's approval")
	list, err := st.policy.Approvals(context.Background(), policy.ApprovalPending, "", 10)
	ok(t, err)
	_, _, err = st.policy.Decide(context.Background(), st.admin, list[0].ID, policy.DecideOnce)
	ok(t, err)
	st.until(task.Result.TaskID, "completed")
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.inputs) != 1 {
		t.Errorf("carried out %d times; want len(u.inputs) = 1", len(u.inputs))
	}
}

func TestQuestionsOfATask(t *testing.T) {
	st, u := newUpstreamStack(t, stackOptions{taskAfter: time.Nanosecond})
	able := `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	r := st.asModern(st.agent, "tools/call", "askslow", `"name":"askslow",`, able)
	task := readTask(t, r)
	if task.Result.ResultType != "task" {
		t.Fatalf(`r.body = %v, want task.Result.ResultType == "task"`, r.body)
	}
	close(u.ready)
	asked := st.until(task.Result.TaskID, "input_required")
	if len(asked.Result.InputRequests) != 1 || asked.Result.RequestState != "" {
		t.Fatalf(`%+v; want len(asked.Result.InputRequests) = 1, asked.Result.RequestState = ""`, asked)
	}
	for key := range asked.Result.InputRequests {
		st.task(st.agent, "tasks/update", task.Result.TaskID, `"inputResponses":{"odd":{},"`+key+
			`":{"action":"accept","content":{"n":9007199254740993}}},`)
	}
	wants(t, string(st.until(task.Result.TaskID, "completed").Result.Result), `"n":9007199254740993`)
}
