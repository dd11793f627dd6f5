package scriptedmodel_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
)

// dialects are the same conversations in each API: what begins a play, and what comes
// after the first tool.
var dialects = map[string]struct {
	path, ask, after, calls, says string
}{
	"messages": {
		path:  "/v1/messages",
		ask:   `{"system":[{"type":"text","text":"be kind"}],"messages":[{"role":"user","content":"do THE-PLAY"}],"tools":[{"name":"Write","input_schema":{"properties":{"file_path":{},"content":{}},"required":["file_path","content"]}}]%s}`,
		after: `{"messages":[{"role":"user","content":[{"type":"text","text":"do THE-PLAY"}]},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"Write","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"ok"}]}],"tools":[{"name":"Write","input_schema":{}}]%s}`,
		calls: `file_path`, says: "It is done.",
	},
	"responses": {
		path:  "/v1/responses",
		ask:   `{"instructions":"be kind","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"do THE-PLAY"}]}],"tools":[{"type":"function","name":"exec_command","parameters":{"properties":{"cmd":{}},"required":["cmd"]}}]%s}`,
		after: `{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"do THE-PLAY"}]},{"type":"function_call","name":"exec_command","call_id":"1"},{"type":"function_call_output","call_id":"1","output":"ok"}],"tools":[{"type":"function","name":"exec_command","parameters":{}}]%s}`,
		calls: `printf '%s' 'hello' \u003e '/there/it.txt'`, says: "It is done.",
	},
	"completions": {
		path:  "/v1/chat/completions",
		ask:   `{"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"do THE-PLAY"}],"tools":[{"type":"function","function":{"name":"write","parameters":{"properties":{"filePath":{},"content":{}},"required":["filePath"]}}}]%s}`,
		after: `{"messages":[{"role":"user","content":"do THE-PLAY"},{"role":"assistant","content":null},{"role":"tool","content":"ok"}],"tools":[{"type":"function","function":{"name":"write","parameters":{}}}]%s}`,
		calls: `filePath`, says: "It is done.",
	},
	"gemini": {
		path:  "/v1beta/models/m:generateContent",
		ask:   `{"contents":[{"role":"user","parts":[{"text":"do THE-PLAY"}]}],"tools":[{"functionDeclarations":[{"name":"write_file","parametersJsonSchema":{"properties":{"file_path":{},"content":{}},"required":["file_path"]}}]}]}`,
		after: `{"contents":[{"role":"user","parts":[{"text":"do THE-PLAY"}]},{"role":"model","parts":[{"functionCall":{"name":"write_file"}}]},{"role":"user","parts":[{"functionResponse":{"name":"write_file","response":{}}}]}],"tools":[{"functionDeclarations":[{"name":"write_file"}]}]}`,
		calls: `file_path`, says: "It is done.",
	},
}

