package a2aserve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// TestTheOfficialClient calls each operation once, over both bindings of A2A v1.0.
func TestTheOfficialClient(t *testing.T) {
	t.Parallel()
	for _, binding := range []a2a.TransportProtocol{a2a.TransportProtocolJSONRPC, a2a.TransportProtocolHTTPJSON} {
		t.Run(string(binding), func(t *testing.T) {
			t.Parallel()
			st := newStack(t)
			c := st.client(st.one, binding)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			call := func(tool string) *a2a.Message {
				return a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(map[string]any{
					"capability": st.skill(st.one, tool),
					"arguments":  map[string]any{"a": 1},
				}))
			}
			sent, err := c.SendMessage(ctx, &a2a.SendMessageRequest{Message: call("echo")})
			ok(t, err)
			done, isTask := sent.(*a2a.Task)
			if !isTask || done.Status.State != a2a.TaskStateCompleted || len(done.Artifacts) != 1 || done.Artifacts[0].Parts[1].Text() != `{"a":1}` {
				t.Fatalf("%+v; want isTask = true, done.Status.State = a2a.TaskStateCompleted, len(done.Artifacts) = 1, "+
					`done.Artifacts[0].Parts[1].Text() = "{\"a\":1}"`, sent)
			}
			got, err := c.GetTask(ctx, &a2a.GetTaskRequest{ID: done.ID, HistoryLength: new(int)})
			ok(t, err)
			if got.ID != done.ID || len(got.History) != 0 {
				t.Errorf("%+v; want got.ID = %v, len(got.History) = 0", got, done.ID)
			}
			var kinds []string
			var id a2a.TaskID
			half := func(m *a2a.Message) { // on whichever event it comes
				if m != nil && m.Parts[0].Text() == "half way" {
					close(st.fake.release)
				}
			}
			for e, err := range c.SendStreamingMessage(ctx, &a2a.SendMessageRequest{Message: call("slow")}) {
				ok(t, err)
				switch e := e.(type) {
				case *a2a.Task:
					kinds, id = append(kinds, "task"), e.ID
					half(e.Status.Message)
				case *a2a.TaskStatusUpdateEvent:
					half(e.Status.Message)
					if e.Status.State.Terminal() {
						kinds = append(kinds, "end")
					}
				case *a2a.TaskArtifactUpdateEvent:
					kinds = append(kinds, "artifact")
				}
			}
			if strings.Join(kinds, " ") != "task artifact end" {
				t.Errorf(`kinds = %v, want strings.Join(kinds, " ") == "task artifact end"`, kinds)
			}
			list, err := c.ListTasks(ctx, &a2a.ListTasksRequest{PageSize: 1})
			ok(t, err)
			if list.TotalSize != 2 || len(list.Tasks) != 1 || list.Tasks[0].ID != id || list.NextPageToken == "" ||
				len(list.Tasks[0].Artifacts) != 0 {
				t.Errorf("%+v; want list.TotalSize = 2, len(list.Tasks) = 1, list.Tasks[0].ID = %v, list.NextPageToken other "+
					`than "", len(list.Tasks[0].Artifacts) = 0`, list, id)
			}
			list, err = c.ListTasks(ctx, &a2a.ListTasksRequest{
				PageSize: 1, PageToken: list.NextPageToken, IncludeArtifacts: true,
				Status: a2a.TaskStateCompleted,
			})
			ok(t, err)
			if len(list.Tasks) != 1 || list.Tasks[0].ID != done.ID || list.NextPageToken != "" || len(list.Tasks[0].Artifacts) != 1 {
				t.Errorf(`%+v; want len(list.Tasks) = 1, list.Tasks[0].ID = %v, list.NextPageToken = "", len(list.Tasks[0].Artifacts) = 1`,
					list, done.ID)
			}
			asked, err := c.SendMessage(ctx, &a2a.SendMessageRequest{Message: call("asks")})
			ok(t, err)
			waits := asked.(*a2a.Task)
			if waits.Status.State != a2a.TaskStateInputRequired {
				t.Fatalf("%+v; want waits.Status.State = a2a.TaskStateInputRequired", waits)
			}
			for e, err := range c.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: waits.ID}) {
				ok(t, err)
				if _, first := e.(*a2a.Task); first {
					cancelled, err := c.CancelTask(ctx, &a2a.CancelTaskRequest{ID: waits.ID})
					ok(t, err)
					if cancelled.Status.State != a2a.TaskStateCanceled {
						t.Errorf("%+v; want cancelled.Status.State = a2a.TaskStateCanceled", cancelled)
					}
				}
			}
			if _, err := c.GetTask(ctx, &a2a.GetTaskRequest{ID: "tsk_0"}); a2a.ErrorReason(err) != "TASK_NOT_FOUND" {
				t.Errorf(`%v; want a2a.ErrorReason(err) = "TASK_NOT_FOUND"`, err)
			}
			if _, err := c.CancelTask(ctx, &a2a.CancelTaskRequest{ID: done.ID}); a2a.ErrorReason(err) != "TASK_NOT_CANCELABLE" {
				t.Errorf(`%v; want a2a.ErrorReason(err) = "TASK_NOT_CANCELABLE"`, err)
			}
			set, err := c.CreateTaskPushConfig(ctx, &a2a.PushConfig{TaskID: done.ID, URL: "https://example.com/x", Token: "t"})
			ok(t, err)
			one, err := c.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: done.ID, ID: set.ID})
			ok(t, err)
			if one.URL != "https://example.com/x" || one.Token != "t" {
				t.Errorf(`%+v; want one.URL = "https://example.com/x", one.Token = "t"`, one)
			}
			configs, err := c.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: done.ID})
			ok(t, err)
			ok(t, c.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: done.ID, ID: set.ID}))
			if len(configs) != 1 {
				t.Errorf("%+v; want len(configs) = 1", configs)
			}
			card, err := c.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{})
			ok(t, err)
			if len(card.Skills) == 0 || len(card.Signatures) != 1 {
				t.Errorf("%+v; want len(card.Skills) other than 0, len(card.Signatures) = 1", card)
			}
		})
	}
}

