package a2aserve

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/protocol/a2awire"
)

func TestAMessageBecomesACall(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	echo := st.skill(st.one, "echo")
	got := st.send(st.one, call(echo, `{"n":9007199254740993,"x":1.10,"s":"\ud800"}`)+`,"metadata":{"big":9007199254740993}`, "")
	if got.Status.State != a2awire.StateCompleted || len(got.Artifacts) != 1 ||
		string(got.Artifacts[0].Parts[0].Data) != `{"n":9007199254740993,"x":1.10,"s":"\ud800"}` {
		t.Errorf("%+v; want got.Status.State = a2awire.StateCompleted, len(got.Artifacts) = 1, "+
			`string(got.Artifacts[0].Parts[0].Data) = "{\"n\":9007199254740993,\"x\":1.10,\"s\":\"\\ud800\"}"`, got)
	}
	if len(got.History) != 1 || !strings.Contains(string(got.History[0].Metadata), "9007199254740993") || got.ContextID == "" ||
		len(got.ID) != 36 {
		t.Errorf(`%+v; want len(got.History) = 1, string(got.History[0].Metadata) with "9007199254740993", got.ContextID other `+
			`than "", len(got.ID) = 36`, got)
	}
	// By metadata, with the arguments as the data part; and by action.
	for _, message := range []string{
		`"parts":[{"data":{"a":1}}],"metadata":{"skill":"` + echo + `"}`,
		call(echo, `{"a":1}`) + `,"contextId":"my-context"`,
	} {
		got := st.send(st.one, message, "")
		if got.Status.State != a2awire.StateCompleted || string(got.Artifacts[0].Parts[0].Data) != `{"a":1}` {
			t.Errorf(`%s: %+v; want got.Status.State = a2awire.StateCompleted, string(got.Artifacts[0].Parts[0].Data) = "{\"a\":1}"`,
				message, got)
		}
	}
	for name, want := range map[string]a2awire.State{
		st.skill(st.one, "fails"): a2awire.StateFailed, "no_such_thing": a2awire.StateRejected,
		"hidden": a2awire.StateRejected,
	} {
		if got := st.send(st.one, call(name, `{}`), ""); got.Status.State != want || got.Status.Message == nil {
			t.Errorf("%s: %+v; want got.Status.State = %v, got.Status.Message not nil", name, got, want)
		}
	}
	if got := st.send(st.one, call(echo, `{}`), `,"configuration":{"historyLength":0}`); len(got.History) != 0 {
		t.Errorf("%+v; want len(got.History) = 0", got)
	}
}

func TestATextOnlyMessageIsAskedWhatItMeans(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	asked := st.send(st.one, `"parts":[{"text":"/do something"}]`, "")
	if asked.Status.State != a2awire.StateInputRequired || !strings.Contains(*asked.Status.Message.Parts[0].Text, "capability") {
		t.Fatalf(`%+v; want asked.Status.State = a2awire.StateInputRequired, *asked.Status.Message.Parts[0].Text with "capability"`,
			asked)
	}
	again := st.send(st.one, `"parts":[{"text":"well"}],"taskId":"`+asked.ID+`"`, "")
	if again.Status.State != a2awire.StateInputRequired || again.ID != asked.ID || len(again.History) < 3 {
		t.Errorf("%+v; want again.Status.State = a2awire.StateInputRequired, again.ID = %v, len(again.History) at least 3",
			again, asked.ID)
	}
	got := st.send(st.one, call(st.skill(st.one, "echo"), `{"a":1}`)+`,"taskId":"`+asked.ID+`","contextId":"`+asked.ContextID+`"`, "")
	if got.Status.State != a2awire.StateCompleted || got.ID != asked.ID || len(got.History) != 5 {
		t.Errorf("%+v; want got.Status.State = a2awire.StateCompleted, got.ID = %v, len(got.History) = 5", got, asked.ID)
	}
}

