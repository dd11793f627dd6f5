package sources_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/arbitration"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
	"github.com/junctor-run/junctor/internal/extensions/sources"
)

// world is what a planner is shown of mapped sources.
type world struct {
	t       *testing.T
	catalog *catalog.Catalog
}

func compiled(t *testing.T, settings catalog.Settings, list ...manifest.Extension) world {
	t.Helper()
	c, err := catalog.New(settings, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		doc, err := json.Marshal(x) // what a mapping makes is a manifest like any other
		if err != nil {
			t.Fatal(err)
		}
		read, diagnostics, err := manifest.Parse(doc)
		if err != nil || slices.ContainsFunc(diagnostics, func(d string) bool { return strings.HasSuffix(d, "known field") }) {
			t.Fatal(diagnostics, err)
		}
		if _, _, err := c.Replace(capability.Batch{Source: x.ID, Modules: []capability.Module{read.Module()}}); err != nil {
			t.Fatal(err)
		}
	}
	if rejected := c.Snapshot().Rejected(); len(rejected) > 0 {
		t.Errorf("the catalog rejects %v", rejected)
	}
	return world{t, c}
}

func (w world) agent() *compile.Agent { return compile.New(w.catalog).Compile(&capability.Context{}) }

// actions maps planner names to the providers, with a * where a selector is needed.
func (w world) actions() map[string]string {
	out := make(map[string]string)
	for a := range w.agent().Actions() {
		star := ""
		if a.RequiresSelection {
			star = " *"
		}
		out[a.Name] = strings.Join(a.Providers(), " ") + star
	}
	return out
}