func start(t *testing.T) *scriptedmodel.Model {
	t.Helper()
	m, err := scriptedmodel.Start(scriptedmodel.Script{
		"THE-PLAY":  {{Write: &scriptedmodel.File{Path: "/there/it.txt", Text: "hello"}}, {Say: "It is done."}},
		"NO-KEY":    {{Fail: scriptedmodel.Auth}},
		"NO-MONEY":  {{Fail: scriptedmodel.Billing}},
		"TOO-OFTEN": {{Fail: scriptedmodel.RateLimit}},
		"FOR-EVER":  {{Slow: time.Hour, Say: "At last."}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func post(t *testing.T, url, body string) (status int, answer string) {
	t.Helper()
	res, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

func TestAPlayInEachDialect(t *testing.T) {
	m := start(t)
	for name, d := range dialects {
		for _, stream := range []bool{false, true} {
			path, more := d.path, ""
			switch {
			case stream && name == "gemini":
				path = strings.Replace(path, ":generate", ":streamGenerate", 1)
			case stream:
				more = `,"stream":true`
			}
			say := func(body string) string {
				status, answer := post(t, m.URL()+path, strings.Replace(body, "%s", more, 1))
				if status != http.StatusOK || stream != strings.Contains(answer, "data: ") {
					t.Errorf(`%s, stream %v: %d %s; want status = http.StatusOK, stream = strings.Contains(answer, "data: ")`,
						name, stream, status, answer)
				}
				return strings.ReplaceAll(strings.ReplaceAll(answer, `\\u003e`, `\u003e`), `\"`, `"`)
			}
			if out := say(d.ask); !strings.Contains(out, d.calls) || !strings.Contains(out, "/there/it.txt") {
				t.Errorf(`%s, stream %v: %s; want out with %v, out with "/there/it.txt"`, name, stream, out, d.calls)
			}
			if out := say(d.after); !strings.Contains(out, d.says) {
				t.Errorf("%s, stream %v: %s; want out with %v", name, stream, out, d.says)
			}
			if out := say(strings.Replace(d.ask, "THE-PLAY", "something else", 1)); !strings.Contains(out, "Hello") {
				t.Errorf(`%s, what is in no play: %s; want out with "Hello"`, name, out)
			}
			for play, want := range map[string]string{"NO-KEY": "401", "NO-MONEY": "billing", "TOO-OFTEN": "429"} {
				status, answer := post(t, m.URL()+path, strings.Replace(strings.Replace(d.ask, "THE-PLAY", play, 1), "%s", more, 1))
				if status < 400 || !strings.Contains(strings.ToLower(fmt.Sprint(status, answer)), want) {
					t.Errorf("%s, %s: %d %s; want status at least 400, strings.ToLower(fmt.Sprint(status, answer)) with %v",
						name, play, status, answer, want)
				}
			}
		}
	}
	if asked := m.Asked("THE-PLAY"); len(asked) != 16 || asked[1].Step != 1 || !strings.Contains(asked[0].Text, "THE-PLAY") {
		t.Errorf(`%+v; want len(asked) = 16, asked[1].Step = 1, asked[0].Text with "THE-PLAY"`, asked)
	}
}

// What comes without tools is the program's own request, whatever it quotes.
func TestARequestForATitle(t *testing.T) {
	m := start(t)
	status, answer := post(t, m.URL()+"/v1/messages", `{"messages":[{"role":"user","content":"a title for: do THE-PLAY"}]}`)
	if status != http.StatusOK || !strings.Contains(answer, "Hello") || len(m.Asked("THE-PLAY")) != 0 {
		t.Errorf(`%d %s; want status = http.StatusOK, answer with "Hello", len(m.Asked("THE-PLAY")) = 0`, status, answer)
	}
}

func TestWhatIsNoRequest(t *testing.T) {
	m := start(t)
	for path, want := range map[string]int{"/v1/messages": http.StatusBadRequest, "/v1/models": http.StatusNotFound} {
		if status, answer := post(t, m.URL()+path, "{"); status != want {
			t.Errorf("%s: %d %s; want status = %v", path, status, answer, want)
		}
	}
	status, answer := post(t, m.URL()+"/v1/messages/count_tokens", `{}`)
	if status != http.StatusOK || !strings.Contains(answer, `"input_tokens":5`) {
		t.Errorf(`%d %s; want status = http.StatusOK, answer with "\"input_tokens\":5"`, status, answer)
	}
	status, answer = post(t, m.URL()+"/v1/messages", `"`+strings.Repeat("x", 17<<20)+`"`)
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s; want status = http.StatusRequestEntityTooLarge", status, answer)
	}
}

// A slow answer does not delay Close.
func TestASlowAnswerEndsWithTheServer(t *testing.T) {
	m := start(t)
	over := make(chan error, 1)
	go func() {
		_, err := http.Post(m.URL()+"/v1/messages", "application/json",
			strings.NewReader(strings.Replace(strings.Replace(dialects["messages"].ask, "THE-PLAY", "FOR-EVER", 1), "%s", "", 1)))
		over <- err
	}()
	for len(m.Asked("FOR-EVER")) == 0 {
		_, _ = post(t, m.URL()+"/v1/messages/count_tokens", `{}`)
	}
	m.Close()
	if err := <-over; err == nil {
		t.Error("a model that was closed has answered; want an error")
	}
}