func TestAQuestionIsAnsweredByTheNextMessage(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	for parts, want := range map[string]string{
		`{"text":"blue"}`:                             `{"action":"accept","content":{"colour":"blue"}}`,
		`{"data":{"colour":"red"}}`:                   `{"action":"accept","content":{"colour":"red"}}`,
		`{"data":{"action":"cancel"}}`:                `{"action":"cancel"}`,
		`{"data":{"response":{"action":"decline"}}}`:  `{"action":"decline"}`,
		`{"text":"decline"}`:                          `{"action":"decline"}`,
		`{"data":{"action":"accept","request":"q1"}}`: `{"action":"accept","request":"q1"}`,
	} {
		asked := st.send(st.one, call(st.skill(st.one, "asks"), `{}`), "")
		if asked.Status.State != a2awire.StateInputRequired || *asked.Status.Message.Parts[0].Text != "which colour?" {
			t.Fatalf(`%+v; want asked.Status.State = a2awire.StateInputRequired, *asked.Status.Message.Parts[0].Text = "which colour?"`,
				asked)
		}
		got := st.send(st.one, `"parts":[`+parts+`],"taskId":"`+asked.ID+`"`, "")
		if got.Status.State != a2awire.StateCompleted || string(got.Artifacts[0].Parts[0].Data) != want {
			t.Errorf("%s: %+v; want got.Status.State = a2awire.StateCompleted, string(got.Artifacts[0].Parts[0].Data) = %v",
				parts, got, want)
		}
	}
}

func TestApprovalsOfAnOperator(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	waits := st.send(st.one, call(st.skill(st.one, "writes"), `{"a":1}`), "")
	if waits.Status.State != a2awire.StateAuthRequired {
		t.Fatalf("%+v; want waits.Status.State = a2awire.StateAuthRequired", waits)
	}
	// Nothing that the caller says gives it.
	if got := st.send(st.one, `"parts":[{"text":"yes"}],"taskId":"`+waits.ID+`"`, ""); got.Status.State != a2awire.StateAuthRequired {
		t.Errorf("%+v; want got.Status.State = a2awire.StateAuthRequired", got)
	}
	list, err := st.policy.Approvals(t.Context(), policy.ApprovalPending, "", 10)
	ok(t, err)
	if len(list) != 1 {
		t.Fatalf("list = %v, want len(list) == 1", list)
	}
	var states []string
	st.stream(st.one, "/a2a", "1.0", `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"`+waits.ID+`"}}`,
		func(data string) bool {
			if states = append(states, data); len(states) == 1 { // a task that has ended has no stream
				_, _, err := st.policy.Decide(t.Context(), st.admin, list[0].ID, policy.DecideOnce)
				ok(t, err)
			}
			return true
		})
	if last := states[len(states)-1]; !strings.Contains(last, "TASK_STATE_COMPLETED") {
		t.Errorf(`states = %v, want strings.Contains(last, "TASK_STATE_COMPLETED")`, states)
	}
}