func TestTheCard(t *testing.T) {
	t.Parallel()
	st := newStack(t)
	code, h, body := st.do("GET", "/.well-known/agent-card.json", "", "")
	if code != 200 || h.Get("ETag") == "" || h.Get("Cache-Control") == "" || strings.Contains(body, "echo") {
		t.Fatalf(`code = %v, h = %v, body = %v, want code == 200 && h.Get("ETag") != "" && h.Get("Cache-Control") != "" && !strings.Contains(body, "echo")`, code, h, body)
	}
	if code, _, again := st.do("GET", "/.well-known/agent-card.json", "", "", "If-None-Match", h.Get("ETag")); code != 304 || again != "" {
		t.Errorf(`st.do(...) = %v, again = %v, want code == 304 && again == ""`, code, again)
	}
	card, err := agentcard.NewResolver(http.DefaultClient).Resolve(t.Context(), st.url)
	ok(t, err)
	var versions []string
	for _, i := range card.SupportedInterfaces {
		versions = append(versions, string(i.ProtocolBinding)+" "+string(i.ProtocolVersion))
	}
	if strings.Join(versions, ", ") != "JSONRPC 1.0, HTTP+JSON 1.0, JSONRPC 0.3" || len(card.Skills) != 1 ||
		!card.Capabilities.ExtendedAgentCard {
		t.Errorf(`%v %+v; want strings.Join(versions, ", ") = "JSONRPC 1.0, HTTP+JSON 1.0, JSONRPC 0.3", len(card.Skills) = 1, `+
			"card.Capabilities.ExtendedAgentCard = true", versions, card)
	}
	for _, want := range []string{`"url":"` + st.url + `/a2a"`, `"preferredTransport":"JSONRPC"`, `"protocolVersion":"0.3.0"`} {
		if !strings.Contains(body, want) {
			t.Errorf("0.3 finds no %s; want body with %v", want, want)
		}
	}
	_, _, keys := st.do("GET", "/.well-known/jwks.json", "", "")
	verify(t, body, keys)
	verify(t, string(st.rpc(st.one, "1.0", "GetExtendedAgentCard", `{}`).Result), keys)
	if code, _, _ := st.do("GET", "/a2a/extendedAgentCard", "", ""); code != 401 {
		t.Errorf("st.do(...) = %v, want %v", code, 401)
	}
	if mine, boss := st.rpc(st.one, "1.0", "GetExtendedAgentCard", `{}`),
		st.rpc(st.root, "1.0", "GetExtendedAgentCard", `{}`); strings.Contains(string(mine.Result), "hidden") ||
		!strings.Contains(string(boss.Result), "hidden") {
		t.Error("the extended card is not the caller's own")
	}
}

