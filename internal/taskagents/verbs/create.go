package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
	"github.com/junctor-run/junctor/secret"
)

type createParams struct {
	Repo       string          `json:"repo"`
	ReuseRepo  bool            `json:"reuseRepo"`
	BaseBranch string          `json:"baseBranch"`
	Workdir    string          `json:"workdir"`
	AgentType  string          `json:"agentType"`
	Task       string          `json:"task"`
	Agents     parts           `json:"agents"`
	Memory     string          `json:"memoryContent"`
	Label      string          `json:"label"`
	Preset     programs.Preset `json:"approvalPreset"`
	Validator  *validatorRef   `json:"validator"`
	MaxRetries *int            `json:"maxRetries"`
	OnFail     string          `json:"onVerificationFail"`
	Criteria   []string        `json:"acceptanceCriteria"`
	Metadata   jsonx.Raw       `json:"metadata"`
}

type validatorRef struct {
	Service string    `json:"service"`
	Method  string    `json:"method"`
	Params  jsonx.Raw `json:"params"`
}

// parts is decoded from "a | b | c", or from a list of texts or of objects {task, agentType,
// label, dependsOn}.
type parts []launch.Part

// UnmarshalJSON implements json.Unmarshaler.
func (p *parts) UnmarshalJSON(data []byte) error {
	if text, ok := jsonx.Text(data); ok {
		for _, part := range splitParts(text) {
			*p = append(*p, labelled(part))
		}
		return nil
	}
	return jsonx.Elements(data, func(value []byte) error {
		if text, ok := jsonx.Text(value); ok {
			*p = append(*p, labelled(text))
			return nil
		}
		var one struct {
			Task      string `json:"task"`
			AgentType string `json:"agentType"`
			Label     string `json:"label"`
			DependsOn []int  `json:"dependsOn"`
		}
		err := jsonx.Unmarshal(value, &one)
		*p = append(*p, launch.Part(one))
		return err
	})
}

// listedTasks returns the tasks of a text that is a list: its numbered lines, otherwise its
// bullets. Indented lines belong to the entry above. The result is nil if there are fewer
// than two entries.
func listedTasks(text string) []string {
	var out []string
	for _, item := range forge.Items(text) {
		out = append(out, strings.TrimSpace(item.Title+"\n"+item.Body))
	}
	return out
}

// splitParts returns the tasks of a text of the form "a | b | c".
func splitParts(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, "|") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// cutAgent splits "codex: fix it" into program and task. name is "" unless the text begins
// with a known program of fewer than 20 characters.
func cutAgent(part string) (name programs.Name, task string) {
	before, after, ok := strings.Cut(part, ":")
	if !ok || len(before) >= 20 {
		return "", part
	}
	name, ok = programs.Normalise(before)
	if task = strings.TrimSpace(after); !ok || task == "" {
		return "", part
	}
	return name, task
}

// labelled returns a part from a text that may begin with the name of its program.
func labelled(text string) launch.Part {
	name, task := cutAgent(strings.TrimSpace(text))
	return launch.Part{Task: task, AgentType: string(name)}
}

// create implements CREATE_TASK: it derives a task from the parameters and the user's message,
// and lets the launcher create and start it.
func (v *verbs) create(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p createParams
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	request := First(c.Message, p.Task)
	if request == "" && len(p.Agents) == 0 {
		return Fail(MissingParams.Errorf("say what is to be done: task is empty"), nil)
	}
	t, err := v.task(ctx, c, p, request)
	if err != nil {
		return Fail(err, nil)
	}
	created, err := v.cfg.Launcher.Create(ctx, c.By, t)
	if err != nil {
		return Fail(err, nil)
	}
	v.talks.Remember(c, func(talk *Talk) {
		talk.ThreadID = created.ThreadID
		if t.Repo != "" {
			talk.Repo = t.Repo
		}
		for _, a := range created.Agents {
			if a.SessionID != "" {
				talk.SessionID, talk.Workdir = a.SessionID, a.Workdir
			}
		}
	})
	return began(Result{Data: created, Task: created.Task}, created.Agents)
}

// began returns the result of a verb that started agents. If at least one of them runs or
// waits, r succeeds unchanged, because the coordinator reports later; otherwise the result is
// the first failure.
func began(r Result, agents []launch.Started) (Result, error) {
	var failed []string
	var first *capability.Error
	for _, a := range agents {
		if a.Error != nil {
			failed = append(failed, fmt.Sprintf("%s: %s", a.Label, a.Error.Message))
			if first == nil {
				first = a.Error
			}
		}
	}
	if first == nil || len(failed) < len(agents) {
		r.Success = true
		return r, nil
	}
	whole := *first
	whole.Message = "no agent could be started. " + strings.Join(failed, "; ")
	out, err := Fail(&whole, r.Data)
	out.Task = r.Task
	return out, err
}