func TestTheVersionIsTheHeadersAlone(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	v1 := `{"message":{"messageId":"m","role":"ROLE_USER",` + call("x", "{}") + `}}`
	v03 := `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`
	for _, tt := range []struct {
		version, method, params string
		code                    int
	}{
		{"1.0", "SendMessage", v1, 0},
		{"", "message/send", v03, 0},
		{"0.3", "message/send", v03, 0},
		{"0.3", "SendMessage", v1, -32601},
		{"", "SendMessage", v1, -32601},
		{"1.0", "message/send", v03, -32601},
		{"9.9", "SendMessage", v1, -32009},
		{"1.0.1", "SendMessage", v1, -32009},
		{"0.2", "message/send", v03, -32009},
	} {
		a := st.rpc(st.one, tt.version, tt.method, tt.params)
		code := 0
		if a.Error != nil {
			code = a.Error.Code
			if len(a.Error.Data) != 1 || a.Error.Data[0]["@type"] != "type.googleapis.com/google.rpc.ErrorInfo" ||
				a.Error.Data[0]["domain"] != "a2a-protocol.org" || a.Error.Data[0]["reason"] == "" {
				t.Errorf(`%+v; want len(a.Error.Data) = 1, a.Error.Data[0]["@type"] = `+
					`"type.googleapis.com/google.rpc.ErrorInfo", a.Error.Data[0]["domain"] = "a2a-protocol.org", `+
					`a.Error.Data[0]["reason"] other than ""`, a.Error)
			}
		}
		if code != tt.code {
			t.Errorf("%s %s: %d, want %d", tt.version, tt.method, code, tt.code)
		}
	}
	if code, _, body := st.do("POST", "/a2a?A2A-Version=1.0", st.one, `{"jsonrpc":"2.0","id":1,"method":"ListTasks"}`); code != 200 ||
		!strings.Contains(body, `"nextPageToken":""`) {
		t.Errorf("ListTasks = %d %s, want 200 with an empty nextPageToken", code, body)
	}
	for version, want := range map[string]int{"": 200, "1.0": 200, "0.3": 400, "2.0": 400} {
		if code, _, body := st.do("GET", "/a2a/tasks", st.one, "", "A2A-Version", version); code != want || want == 400 &&
			!strings.Contains(body, "VERSION_NOT_SUPPORTED") {
			t.Errorf(`version = %v, st.do(...) = %v, body = %v, want code == want && !(want == 400 && !strings.Contains(body, "VERSION_NOT_SUPPORTED"))`, version, code, body)
		}
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	done := st.send(st.one, call(st.skill(st.one, "echo"), `{}`), "")
	message := func(s string) string { return `{"message":{"messageId":"m","role":"ROLE_USER",` + s + `}}` }
	for _, tt := range []struct {
		method, params string
		code           int
	}{
		{"SendMessage", `{}`, -32602},
		{"SendMessage", `[]`, -32602},
		{"SendMessage", `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`, -32602},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, -32602},
		{"SendMessage", message(`"parts":[]`), -32602},
		{"SendMessage", message(`"parts":[{}]`), -32602},
		{"SendMessage", message(`"parts":[{"text":"x","data":{}}]`), -32602},
		{"SendMessage", message(`"parts":[{"raw":"AA=="}]`), -32005},
		{"SendMessage", message(`"parts":[{"text":"x"}],"contextId":"a b"`), -32602},
		{"SendMessage", message(call("a", "[]")), -32602},
		{"SendMessage", message(`"parts":[{"text":"x"}],"taskId":"tsk_0"`), -32001},
		{"SendMessage", message(`"parts":[{"text":"x"}],"taskId":"` + done.ID + `"`), -32004},
		{"SendMessage", message(`"parts":[{"text":"x"}],"contextId":"other","taskId":"` + done.ID + `"`), -32602},
		{
			"SendMessage", strings.TrimSuffix(message(`"parts":[{"text":"x"}]`), "}") + `,"configuration":{"acceptedOutputModes":["image/png"]}}`,
			-32005,
		},
		{"SendMessage", strings.TrimSuffix(message(`"parts":[{"text":"x"}]`), "}") + `,"configuration":{"historyLength":-1}}`, -32602},
		{"SendStreamingMessage", message(`"parts":[{"text":"x"}],"taskId":"tsk_0"`), -32001},
		{"GetTask", `{}`, -32602},
		{"GetTask", `{"id":"tsk_0"}`, -32001},
		{"GetTask", `{"id":7}`, -32602},
		{"GetTask", `{"id":"` + done.ID + `","historyLength":-1}`, -32602},
		{"GetTask", `{"id":"` + done.ID + `","tenant":"other"}`, -32602},
		{"CancelTask", `{"id":"` + done.ID + `"}`, -32002},
		{"CancelTask", `{"id":"tsk_0"}`, -32001},
		{"SubscribeToTask", `{"id":"` + done.ID + `"}`, -32004},
		{"SubscribeToTask", `{"id":"tsk_0"}`, -32001},
		{"ListTasks", `{"pageSize":0}`, -32602},
		{"ListTasks", `{"pageSize":101}`, -32602},
		{"ListTasks", `{"pageToken":"x"}`, -32602},
		{"ListTasks", `{"status":"DONE"}`, -32602},
		{"ListTasks", `{"statusTimestampAfter":"yesterday"}`, -32602},
		{"Nothing", `{}`, -32601},
		{"CreateTaskPushNotificationConfig", `{"taskId":"tsk_0","url":"https://example.com/"}`, -32001},
		{"CreateTaskPushNotificationConfig", `{"taskId":"` + done.ID + `","url":"https://10.0.0.1/"}`, -32602},
		{"CreateTaskPushNotificationConfig", `{"taskId":"` + done.ID + `","url":"http://example.com/"}`, -32602},
		{"CreateTaskPushNotificationConfig", `{"taskId":"` + done.ID + `","url":"file:///etc/passwd"}`, -32602},
		{"CreateTaskPushNotificationConfig", `{"taskId":"` + done.ID + `","url":"https://169.254.169.254/"}`, -32602},
		{"GetTaskPushNotificationConfig", `{"taskId":"` + done.ID + `","id":"x"}`, -32001},
	} {
		if a := st.rpc(st.one, "1.0", tt.method, tt.params); a.Error == nil || a.Error.Code != tt.code || a.Result != nil {
			t.Errorf("%s %s: %+v %s, want %d", tt.method, tt.params, a.Error, a.Result, tt.code)
		}
	}
	for body, want := range map[string]string{
		`{`:        `"code":-32700`,
		`[]`:       `"code":-32600`,
		`{"id":1}`: `"code":-32600`,
		`{"jsonrpc":"2.0","id":{},"method":"GetTask"}`: `"code":-32600`,
		`{"jsonrpc":"2.0","id":1,"method":7}`:          `"id":1`,
	} {
		if code, _, got := st.do("POST", "/a2a", st.one, body, "A2A-Version", "1.0"); code != 200 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s; want code = 200, got with %v", body, code, got, want)
		}
	}
	if code, _, _ := st.do("POST", "/a2a", st.one, `"`+strings.Repeat("x", 5<<20)+`"`); code != 413 {
		t.Errorf("st.do(...) = %v, want %v", code, 413)
	}
	if code, h, _ := st.do("GET", "/a2a", st.one, ""); code != 405 || h.Get("Allow") != "POST" {
		t.Errorf(`st.do(...) = %v, want code == 405 && h.Get("Allow") == "POST"`, code)
	}
	for _, path := range []string{"/a2a", "/a2a/message:send", "/a2a/tasks/x:cancel"} {
		if code, h, _ := st.do("POST", path, "", `{}`); code != 401 || h.Get("WWW-Authenticate") == "" {
			t.Errorf(`path = %v, st.do(...) = %v, want code == 401 && h.Get("WWW-Authenticate") != ""`, path, code)
		}
	}
}