// verify checks the signature from the key set alone, as A2A v1.0 describes.
func verify(t *testing.T, body, keys string) {
	t.Helper()
	var set struct{ Keys []map[string]string }
	ok(t, json.Unmarshal([]byte(keys), &set))
	var card a2a.AgentCard
	ok(t, json.Unmarshal([]byte(body), &card))
	signature := card.Signatures[0]
	card.Signatures = nil
	doc, err := json.Marshal(card)
	ok(t, err)
	var form map[string]any
	ok(t, json.Unmarshal(doc, &form))
	doc, err = json.Marshal(jsonx.Pruned(form))
	ok(t, err)
	payload, err := jsonx.Canonical(doc)
	ok(t, err)
	point := []byte{4}
	for _, name := range []string{"x", "y"} {
		data, err := base64.RawURLEncoding.DecodeString(set.Keys[0][name])
		ok(t, err)
		point = append(point, data...)
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	ok(t, err)
	raw, err := base64.RawURLEncoding.DecodeString(signature.Signature)
	ok(t, err)
	sum := sha256.Sum256([]byte(signature.Protected + "." + base64.RawURLEncoding.EncodeToString(payload)))
	if !ecdsa.Verify(key, sum[:], new(big.Int).SetBytes(raw[:32]), new(big.Int).SetBytes(raw[32:])) {
		t.Error("the signature does not fit")
	}
	header, err := base64.RawURLEncoding.DecodeString(signature.Protected)
	ok(t, err)
	if !strings.Contains(string(header), `"kid":"`+set.Keys[0]["kid"]+`"`) || !strings.Contains(string(header), `"alg":"ES256"`) {
		t.Errorf("%s %s; want string(header) with `\"kid\":\"` + set.Keys[0][\"kid\"] + `\"`, string(header) with "+
			`"\"alg\":\"ES256\""`, header, keys)
	}
}

func TestARestartKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := stackIn(t, dir)
	waits := st.send(st.one, call(st.skill(st.one, "writes"), `{"a":1}`), "")
	done := st.send(st.one, call(st.skill(st.one, "echo"), `{}`), "")
	if a := st.rpc(st.one, "1.0", "CreateTaskPushNotificationConfig", `{"taskId":"`+waits.ID+
		`","id":"p","url":"https://example.com/"}`); a.Error != nil {
		t.Fatalf("a.Error = %v, want %v", a.Error, nil)
	}
	// Another process over the same file, while the first is still there: as after a kill.
	other := stackAgain(t, st, dir)
	for id, want := range map[string]a2a.TaskState{waits.ID: a2a.TaskStateAuthRequired, done.ID: a2a.TaskStateCompleted} {
		a := other.rpc(other.one, "1.0", "GetTask", `{"id":"`+id+`"}`)
		if a.Error != nil || !strings.Contains(string(a.Result), string(want)) {
			t.Errorf("%s %+v; want a.Error = nil, string(a.Result) with %v", a.Result, a.Error, string(want))
		}
	}
	if a := other.rpc(other.one, "1.0", "GetTaskPushNotificationConfig", `{"taskId":"`+waits.ID+`","id":"p"}`); a.Error != nil {
		t.Errorf("a.Error = %v, want %v", a.Error, nil)
	}
}

// stackAgain is a second server over the files of the first, which keeps its audit
// folder to itself.
func stackAgain(t *testing.T, _ *stack, dir string) *stack {
	t.Helper()
	return stackWith(t, dir, t.TempDir())
}

func FuzzMessages(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"},{"data":{"capability":"a","arguments":{}}}]}}}`,
		`{"jsonrpc":"2.0","id":"a","method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"x"}}]},"configuration":{"blocking":false,"pushNotificationConfig":{"url":"x"}}}}`,
		`{"jsonrpc":"2.0","id":null,"method":"ListTasks","params":{"pageSize":3}}`, `[]`, `{"id":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, fault := parse(body)
		if fault != nil {
			if out, err := jsonx.Marshal(reply{Version: "2.0", ID: idOr(r.ID), Error: fault.jsonrpc()}); err != nil || !json.Valid(out) {
				t.Errorf("%s %v; want no error, json.Valid(out)", out, err)
			}
			return
		}
		for _, legacy := range []bool{false, true} {
			p, err := new(a2awire.SendParams), error(nil)
			if legacy {
				var old *a2awire.SendParams03
				if old, err = decode[a2awire.SendParams03](r.Params); err == nil {
					p = old.V10()
				}
			} else {
				p, err = decode[a2awire.SendParams](r.Params)
			}
			if err != nil || checkSend(p) != nil {
				continue
			}
			w, named, _ := wantedBy(p)
			if named && w.name == "" {
				t.Error(`a call of nothing; want not (named && w.name == "")`)
			}
			p.Message.V03()
			for _, params := range []string{`{}`, `{"requestedSchema":{"properties":{"a":{"type":"string"}}}}`} {
				a, answered := answerIn(p.Message, &requestOf(params)[0])
				if answered && !jsonx.Valid(a) && jsonx.Valid(body) {
					t.Errorf("%s; want not (answered && !jsonx.Valid(a) && jsonx.Valid(body))", a)
				}
			}
		}
	})
}