// task validates the parameters and returns the launcher's task: with program, label and
// wording of each part, repository, checks, brief and lessons.
func (v *verbs) task(ctx context.Context, c Call, p createParams, request string) (t launch.Task, err error) {
	if n := max(len(request), len(p.Task)); n > MaxMessage {
		return t, capability.Errorf(capability.CodeTooLarge, "tasks", "the task has %d bytes; the limit is %d", n,
			MaxMessage).With("task_too_large", "put what is long into a file")
	}
	wanted, err := Program(p.AgentType)
	if err != nil {
		return t, err
	}
	t = launch.Task{
		Title: text.Line(p.Label, 120), Request: request, Parts: split(p, c.Message != "", request), BaseBranch: p.BaseBranch, Workdir: p.Workdir,
		Preset: p.Preset, RoomID: c.RoomID, WorldID: c.WorldID, UserID: c.UserID, Memory: p.Memory,
	}
	if len(t.Parts) > launch.MaxParts {
		return t, TooManyAgents.Errorf("these are %d tasks; one request may have %d", len(t.Parts), launch.MaxParts)
	}
	for i, part := range t.Parts {
		if strings.TrimSpace(part.Task) == "" {
			return t, MissingParams.Errorf("the task of agent %d is empty", i+1)
		}
	}
	if t.Request == "" {
		for _, part := range t.Parts {
			t.Request += part.Task + "\n"
		}
	}
	if t.Repo, err = v.repo(ctx, c, p); err != nil {
		return t, err
	}
	if t.Repo != "" && v.cfg.Workspaces == nil {
		return t, WorkspaceServiceUnavailable.Errorf("workspaces are not available on this server, so no repository can be worked in")
	}
	if err := checks(&t, p); err != nil {
		return t, err
	}
	if t.Metadata, err = conversation(t.Metadata, c); err != nil {
		return t, err
	}
	for i := range t.Parts {
		part := &t.Parts[i]
		own, err := Program(part.AgentType)
		if err != nil {
			return t, err
		}
		part.AgentType = string(v.pick(cmp.Or(own, wanted)))
		part.Label = text.Line(First(part.Label, part.Task), MaxLabel)
	}
	t.Brief = v.brief(ctx, c, t)
	for i, part := range t.Parts {
		t.Parts[i].Task = wording(c, p, part, request, len(t.Parts) > 1)
	}
	lessons, err := v.lessons(ctx)
	t.Memory = strings.TrimSpace(t.Memory + "\n\n" + lessons)
	return t, err
}

// split returns the parts of a task: the entries of the list in the request or of p.Agents,
// whichever are more, or one part without a list. said reports that the request is the
// user's message, so that p.Task is the better text for one part.
func split(p createParams, said bool, request string) []launch.Part {
	own := listedTasks(request)
	if len(own) > len(p.Agents) && len(own) > 1 {
		var list []launch.Part
		for _, task := range own {
			list = append(list, labelled(task))
		}
		return list
	}
	if len(p.Agents) > 0 {
		return slices.Clone(p.Agents)
	}
	task := request
	if said {
		task = First(p.Task, request) // for display; wording adds the user's message
	}
	return []launch.Part{{Task: task, Label: p.Label}}
}

// wording returns the prompt of a part: the user's exact words first, then the text of the
// agent that passes the task on. Repeated texts are left out.
func wording(c Call, p createParams, part launch.Part, request string, several bool) string {
	var out []string
	add := func(heading, text string) {
		text = strings.TrimSpace(text)
		if text == "" || slices.ContainsFunc(out, func(s string) bool { return strings.Contains(s, text) }) {
			return
		}
		if heading != "" && len(out) > 0 {
			text = heading + "\n" + text
		}
		out = append(out, text)
	}
	if several && strings.Contains(request, part.Task) {
		add("", part.Task) // the user's own words for this part
		if c.Message != "" {
			add("Said about the whole task:", p.Task)
		}
		return strings.Join(out, "\n\n")
	}
	add("", request)
	if c.Message != "" {
		add("What the agent that passes this on adds:", p.Task)
	}
	if several || part.Task != p.Task {
		add("Your part of it:", part.Task)
	}
	return strings.Join(out, "\n\n")
}

// repo returns the repository of a task, or "" if it has none: the last used one if p.ReuseRepo
// is set, otherwise the parameter. It fails with MISSING_REPO if none was used before.
func (v *verbs) repo(ctx context.Context, c Call, p createParams) (string, error) {
	if !p.ReuseRepo {
		return strings.TrimSpace(p.Repo), nil
	}
	if repo := v.talks.Last(c).Repo; repo != "" {
		return repo, nil
	}
	if v.cfg.Registry != nil {
		list, err := v.cfg.Registry.List(ctx, threads.Filter{Archived: true})
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(list, func(s threads.Summary) bool { return s.LatestRepo != "" }); i >= 0 {
			return list[i].LatestRepo, nil
		}
	}
	return "", MissingRepo.Errorf("no repository was used before")
}

