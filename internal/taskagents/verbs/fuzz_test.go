package verbs_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

// noted is a launcher that only looks at what it is given.
type noted struct{ t *testing.T }

func (n noted) Create(_ context.Context, _ capability.Principal, t launch.Task) (launch.Created, error) {
	if len(t.Parts) == 0 || len(t.Parts) > launch.MaxParts || strings.TrimSpace(t.Request) == "" {
		n.t.Errorf(`%+v; want len(t.Parts) other than 0, len(t.Parts) at most launch.MaxParts, strings.TrimSpace(t.Request) other than ""`,
			t)
	}
	var out launch.Created
	for _, p := range t.Parts {
		if strings.TrimSpace(p.Task) == "" || strings.TrimSpace(p.Label) == "" || len([]rune(p.Label)) > verbs.MaxLabel {
			n.t.Errorf(`%+v; want strings.TrimSpace(p.Task) other than "", strings.TrimSpace(p.Label) other than "", `+
				"len([]rune(p.Label)) at most verbs.MaxLabel", p)
		}
		out.Agents = append(out.Agents, launch.Started{SessionID: "s", Label: p.Label})
	}
	if len(t.Metadata) > 0 && !json.Valid(t.Metadata) {
		n.t.Errorf("%s; want not (len(t.Metadata) > 0 && !json.Valid(t.Metadata))", t.Metadata)
	}
	return out, nil
}

func (n noted) Control(_ context.Context, _ capability.Principal, c launch.Control) (launch.Controlled, error) {
	return launch.Controlled{ThreadID: c.ThreadID, Action: c.Operation}, nil
}

func (n noted) Track(context.Context, capability.Principal, string, string, string) (string, error) {
	return "thr_1", nil
}

// Whatever a caller sends, a verb does it or says in both ways that it did not.
func FuzzRun(f *testing.F) {
	for _, seed := range [][3]string{
		{"CREATE_TASK", `{"task":"x","agents":["a",{"task":"b","dependsOn":[0]}],"metadata":{"a":1}}`, "1. a\n2. b"},
		{"SPAWN_AGENT", `{"task":"1. a\n2. b"}`, ""},
		{"SEND_TO_AGENT", `{"input":"2"}`, ""},
		{"SEND_TO_AGENT", `{"keys":["enter"],"task":"x"}`, ""},
		{"STOP_AGENT", `{"all":true}`, ""},
		{"CREATE_TASK", `{"agents":"codex: a | b"}`, ""},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, name, params, message string) {
		f := &fleet{}
		for _, state := range []detect.State{detect.Ready, detect.Blocked} {
			i := agents.Info{}
			i.ID, i.Status = "pty-1-0000000"+string(state[0]), state
			i.Blocker = &detect.Blocker{Options: []string{"Yes", "No"}}
			f.infos = append(f.infos, i)
		}
		s := verbs.New(verbs.Config{Launcher: noted{t}, Agents: f, Choice: &offered{}})
		got, err := s.Run(t.Context(), call(message), name, json.RawMessage(params))
		if got.Success != (err == nil) || got.Success != (got.Error == "") || err != nil &&
			(got.Text == "" || capability.AsError(err).Details["error"] != got.Error) {
			t.Errorf(`%+v %v; want got.Success = (err == nil), got.Success = (got.Error == ""), not (err != nil && (got.Text == `+
				`"" || capability.AsError(err).Details["error"] != got.Error))`, got, err)
		}
	})
}