// selectors are the values a planner is offered for a field of the selector.
func (w world) selectors(name, field string) []string {
	w.t.Helper()
	a, ok := w.agent().Action(name)
	if !ok {
		w.t.Fatalf("there is no %s", name)
	}
	doc, err := a.InputSchema()
	if err != nil {
		w.t.Fatal(err)
	}
	var s struct {
		Properties struct {
			Selector struct {
				Properties map[string]struct {
					Enum []string `json:"enum"`
				} `json:"properties"`
			} `json:"selector"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(doc, &s); err != nil {
		w.t.Fatal(err)
	}
	return s.Properties.Selector.Properties[field].Enum
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func ids(x manifest.Extension) (out []string) {
	for _, c := range x.Contributions {
		out = append(out, c.ID)
	}
	return out
}

func must(t *testing.T) func(manifest.Extension, []string, error) manifest.Extension {
	return func(x manifest.Extension, diagnostics []string, err error) manifest.Extension {
		t.Helper()
		if err != nil || len(diagnostics) > 0 {
			t.Fatal(diagnostics, err)
		}
		return x
	}
}

func object(properties ...string) json.RawMessage {
	parts := make([]string, len(properties))
	for i, p := range properties {
		parts[i] = fmt.Sprintf(`%q:{"type":"string"}`, p)
	}
	return json.RawMessage(`{"type":"object","properties":{` + strings.Join(parts, ",") + `}}`)
}

func tool(name string, properties ...string) sources.MCPTool {
	return sources.MCPTool{Name: name, InputSchema: object(properties...)}
}

func TestMCP(t *testing.T) {
	t.Parallel()
	yes := true
	read, wipe := tool("list issues", "q"), tool("wipe")
	read.Annotations.ReadOnlyHint = true
	wipe.Annotations.ReadOnlyHint, wipe.Annotations.DestructiveHint = true, &yes
	s := sources.MCPServer{
		ID: "github", TrustReadOnly: true, Tools: []sources.MCPTool{read, tool("list-issues"), tool("list/issues"), wipe, tool("prompt.review"), tool("Größe")},
		Prompts: []sources.MCPPrompt{{Name: "review"}, {Name: "fix it"}}, Resources: []sources.MCPResource{{URI: "file:///a", Name: "A"}},
	}
	x := must(t)(sources.MCP(s))
	byTool := make(map[string]*manifest.Contribution)
	for i, c := range x.Contributions {
		if c.Tool != nil {
			byTool[c.Kind+" "+c.Tool.Name] = &x.Contributions[i]
		}
	}
	kind := "capability.agent-tool "
	if c := byTool[kind+"list issues"]; c.Tool.Effect != "read" || !strings.HasPrefix(c.ID, "list-issues-") {
		t.Errorf("%+v", c)
	}
	if c := byTool[kind+"list-issues"]; c.Tool.Effect != "external" || c.ID != "list-issues" {
		t.Errorf("%+v", c)
	}
	if c := byTool[kind+"wipe"]; c.Tool.Effect != "external" || !c.Tool.Approval {
		t.Errorf("%+v", c)
	}
	for range 5 { // the order of a listing does not count (scenario R11)
		rand.Shuffle(len(s.Tools), func(i, j int) { s.Tools[i], s.Tools[j] = s.Tools[j], s.Tools[i] })
		again := must(t)(sources.MCP(s))
		same(t, ids(x), ids(again))
	}
	w := compiled(t, catalog.Settings{}, x)
	names := slices.Sorted(maps.Keys(w.actions()))
	if len(names) != 6 || !slices.Contains(names, "prompt.review") || slices.Contains(names, "review") {
		t.Errorf("%q", names)
	}
	if n := len(w.catalog.Snapshot().Compose("capability.context-augmenter")); n != 1 {
		t.Errorf("%d augmenters", n)
	}
	s.TrustReadOnly = false
	for _, c := range must(t)(sources.MCP(s)).Contributions {
		if c.Kind == "capability.agent-tool" && c.Tool.Effect != "external" {
			t.Errorf("%s is believed", c.ID)
		}
	}
}

func TestBadDefinitionsOfAnMCPServerAreDropped(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := sources.MCP(sources.MCPServer{
		ID: "a:b", Tools: []sources.MCPTool{
			tool("good"), tool(""), tool("twice"), tool("twice"), tool("bidi\u202e"), tool("bell\a"), tool(strings.Repeat("x", 129)),
			{Name: "no schema"},
			{Name: "array", InputSchema: []byte(`{"type":"array"}`)},
			{Name: "broken", InputSchema: []byte(`{`)},
			{Name: "huge", InputSchema: object(strings.Repeat("x", 64<<10))},
		},
		Prompts: []sources.MCPPrompt{{Name: "p"}, {Name: "p"}}, Resources: []sources.MCPResource{{}},
	})
	if err != nil || x.ID != "mcp.a~3ab" || len(diagnostics) != 13 {
		t.Fatal(x.ID, len(diagnostics), diagnostics, err)
	}
	same(t, []string{"good"}, ids(x))
}

// TestTwoServersThatSendMessagesAreOneAction is the case that the catalog exists
// for: the operator says that two tools mean one action, and a planner sees that
// action once, with a selector.
func TestTwoServersThatSendMessagesAreOneAction(t *testing.T) {
	t.Parallel()
	server := func(id, name string) manifest.Extension {
		send := sources.MCPTool{Name: name, InputSchema: []byte(`{"type":"object","properties":{"to":{"type":"string"},"text":{"type":"string"}},"required":["text"]}`)}
		return must(t)(sources.MCP(sources.MCPServer{ID: id, Tools: []sources.MCPTool{send, tool("status")}}))
	}
	settings := catalog.Settings{CanonicalMap: []catalog.Mapping{{Ext: "mcp.slack", Tool: "post_message", Action: "message.send"}, {Ext: "mcp.chat-*", Tool: "say", Action: "message.send"}}}
	w := compiled(t, settings, server("slack", "post_message"), server("chat-x", "say"))
	same(t, map[string]string{
		"message.send":  "messaging:chat-x:default messaging:slack:default *",
		"slack__status": "ext:mcp.slack:default", "chat-x__status": "ext:mcp.chat-x:default",
	}, w.actions())
	same(t, []string{"chat-x", "slack"}, w.selectors("message.send", "channel"))
	choice, err := w.agent().Select(arbitration.Request{Action: "message.send", Selector: capability.Selector{"channel": "slack"}})
	if err != nil || choice.Entry.ID != "mcp.slack/post_message#message.send@default" || choice.Entry.Effect != capability.EffectExternal {
		t.Error(choice, err)
	}
}

func TestNodesShareFunctionsOfOneSchema(t *testing.T) {
	t.Parallel()
	node := func(id string, functions ...sources.NodeFunction) manifest.Extension {
		return must(t)(sources.CMPNode(sources.Node{ID: id, Tags: []string{"kitchen"}, Functions: functions}))
	}
	fn := func(name string, properties ...string) sources.NodeFunction {
		return sources.NodeFunction{Name: name, InputSchema: object(properties...), Effect: "read"}
	}
	reserved := []sources.NodeFunction{{Name: "device.list_node_functions"}, {Name: "device.install_remote_skill"}, {Name: "device.get_capability_host_status"}}
	a := node("phone", append(reserved, fn("camera.photo", "size"), fn("led", "colour"), fn("device"))...)
	b := node("pi:1", append(reserved, fn("camera.photo", "size"), fn("led", "brightness"))...)
	w := compiled(t, catalog.Settings{}, a, b)
	got := w.actions()
	for name, providers := range got { // the domain of a function's key is the catalog's to choose
		got[name] = providers
	}
	same(t, map[string]string{
		"camera.photo": "fn:node:phone fn:node:pi%3A1", "device": "fn:node:phone", "pi_1__led": "fn:node:pi%3A1", "phone__led": "fn:node:phone",
		"device.function.invoke": "device:node:phone device:node:pi%3A1 *", "device.function.list": "device:node:phone device:node:pi%3A1",
		"device.status.get": "device:node:phone device:node:pi%3A1", "device.skill.install": "device:node:phone device:node:pi%3A1 *",
	}, got)
	for e := range w.catalog.Snapshot().Entries() {
		if !slices.Contains(e.Contribution.Tags, "kitchen") {
			t.Errorf("%s has lost its tags", e.ID)
		}
		if e.Action == "device.skill.install" && e.Effect != capability.EffectAdmin {
			t.Error(e.Effect)
		}
	}
	if b.ID != "node.pi~3a1" {
		t.Error(b.ID)
	}
	x, diagnostics, err := sources.CMPNode(sources.Node{ID: "n", Tags: []string{"ok", "bad\n"}, Functions: []sources.NodeFunction{
		fn("a b"), fn("twice"), fn("twice"), {Name: "s", InputSchema: []byte(`[]`)}, {Name: "free", Effect: "execute"}, {Name: "boss", Effect: "administer", Consent: true},
	}})
	if err != nil || len(diagnostics) < 5 {
		t.Fatal(diagnostics, err)
	}
	same(t, []string{"boss", "device", "free"}, ids(x))
	if x.Contributions[0].Tool.Effect != "admin" || !x.Contributions[0].Tool.Approval || x.Contributions[2].Tool.Effect != "external" {
		t.Errorf("%+v", x.Contributions)
	}
}

func TestLocalExtension(t *testing.T) {
	t.Parallel()
	off := false
	l := sources.LocalExtension{
		ID: "tools.postman", Name: "Postman", Version: "1.0.0", Status: "INSTALLED", Enabled: true, Permissions: []string{"filesystem.read"},
		Commands: []sources.LocalCommand{{
			Name: "/Postman", Summary: "Runs collections", Runner: "builtin", DefaultAction: "list", Aliases: []string{"/pm"}, Actions: []sources.LocalAction{
				{ID: "list", AgentVisible: true, Args: []sources.LocalArg{{Name: "filter", Choices: []string{"a", "b"}}}},
				{ID: "save", AgentVisible: true, Permissions: []string{"db.write", "db.read"}},
				{ID: "run", AgentVisible: true, Runner: "exec.run", Confirm: "always", Args: []sources.LocalArg{{Name: "collection", Required: true}}, Flags: []sources.LocalArg{{Name: "verbose", TakesValue: &off}}},
				{ID: "sync", Permissions: []string{"network"}},
				{ID: "hidden"},
			},
		}},
		AgentVisible: []string{"postman.sync"},
	}
	x := must(t)(sources.Local(l))
	same(t, []string{"command.postman", "command.postman.pm", "tool.postman.list", "tool.postman.run", "tool.postman.save", "tool.postman.sync"}, ids(x))
	w := compiled(t, catalog.Settings{}, x)
	same(t, []string{"postman.list", "postman.run", "postman.save", "postman.sync"}, slices.Sorted(maps.Keys(w.actions())))
	effects := make(map[string]capability.Effect)
	for _, c := range x.Contributions {
		if c.Tool != nil {
			effects[c.Tool.Name] = c.Tool.Effect
		}
	}
	same(t, map[string]capability.Effect{"postman.list": "read", "postman.save": "write", "postman.run": "external", "postman.sync": "external"}, effects)
	run := x.Contributions[3].Tool
	same(t, `{"type":"object","properties":{"collection":{"type":"string"},"verbose":{"type":"boolean"}},"required":["collection"],"additionalProperties":false}`, string(run.InputSchema))
	if !run.Approval {
		t.Error("confirm: always asks for no approval")
	}
	for status, want := range map[string]string{"FAILED": "failed", "INSTALLING": "declared"} {
		l.Status = status
		if x := must(t)(sources.Local(l)); x.Stage != want || x.Active() {
			t.Error(status, x.Stage)
		}
	}
	l.Status, l.Enabled = "INSTALLED", false
	if x := must(t)(sources.Local(l)); x.Active() || len(x.Contributions) == 0 || x.Module().Stage != capability.StageDisabled {
		t.Error(x.Stage)
	}
	l.Status = "UNINSTALLED"
	if x := must(t)(sources.Local(l)); len(x.Contributions) > 0 {
		t.Error(ids(x))
	}
	l.Status, l.Enabled, l.AgentVisible = "INSTALLED", true, []string{"all"}
	l.Commands = append(l.Commands, sources.LocalCommand{Name: "/a b"})
	if x, diagnostics, err := sources.Local(l); err != nil || len(diagnostics) != 1 || len(x.Contributions) != 7 {
		t.Error(ids(x), diagnostics, err)
	}
}

func TestTaskAgents(t *testing.T) {
	t.Parallel()
	x := must(t)(sources.TaskAgents([]sources.Framework{
		{ID: "claude", Installed: true, Authenticated: "unknown", Rank: 50},
		{ID: "codex", Installed: true, Authenticated: "authenticated", Rank: 5},
		{ID: "gemini", Installed: true, Authenticated: "unauthenticated", Rank: 99},
		{ID: "aider", Rank: 99},
		{ID: "shell", Installed: true},
	}))
	w := compiled(t, catalog.Settings{}, x)
	same(t, []string{
		"task-agent.list", "task-agent.send", "task-agent.spawn", "task-agent.stop", "task-agent.task.control", "task-agent.task.create", "task-agent.task.history",
		"task-agent.task.share", "workspace.finalize", "workspace.issues.manage", "workspace.provision",
	}, slices.Sorted(maps.Keys(w.actions())))
	s := w.catalog.Snapshot()
	for request, want := range map[catalog.BackendRequest]string{
		{Class: "task-agent"}: "codex", {Class: "task-agent", ID: "claude"}: "claude", {Class: "task-agent", Selector: "openai"}: "codex",
		{Class: "task-agent", ID: "gemini"}: "backend_unavailable", {Class: "task-agent", ID: "aider"}: "backend_unavailable", {Class: "task-agent", Selector: "claudecode"}: "claude",
	} {
		choice, err := s.Backend(request)
		got := ""
		if err != nil {
			got = capability.AsError(err).Reason
		} else {
			got = choice.Entry.Contribution.Backend.ID
		}
		if got != want {
			t.Errorf("%+v: %s", request, got)
		}
	}
	for name, want := range map[string]capability.Action{"create_task": "task-agent.task.create", "START_CODING_TASK": "task-agent.task.create", " Stop_Coding_Agent": "task-agent.stop", "DANCE": ""} {
		if got, _ := sources.VerbAction(name); got != want {
			t.Error(name, got)
		}
	}
	create, _ := w.catalog.Snapshot().Capability("task-agent/create_task#task-agent.task.create@default")
	if create == nil || !slices.Contains(create.Contribution.Aliases, "START_CODING_TASK") {
		for e := range s.Entries() {
			t.Log(e.ID)
		}
		t.Error("the old name is lost")
	}
}

func TestChatAdapters(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := sources.Chat(sources.ChatAdapter{
		ID: "slack", Label: "Slack", Actions: []string{"send", "sticker", "reply", "pin", "unpin", "member-info", "x-follow", "teleport"}, ConversationKinds: []string{"dm", "thread"},
		Accounts: []sources.ChatAccount{{ID: "work"}, {ID: "home", Actions: []string{"send", "message.reply"}}}, Channel: &manifest.Channel{},
		Dock: &manifest.Dock{AdapterID: "slack"}, Reload: &manifest.Reload{ConfigPrefixes: []string{"channels.slack"}}, Commands: []manifest.Command{{Name: "slack"}},
	})
	if err != nil || len(diagnostics) != 1 || !strings.Contains(diagnostics[0], "teleport") {
		t.Fatal(diagnostics, err)
	}
	same(t, []string{"adapter", "command.slack", "setup", "status"}, ids(x))
	if x.Channels[0].ID != "slack" || x.Channels[0].Label != "Slack" || x.Channels[0].Dock == nil {
		t.Errorf("%+v", x.Channels)
	}
	same(t, map[string]string{
		"message.send": "messaging:slack:home messaging:slack:work *", "message.pin": "messaging:slack:work", "directory.lookup": "directory:slack:work",
		"x-follow": "ext:slack:work", "teleport": "ext:slack:work",
	}, compiled(t, catalog.Settings{}, x).actions())
	bare, diagnostics, err := sources.Chat(sources.ChatAdapter{ID: "irc", Actions: []string{"send"}})
	if err != nil || len(diagnostics) > 0 || bare.Contributions[0].Availability.State != capability.StateUnconfigured {
		t.Error(bare, diagnostics, err)
	}
	same(t, map[string]string{}, compiled(t, catalog.Settings{}, bare).actions())
}

func TestCoreHoldsItsSlots(t *testing.T) {
	t.Parallel()
	w := compiled(t, catalog.Settings{}, must(t)(sources.Core(true)))
	for slot, want := range map[string]string{"memory": "core/memory", "context-engine": "core/context-engine"} {
		if choice := w.catalog.Snapshot().Slot(slot, "", ""); choice.Winner != want || choice.Source != "slot_default" {
			t.Errorf("%+v", choice)
		}
	}
	same(t, "memory:builtin:default", w.actions()["memory.search"])
	other := compiled(t, catalog.Settings{}, must(t)(sources.Core(false)))
	if _, there := other.actions()["memory.search"]; there || other.catalog.Snapshot().Slot("context-engine", "", "").Winner == "" {
		t.Error("a memory of nobody")
	}
}