// checks validates and sets the task's validator, acceptance criteria and metadata, and the
// room that the metadata names. It fails with MISSING_PARAMS.
func checks(t *launch.Task, p createParams) error {
	if ref := p.Validator; ref != nil {
		if ref.Service == "" || ref.Method == "" {
			return MissingParams.Errorf("a validator needs a service and a method")
		}
		t.Validator = &validation.Custom{Service: ref.Service, Method: ref.Method, Params: json.RawMessage(ref.Params), MaxRetries: p.MaxRetries}
	}
	if p.MaxRetries != nil && *p.MaxRetries < 0 {
		return MissingParams.Errorf("maxRetries is %d; it cannot be less than 0", *p.MaxRetries)
	}
	switch p.OnFail {
	case "", "retry":
	case "escalate":
		if t.Validator != nil {
			t.Validator.OnFail = validation.Escalate
		}
	default:
		return MissingParams.Errorf("onVerificationFail is %.40q; it is retry or escalate", p.OnFail)
	}
	for _, criterion := range p.Criteria {
		if criterion = strings.TrimSpace(criterion); criterion != "" {
			t.Criteria = append(t.Criteria, criterion)
		}
	}
	if len(t.Criteria) > maxCriteria {
		return MissingParams.Errorf("there are %d acceptance criteria; the limit is %d", len(t.Criteria), maxCriteria)
	}
	if len(p.Metadata) == 0 || string(p.Metadata) == "null" {
		return nil
	}
	if err := jsonx.Members(p.Metadata, func(string, []byte) {}); err != nil {
		return MissingParams.Errorf("metadata has to be an object")
	}
	t.Metadata = json.RawMessage(p.Metadata)
	t.RoomID = First(row.Meta(t.Metadata, "originRoomId"), row.Meta(t.Metadata, "roomId"), t.RoomID)
	return nil
}

// conversation returns the metadata with the call's session and its recent messages, masked
// and cut, so that the task's agents can search them. Such members of the caller are removed.
func conversation(metadata json.RawMessage, c Call) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(metadata) > 0 {
		if err := jsonx.Unmarshal(metadata, &members); err != nil {
			return nil, err
		}
	}
	delete(members, row.OriginSession)
	delete(members, row.OriginMessages)
	if c.Session != "" {
		members[row.OriginSession] = jsonx.AppendString(nil, c.Session)
	}
	if recent := c.Recent[max(0, len(c.Recent)-MaxRecent):]; len(recent) > 0 {
		list := make([]string, len(recent))
		for i, s := range recent {
			list[i] = secret.MaskTokens(text.Line(s, MaxRecentText))
		}
		raw, err := jsonx.Marshal(list)
		if err != nil {
			return nil, err
		}
		members[row.OriginMessages] = raw
	}
	if len(members) == 0 {
		return metadata, nil
	}
	return jsonx.Marshal(members)
}

// brief returns the plan that a model writes for the agents of a task with several parts. It
// returns "" for one part, without a model, and if the model fails.
func (v *verbs) brief(ctx context.Context, c Call, t launch.Task) string {
	if len(t.Parts) < 2 || v.cfg.Model == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d agents work at the same time on parts of one request. Write the plan that all of them are given: who does what, which names, files and interfaces they have to agree on, what nobody else should touch. At most 300 words, plain text, no preamble.\n\nThe request:\n%s\n\nThe parts:\n", len(t.Parts), text.Line(t.Request, maxBrief))
	for i, part := range t.Parts {
		fmt.Fprintf(&b, "%d. %s\n", i+1, text.Line(part.Task, 1_000))
	}
	if t.Repo != "" {
		fmt.Fprintf(&b, "\nThe repository: %s; each agent has a branch of its own.\n", t.Repo)
	}
	if recent := c.Recent[max(0, len(c.Recent)-MaxRecent):]; len(recent) > 0 {
		b.WriteString("\nWhat was said before:\n")
		for _, s := range recent {
			fmt.Fprintf(&b, "- %s\n", text.Line(s, MaxRecentText))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, briefTimeout)
	defer cancel()
	brief, err := v.cfg.Model.Ask(ctx, false, secret.MaskTokens(b.String()))
	if err != nil {
		return ""
	}
	return text.CutRunes(strings.TrimSpace(strings.ToValidUTF8(brief, "")), maxBrief)
}

// lessons returns the recent results of earlier tasks as a text for new agents, or "".
func (v *verbs) lessons(ctx context.Context) (string, error) {
	if v.cfg.Registry == nil {
		return "", nil
	}
	list, err := v.cfg.Registry.Lessons(ctx, "")
	if err != nil || len(list) == 0 {
		return "", err
	}
	var b strings.Builder
	b.WriteString("What earlier tasks have shown lately; it may not apply to yours:\n")
	for _, l := range list {
		where := ""
		if l.Repo != "" {
			where = " in " + text.Line(l.Repo, 100)
		}
		fmt.Fprintf(&b, "- %s%s, %s: %s\n", text.Line(First(l.Label, "a task"), 80), where, cmp.Or(string(l.Status), "decided"),
			text.Line(l.Text, maxLesson))
	}
	return strings.TrimSpace(secret.MaskTokens(b.String())), nil
}