func TestNobodySeesTheTasksOfOthers(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	mine := st.send(st.one, call(st.skill(st.one, "slow"), `{}`), `,"configuration":{"returnImmediately":true}`)
	absent := "tsk_" + strings.Repeat("0", 32)
	for _, tt := range []struct{ method, params string }{
		{"GetTask", `{"id":"ID"}`},
		{"CancelTask", `{"id":"ID"}`},
		{"SubscribeToTask", `{"id":"ID"}`},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"ID"}}`},
		{"CreateTaskPushNotificationConfig", `{"taskId":"ID","url":"https://example.com/"}`},
		{"ListTaskPushNotificationConfigs", `{"taskId":"ID"}`},
		{"DeleteTaskPushNotificationConfig", `{"taskId":"ID","id":"x"}`},
	} {
		foreign := st.rpc(st.two, "1.0", tt.method, strings.ReplaceAll(tt.params, "ID", mine.ID))
		unknown := st.rpc(st.two, "1.0", tt.method, strings.ReplaceAll(tt.params, "ID", absent))
		if foreign.Error == nil || foreign.Error.Code != -32001 || foreign.Error.Code != unknown.Error.Code ||
			strings.ReplaceAll(foreign.Error.Message, mine.ID, absent) != unknown.Error.Message {
			t.Errorf("%s: %+v %+v; want foreign.Error not nil, foreign.Error.Code = -32001, foreign.Error.Code = %v, "+
				"strings.ReplaceAll(foreign.Error.Message, mine.ID, absent) = %v", tt.method, foreign.Error, unknown.Error,
				unknown.Error.Code, unknown.Error.Message)
		}
	}
	if a := st.rpc(st.two, "1.0", "ListTasks", `{}`); !strings.Contains(string(a.Result), `"totalSize":0`) {
		t.Errorf("ListTasks = %s, want totalSize 0", a.Result)
	}
	if a := st.rpc(st.one, "1.0", "ListTasks", `{}`); !strings.Contains(string(a.Result), mine.ID) {
		t.Errorf("string(a.Result) = %v, want strings.Contains(string(a.Result), mine.ID)", string(a.Result))
	}
}

func TestStreamsTellTheSameInOrder(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	begun := st.send(st.one, call(st.skill(st.one, "slow"), `{}`), `,"configuration":{"returnImmediately":true}`)
	if begun.Status.State.Terminal() {
		t.Fatalf("%+v; want not begun.Status.State.Terminal()", begun)
	}
	var all sync.WaitGroup
	seen, beats := make([][]string, 3), make([]int, 3)
	first := make(chan struct{}, len(seen))
	for i := range seen {
		all.Go(func() {
			body, path := `{"jsonrpc":"2.0","id":1,"method":"SubscribeToTask","params":{"id":"`+begun.ID+`"}}`, "/a2a"
			if i == 1 {
				body, path = "", "/a2a/tasks/"+begun.ID+":subscribe"
			}
			beats[i] = st.stream(st.one, path, "1.0", body, func(data string) bool {
				if i != 1 {
					var a answer
					_ = json.Unmarshal([]byte(data), &a)
					data = string(a.Result)
				}
				if seen[i] = append(seen[i], data); len(seen[i]) == 1 {
					first <- struct{}{}
				}
				return true
			})
		})
	}
	for range seen {
		<-first
	}
	time.Sleep(3 * st.surface.cfg.Beat) // a quiet stream is kept open
	// One that goes away ends nothing.
	st.stream(st.one, "/a2a/tasks/"+begun.ID+":subscribe", "1.0", "", func(string) bool { return false })
	close(st.fake.release)
	all.Wait()
	for i, one := range seen {
		// That may have been told before the stream was there.
		one = slices.DeleteFunc(one, func(e string) bool {
			return strings.Contains(e, "TASK_STATE_WORKING") && !strings.Contains(e, `"task":`)
		})
		seen[i] = one
		if !strings.Contains(one[0], `"task":`) || fmt.Sprint(one[1:]) != fmt.Sprint(seen[0][1:]) || beats[i] == 0 {
			t.Errorf(`%d: %v %d; want one[0] with "\"task\":", fmt.Sprint(one[1:]) = fmt.Sprint(seen[0][1:]), beats[i] other than 0`,
				i, one, beats[i])
		}
	}
	last := seen[0][len(seen[0])-2:]
	if !strings.Contains(last[0], `"artifactUpdate"`) || !strings.Contains(last[1], `"TASK_STATE_COMPLETED"`) {
		t.Errorf("last events = %q, want an artifactUpdate, then TASK_STATE_COMPLETED", last)
	}
}

func TestADrainLetsStreamsAndWaitsGo(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	begun := st.send(st.one, call(st.skill(st.one, "slow"), `{}`), `,"configuration":{"returnImmediately":true}`)
	over := make(chan struct{})
	started := make(chan struct{}, 1)
	go func() {
		defer close(over)
		st.stream(st.one, "/a2a/tasks/"+begun.ID+":subscribe", "1.0", "", func(string) bool { started <- struct{}{}; return true })
	}()
	<-started
	st.surface.Drain()
	<-over
	if got := st.send(st.one, call(st.skill(st.one, "slow"), `{}`), ""); got.Status.State.Terminal() {
		t.Errorf("%+v; want not got.Status.State.Terminal()", got)
	}
	if got := st.rpc(st.one, "1.0", "CancelTask", `{"id":"`+begun.ID+`"}`); !strings.Contains(string(got.Result), "TASK_STATE_CANCELED") {
		t.Errorf(`%s %+v; want string(got.Result) with "TASK_STATE_CANCELED"`, got.Result, got.Error)
	}
}

func TestVersion03(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	echo := st.skill(st.one, "echo")
	message := `"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"capability":"` + echo +
		`","arguments":{"n":9007199254740993}}}]}`
	a := st.rpc(st.one, "0.3", "message/send", `{`+message+`}`)
	for _, want := range []string{`"kind":"task"`, `"state":"completed"`, `"data":{"n":9007199254740993}`, `"role":"user"`} {
		if !strings.Contains(string(a.Result), want) {
			t.Errorf("no %s in %s; want string(a.Result) with %v", want, a.Result, want)
		}
	}
	var got struct{ ID string }
	ok(t, json.Unmarshal(a.Result, &got))
	if a := st.rpc(st.one, "", "tasks/get", `{"id":"`+got.ID+`","historyLength":0}`); !strings.Contains(string(a.Result), got.ID) ||
		strings.Contains(string(a.Result), "history") {
		t.Errorf(`%s %+v; want string(a.Result) with %v, string(a.Result) without "history"`, a.Result, a.Error, got.ID)
	}
	var events []string
	st.stream(st.one, "/a2a", "0.3", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{`+message+`}}`,
		func(data string) bool { events = append(events, data); return true })
	if last := events[len(events)-1]; len(events) > 1 && (!strings.Contains(last, `"final":true`) ||
		!strings.Contains(last, `"kind":"status-update"`)) || !strings.Contains(events[0], `"kind":"task"`) {
		t.Errorf("events = %v, want a task first and a final status-update last", events)
	}
	slow := st.rpc(st.one, "0.3", "message/send", `{"message":{"messageId":"m","role":"user","parts":[{"kind":"data","data":{"capability":"`+
		st.skill(st.one, "slow")+`"}}]},"configuration":{"blocking":false}}`)
	ok(t, json.Unmarshal(slow.Result, &got))
	set := st.rpc(st.one, "0.3", "tasks/pushNotificationConfig/set",
		`{"taskId":"`+got.ID+`","pushNotificationConfig":{"id":"p","url":"https://example.com/x","token":"t","authentication":{"schemes":["Bearer"],"credentials":"secret"}}}`)
	if !strings.Contains(string(set.Result), `"pushNotificationConfig":{`) || strings.Contains(string(set.Result), "secret") {
		t.Errorf(`%s %+v; want string(set.Result) with "\"pushNotificationConfig\":{", string(set.Result) without "secret"`,
			set.Result, set.Error)
	}
	for _, tt := range []struct{ method, want string }{{"get", `{"taskId":"tsk_`}, {"list", `[{"taskId":"tsk_`}, {"delete", `null`}} {
		a := st.rpc(st.one, "0.3", "tasks/pushNotificationConfig/"+tt.method, `{"id":"`+got.ID+`","pushNotificationConfigId":"p"}`)
		if a.Error != nil || !strings.HasPrefix(string(a.Result), tt.want) {
			t.Errorf("%s: %s %+v; want a.Error = nil, string(a.Result) beginning with %v", tt.method, a.Result, a.Error, tt.want)
		}
	}
	if a := st.rpc(st.one, "0.3", "tasks/cancel", `{"id":"`+got.ID+`"}`); !strings.Contains(string(a.Result), `"state":"canceled"`) {
		t.Errorf(`%s %+v; want string(a.Result) with "\"state\":\"canceled\""`, a.Result, a.Error)
	}
}
