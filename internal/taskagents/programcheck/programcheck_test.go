package programcheck_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programcheck"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// A link to the test binary whose name begins with "program-" is a coding program with the habit that
// follows.
func TestMain(m *testing.M) {
	if habit, ok := strings.CutPrefix(filepath.Base(os.Args[0]), "program-"); ok {
		program(habit)
		return
	}
	goleak.VerifyTestMain(m)
}

type object = map[string]any

// program implements Claude Code's stream-json and asks its model like a coding program does.
func program(habit string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	say := func(v object) {
		data, _ := json.Marshal(v)
		fmt.Println(string(data))
	}
	asked := 0
	// may asks whether a tool may be used, and returns the input to use it with.
	may := func(tool string, input object) (object, bool) {
		asked++
		id := fmt.Sprint("ask-", asked)
		say(object{"type": "control_request", "request_id": id, "request": object{
			"subtype": "can_use_tool", "tool_name": tool, "input": input, "tool_use_id": fmt.Sprint("call-", asked),
		}})
		for in.Scan() {
			var m struct {
				Response struct {
					Response struct {
						Behavior string
						Updated  object `json:"updatedInput"`
					}
				}
			}
			if json.Unmarshal(in.Bytes(), &m) == nil && m.Response.Response.Behavior != "" {
				return m.Response.Response.Updated, m.Response.Response.Behavior == "allow"
			}
		}
		os.Exit(0)
		return nil, false
	}
	var conversation []any
	for in.Scan() {
		var m struct {
			Type      string
			RequestID string `json:"request_id"`
			Message   struct{ Content string }
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			continue
		}
		switch {
		case m.Type == "control_request":
			say(object{"type": "control_response", "response": object{"subtype": "success", "request_id": m.RequestID, "response": object{}}})
			continue
		case m.Type != "user":
			continue
		case habit == "mute":
			for in.Scan() { // until its input ends
				continue
			}
			return
		case habit == "dying" && strings.Contains(m.Message.Content, "CANARY-PERMIT"):
			os.Exit(3)
		}
		say(object{"type": "system", "subtype": "init", "session_id": "11111111-2222-3333-4444-555555555555"})
		conversation = append(conversation, object{"role": "user", "content": m.Message.Content})
		if habit == "idle" { // it reports every turn as done
			say(object{"type": "result", "subtype": "success", "is_error": false, "result": "done"})
			continue
		}
		for {
			text, call := model(conversation)
			if call == nil {
				conversation = append(conversation, object{"role": "assistant", "content": text})
				break
			}
			conversation = append(conversation, object{"role": "assistant", "content": []any{call}})
			outcome := "done"
			input, _ := call["input"].(object)
			switch {
			case call["name"] == "AskUserQuestion" && habit == "deaf":
				outcome = "the user did not answer"
				may("AskUserQuestion", input)
			case call["name"] == "AskUserQuestion" && habit == "answering":
				outcome = "Apples"
			case call["name"] == "AskUserQuestion":
				updated, _ := may("AskUserQuestion", input)
				answers, _ := json.Marshal(updated["answers"])
				outcome = string(answers)
			default:
				allowed := true
				if habit != "unasking" {
					_, allowed = may("Bash", input)
				}
				if command := fmt.Sprint(input["command"]); (allowed || habit == "disobeying") && habit != "lazy" {
					_ = exec.Command("sh", "-c", command).Run()
				}
			}
			conversation = append(conversation, object{"role": "user", "content": []any{
				object{"type": "tool_result", "tool_use_id": call["id"], "content": outcome},
			}})
		}
		say(object{"type": "result", "subtype": "success", "is_error": false, "result": "done"})
	}
}

// model asks the scripted model. It returns a text, or a call of a tool.
func model(conversation []any) (text string, call object) {
	schema := object{"type": "object", "properties": object{"command": object{"type": "string"}, "questions": object{"type": "array"}}}
	body, _ := json.Marshal(object{
		"model": "m", "max_tokens": 100, "messages": conversation,
		"tools": []any{object{"name": "Bash", "input_schema": schema}, object{"name": "AskUserQuestion", "input_schema": schema}},
	})
	res, err := http.Post(os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", "application/json", bytes.NewReader(body))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	defer res.Body.Close()
	var answer struct{ Content []object }
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, part := range answer.Content {
		if part["type"] == "tool_use" {
			return "", part
		}
	}
	return "done", nil
}

func check(t *testing.T, habit string, ctx context.Context) (programcheck.Result, string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("the path of the test = %v, want none", err)
	}
	path := filepath.Join(t.TempDir(), "program-"+habit)
	if err := os.Symlink(self, path); err != nil {
		t.Fatalf("linking the program = %v, want no error", err)
	}
	rules, err := detect.Load("")
	if err != nil {
		t.Fatalf("loading the rules = %v, want no error", err)
	}
	dir := t.TempDir()
	r, err := programcheck.Run(ctx, programcheck.Config{
		Dir: dir, Self: self, Version: "1", UID: 1000, Parent: map[string]string{"PATH": os.Getenv("PATH")}, Rules: rules,
	}, preflight.Result{Adapter: programs.Claude, Installed: true, Path: path, Version: "9.9.9"})
	return r, dir, err
}

func TestWhatACheckFinds(t *testing.T) {
	for _, c := range []struct {
		habit, failed, finding string
		held                   []string
	}{
		{"good", "", "", []string{"task", "permission", "refusal", "question"}},
		{"idle", "task", "the model did not get the task", nil},
		{"unasking", "permission", "it went on without asking", []string{"task"}},
		{"dying", "permission", "exit status 3", []string{"task"}},
		{"lazy", "permission", "a permitted command did not run", []string{"task"}},
		{"disobeying", "refusal", "a refused command ran", []string{"task", "permission"}},
		{"answering", "question", "it went on without asking", []string{"task", "permission", "refusal"}},
		{"deaf", "question", "the model did not get the answer", []string{"task", "permission", "refusal"}},
	} {
		t.Run(c.habit, func(t *testing.T) {
			t.Parallel()
			r, dir, err := check(t, c.habit, t.Context())
			same := len(r.Held) == len(c.held) && slices.Equal(r.Held, append([]string{}, c.held...))
			if err != nil || r.Failed != c.failed || !strings.Contains(r.Finding, c.finding) || !same {
				t.Errorf("the check = %+v, %v; want %q held, %q failed with %q", r, err, c.held, c.failed, c.finding)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("after the check its folder holds %v, %v; want nothing", left, err)
			}
		})
	}
}

func TestACheckThatIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, dir, err := check(t, "mute", ctx)
	if code := capability.CodeOf(err); code != capability.CodeTimeout && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the interrupted check = %v (%s), want timeout", err, code)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("after the check its folder holds %v, %v; want nothing", left, err)
	}
}

func TestAProgramThatDoesNotAskIsNotChecked(t *testing.T) {
	_, err := programcheck.Run(t.Context(), programcheck.Config{Dir: t.TempDir()}, preflight.Result{Adapter: programs.Pi, Installed: true})
	if capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("the check of Pi = %v, want invalid_input", err)
	}
}
