package clients_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/setup/clients"
)

// fixtures returns a configuration of each client as its documentation shows it, with comments
// where the client accepts them. Each has a server "files" that can be moved, and "other".
func fixtures() map[string]string {
	common := `{
  "mcpServers": {
    "files": {"command": "npx", "args": ["-y", "server-files", "/data"], "env": {"TOKEN": "abc"}},
    "other": {"url": "https://example.org/mcp", "type": "http", "headers": {"Authorization": "Bearer x"}}
  },
  "kept": [1.50, null]
}
`
	return map[string]string{
		"claude": common, "claude-desktop": common, "gemini": common, "windsurf": strings.ReplaceAll(common, `"url"`, `"serverUrl"`),
		"cursor": strings.Replace(common, `  "kept"`, "  // a comment with { and \"\n  /* and another, */ \"kept\"", 1),
		"vscode": strings.Replace(strings.Replace(common, "mcpServers", "servers", 1), "null]\n", "null], // trailing\n", 1),
		"zed":    "// Zed settings\n" + strings.Replace(common, "mcpServers", "context_servers", 1),
		"opencode": `{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "files": {"type": "local", "command": ["npx", "-y", "server-files", "/data"], "environment": {"TOKEN": "abc"}},
    "other": {"type": "remote", "url": "https://example.org/mcp", "headers": {"Authorization": "Bearer x"}},
  },
}
`,
		"goose": `# my goose, a comment
GOOSE_PROVIDER: "openai"
extensions: # kept comment
    developer: {type: builtin, name: developer, enabled: true}
    files:
        enabled: true
        type: stdio
        name: files
        cmd: npx
        args: [-y, server-files,
          /data]
        envs:
            TOKEN: abc
        timeout: 300

    # a comment about other
    "other":
        type: streamable_http
        uri: https://example.org/mcp
        headers: {Authorization: Bearer x}
note: |
  extensions:
    files: is only text here
`,
		"codex": `model = "gpt-5" # mine

[mcp_servers.files]
command = "npx"
args = ["-y", "server-files", "/data"]

[mcp_servers.files.env]
TOKEN = "abc"

[mcp_servers."other"]
url = "https://example.org/mcp"
http_headers = { Authorization = "Bearer x" }

[profiles.fast]
notes = """
[mcp_servers.files]
is only text here
"""
`,
	}
}

func env(string) string { return "" }

// TestEveryClientIsConnectedAndRestoredToTheByte connects each client, moves one server, reads the
// file back, and undoes it.
func TestEveryClientIsConnectedAndRestoredToTheByte(t *testing.T) {
	t.Parallel()
	bridge := clients.Server{Name: "junctor", Command: "/bin/junctor", Args: []string{"mcp", "--client", "x"}}
	remote := clients.Server{
		Name: "junctor", URL: "http://127.0.0.1:7777/mcp", Headers: map[string]string{"Authorization": "Bearer jnc_0123456789"},
	}
	for _, c := range clients.All() {
		t.Run(c.Name, func(t *testing.T) { t.Parallel(); connectAndRestore(t, c, bridge) })
		if c.Name != "claude-desktop" {
			t.Run(c.Name+" over HTTP", func(t *testing.T) { t.Parallel(); connectAndRestore(t, c, remote) })
		}
	}
}

func TestAClientWithoutRemoteServersIsNotConnectedOverHTTP(t *testing.T) {
	t.Parallel()
	c, err := clients.Find("claude-desktop")
	if err != nil {
		t.Fatalf("finding the client: %v", err)
	}
	_, _, err = c.Plan("/home", "/home/file", clients.Config{}, clients.Server{URL: "http://127.0.0.1:7777/mcp"}, nil)
	if e := capability.AsError(err); e == nil || e.Reason != "client_no_http" || !strings.Contains(e.Message, "Claude Desktop") {
		t.Errorf("Plan with a URL = %v, want client_no_http with the name of the client", err)
	}
}

// connectAndRestore connects a client with the entry own, moves one server, reads the file back, and
// undoes it.
func connectAndRestore(t *testing.T, c clients.Client, own clients.Server) {
	t.Helper()
	texts := fixtures()
	home := t.TempDir()
	file := c.File(home, env)
	text, ok := texts[c.Name]
	if !ok {
		t.Fatalf("fixture of %s: got none, want the text of its file", c.Name)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatalf("making the folder: got %v, want no error", err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatalf("writing the file: got %v, want no error", err)
	}
	now, err := c.Read(file)
	if err != nil {
		t.Fatalf("reading the file: got %v, want no error", err)
	}
	want := []clients.Found{
		{Server: clients.Server{
			Name: "files", Command: "npx", Args: []string{"-y", "server-files", "/data"}, Env: map[string]string{"TOKEN": "abc"},
		}},
		{Server: clients.Server{Name: "other", URL: "https://example.org/mcp", Headers: map[string]string{"Authorization": "Bearer x"}}},
	}
	movable := func(list []clients.Found) []clients.Found {
		return slices.DeleteFunc(slices.Clone(list), func(f clients.Found) bool { return f.Stays == "it is an extension of the client itself" })
	}
	if d := cmp.Diff(want, movable(now.Servers)); d != "" || now.Connected {
		t.Fatalf("Read: connected %v, servers (-want +got):\n%s", now.Connected, d)
	}
	changes, left, err := c.Plan(home, file, now, own, []string{"files"})
	if err != nil || len(left) > 0 {
		t.Fatalf("Plan = %v, left %v; want nil and nothing left", err, left)
	}
	preview, err := overlay.Preview(now.Text, "setup", changes)
	if err != nil {
		t.Fatalf("previewing: got %v, want no error", err)
	}
	journal := filepath.Join(t.TempDir(), "journal")
	if err := overlay.Apply(t.Context(), journal, "setup", changes); err != nil {
		t.Fatalf("applying: got %v, want no error", err)
	}
	after, err := c.Read(file)
	if err != nil {
		t.Fatalf("reading the file: got %v, want no error", err)
	}
	if string(after.Text) != string(preview) {
		t.Errorf("the file has\n%s\nwant what was previewed:\n%s", after.Text, preview)
	}
	if d := cmp.Diff(own, after.Own, cmpopts.EquateEmpty()); d != "" {
		t.Errorf("the entry of junctor (-want +got):\n%s", d)
	}
	if d := cmp.Diff(want[1:], movable(after.Servers)); d != "" || !after.Connected {
		t.Errorf("after: connected %v, servers (-want +got):\n%s", after.Connected, d)
	}
	for line := range strings.Lines(text) {
		if strings.Contains(line, "comment") || strings.Contains(line, "kept") || strings.Contains(line, "only text") {
			if !strings.Contains(string(after.Text), strings.TrimSpace(line)) {
				t.Errorf("the line %q is gone; want string(after.Text) with strings.TrimSpace(line)", line)
			}
		}
	}
	if err := overlay.Undo(t.Context(), journal); err != nil {
		t.Fatalf("undoing: got %v, want no error", err)
	}
	got, err := os.ReadFile(file)
	if d := cmp.Diff(text, string(got)); err != nil || d != "" {
		t.Errorf("after the undo: %v (-want +got):\n%s", err, d)
	}
}

func TestAMissingFileIsCreatedAndRemovedAgain(t *testing.T) {
	t.Parallel()
	for _, c := range clients.All() {
		home := t.TempDir()
		file := c.File(home, env)
		now, err := c.Read(file)
		if err != nil || now.Text != nil {
			t.Fatalf("%s: Read = %+v, %v; want an empty configuration", c.Name, now, err)
		}
		changes, _, err := c.Plan(home, file, now, clients.Server{Command: "/bin/junctor", Args: []string{"mcp"}}, nil)
		if err != nil {
			t.Fatalf("planning: got %v, want no error", err)
		}
		journal := filepath.Join(t.TempDir(), "journal")
		if err := overlay.Apply(t.Context(), journal, "setup", changes); err != nil {
			t.Fatalf("applying: got %v, want no error", err)
		}
		if after, err := c.Read(file); err != nil || !after.Connected {
			t.Errorf("%s: Read = %+v, %v; want an entry of junctor", c.Name, after, err)
		}
		if err := overlay.Undo(t.Context(), journal); err != nil {
			t.Fatalf("undoing: got %v, want no error", err)
		}
		if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
			t.Errorf("%s: the undo left %v (%v), want an empty home", c.Name, left, err)
		}
	}
}

func TestAFileOfAnotherFormIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range clients.All() {
		for _, text := range []string{"{ broken", `[]`, `{"` + c.Keys[0] + `": [1]}`, "x = [1\n", strings.Repeat("[", 100_000)} {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatalf("writing the file: got %v, want no error", err)
			}
			if _, err := c.Read(file); capability.AsError(err) == nil || capability.AsError(err).Reason != "client_config" ||
				!strings.Contains(err.Error(), file) {
				t.Errorf("%s: Read(%.20q) = %v, want client_config with the name of the file", c.Name, text, err)
			}
		}
	}
}

func TestServersThatCannotBeMovedSayWhy(t *testing.T) {
	t.Parallel()
	c, err := clients.Find("claude")
	if err != nil {
		t.Fatalf("finding the client: got %v, want no error", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {
		"a": {"type": "sse", "url": "https://example.org"}, "b": {"command": "x", "args": ["${input:path}"]},
		"c": {"command": "x", "env": {"T": "${T}"}}, "d": {"command": "x", "disabled": true}, "e": {}, "f": 7,
		"g": {"command": "x"}, "junctor": {"command": "junctor"}}}`), 0o600); err != nil {
		t.Fatalf("writing the file: got %v, want no error", err)
	}
	now, err := c.Read(file)
	if err != nil || !now.Connected {
		t.Fatalf("Read: connected %v, %v; want true", now.Connected, err)
	}
	got := make(map[string]string)
	for _, f := range now.Servers {
		got[f.Name] = f.Stays
	}
	want := map[string]string{
		"a": "its transport is sse", "b": "it has variables of the client, such as ${input:…}", "c": "the value of T is a variable of the client",
		"d": "it is disabled", "e": "it has neither a command nor a URL", "f": "its form is not known", "g": "",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
}

// TestEachReasonToStayIsListed reads, for each client that has the form, a server that cannot be moved.
func TestEachReasonToStayIsListed(t *testing.T) {
	t.Parallel()
	const (
		sse, login, own = "its transport is sse", "the client logs in to it", "it is an extension of the client itself"
		variable        = "its credential is a variable of the client's environment"
		prompt          = "the value of Authorization is a variable of the client"
	)
	limited := func(member string) string {
		return "it limits its tools with " + member + ", which junctor would not keep; add it by hand with junctor mcp add --quarantine, " +
			"and approve the tools that agents may use with junctor mcp approve"
	}
	json := func(key, value string) string { return `{"` + key + `": {"x": ` + value + `}}` }
	for _, c := range []struct{ client, text, want string }{
		{"claude", json("mcpServers", `{"type": "sse", "url": "https://x.example"}`), sse},
		{"claude", json("mcpServers", `{"type": "http", "url": "https://x.example", "oauth": {"clientId": "a"}}`), login},
		{"claude", json("mcpServers", `{"url": "https://x.example", "headersHelper": "/bin/x"}`), "its headers come from a program that the client runs"},
		{"gemini", json("mcpServers", `{"url": "https://x.example", "type": "sse"}`), sse},
		{"gemini", json("mcpServers", `{"httpUrl": "https://x.example", "oauth": {"enabled": true}}`), login},
		{"gemini", json("mcpServers", `{"httpUrl": "https://x.example", "oauth": {"enabled": false}}`), ""},
		{"gemini", json("mcpServers", `{"httpUrl": "https://x.example", "authProviderType": "google_credentials"}`), login},
		{"opencode", json("mcp", `{"type": "remote", "url": "https://x.example", "oauth": {}}`), login},
		{"opencode", json("mcp", `{"type": "remote", "url": "https://x.example", "oauth": false}`), ""},
		{"cursor", json("mcpServers", `{"url": "https://x.example", "auth": {"CLIENT_ID": "a"}}`), login},
		{"vscode", json("servers", `{"type": "http", "url": "https://x.example", "headers": {"Authorization": "${input:key}"}}`), prompt},
		{"vscode", json("servers", `{"command": "x", "envFile": "/x/.env"}`), "its variables are in the file /x/.env"},
		{"vscode", json("servers", `{"type": "sse", "url": "https://x.example"}`), sse},
		{"zed", json("context_servers", `{"source": "extension", "settings": {}}`), own},
		{"codex", "[mcp_servers.x]\nurl = \"https://x.example\"\nbearer_token_env_var = \"A\"\n", variable},
		{"codex", "[mcp_servers.x]\ncommand = \"x\"\nenv_vars = [\"A\"]\n", variable},
		{"goose", "extensions:\n  x: {type: builtin, name: x}\n", own},
		{"goose", "extensions:\n  x: {type: sse, uri: https://x.example}\n", sse},
		{"goose", "extensions:\n  x: {type: stdio, cmd: x, env_keys: [A]}\n", "its credentials are in the keyring of the client"},
		{"gemini", json("mcpServers", `{"command": "x", "includeTools": ["read"]}`), limited("includeTools")},
		{"gemini", json("mcpServers", `{"command": "x", "includeTools": []}`), limited("includeTools")},
		{"gemini", json("mcpServers", `{"command": "x", "excludeTools": ["write"], "trust": true}`), limited("excludeTools")},
		{"gemini", json("mcpServers", `{"command": "x", "includeTools": null, "excludeTools": []}`), ""},
		{"codex", "[mcp_servers.x]\ncommand = \"x\"\nenabled_tools = [\"read\"]\n", limited("enabled_tools")},
		{"codex", "[mcp_servers.x]\ncommand = \"x\"\ndisabled_tools = [\"write\"]\n", limited("disabled_tools")},
		{"codex", "[mcp_servers.x]\ncommand = \"x\"\n[mcp_servers.x.tools.read]\napproval_mode = \"approve\"\n", ""},
		{"goose", "extensions:\n  x: {type: stdio, cmd: x, available_tools: [read]}\n", limited("available_tools")},
		{"goose", "extensions:\n  x: {type: stdio, cmd: x, available_tools: []}\n", ""},
		{"windsurf", json("mcpServers", `{"serverUrl": "https://x.example", "disabledTools": ["write"]}`), limited("disabledTools")},
		{"windsurf", json("mcpServers", `{"serverUrl": "https://x.example", "disabledTools": [], "alwaysAllow": ["read"]}`), ""},
		{"claude", json("mcpServers", `{"command": "x", "tools": ["read"]}`), limited("tools")}, // the file of another client, which is imported
		{"claude", json("mcpServers", `{"command": "x", "tools": ["*"]}`), ""},
	} {
		client, err := clients.Find(c.client)
		if err != nil {
			t.Fatalf("finding %s: %v", c.client, err)
		}
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatalf("writing the file: %v", err)
		}
		now, err := client.Read(file)
		if err != nil || len(now.Servers) != 1 || now.Servers[0].Stays != c.want {
			t.Errorf("%s: Read(%s) = %+v, %v; want one server with the reason %q", c.client, c.text, now.Servers, err, c.want)
		}
	}
}

func TestServersOfProjectsAreFoundAndStay(t *testing.T) {
	t.Parallel()
	texts := fixtures()
	for _, c := range clients.All() {
		home, folder := t.TempDir(), t.TempDir()
		name := map[string]string{
			"claude": ".mcp.json", "codex": ".codex/config.toml", "gemini": ".gemini/settings.json", "opencode": ".opencode/opencode.jsonc",
			"vscode": ".vscode/mcp.json", "cursor": ".cursor/mcp.json", "zed": ".zed/settings.json",
		}[c.Name]
		var want []string
		now := clients.Config{}
		if c.Name == "claude" {
			now.Text = []byte(`{"projects": {"/b": {"mcpServers": {"one": {"command": "x"}, "junctor": {}}}, "/a": {"mcpServers": {"two": 3}}, "/c": 7}}`)
			want = []string{"two: it is defined by project, in /a", "one: it is defined by project, in /b"}
		}
		if name != "" {
			file := filepath.Join(folder, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(texts[c.Name]), 0o600)); err != nil {
				t.Fatalf("writing %s: %v", file, err)
			}
			want = append(want, "files: it is defined by project, in "+file, "other: it is defined by project, in "+file)
		}
		list := func(folder, file string) (got []string) {
			for _, f := range c.OfProjects(now, file, folder) {
				got = append(got, f.Name+": "+f.Stays)
			}
			return got
		}
		if d := cmp.Diff(want, list(folder, c.File(home, env))); d != "" {
			t.Errorf("%s: OfProjects (-want +got):\n%s", c.Name, d)
		}
		if got := list(folder, filepath.Join(folder, name)); name != "" && len(got) != len(want)-2 {
			t.Errorf("%s: OfProjects in the user's home = %v, want the user's file left out", c.Name, got)
		}
	}
}

// FuzzJSONWithComments holds that positions in the plain document are positions in the original.
func FuzzJSONWithComments(f *testing.F) {
	for _, text := range fixtures() {
		f.Add([]byte(text))
	}
	f.Add([]byte(`{"a": "/* no */", // yes` + "\n" + `"b": [1, /* } */ 2,],}`))
	f.Add([]byte(`/*`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		plain := overlay.Plain(doc)
		if len(plain) != len(doc) {
			t.Fatalf("len(Plain(%q)) = %d, want %d", doc, len(plain), len(doc))
		}
		for i := range doc {
			if plain[i] != doc[i] && plain[i] != ' ' {
				t.Fatalf("Plain(%q) has %q at %d, want %q or a space", doc, plain[i], i, doc[i])
			}
		}
	})
}

func TestRecognizeReadsTheFormOfEachClient(t *testing.T) {
	t.Parallel()
	files := fixtures()
	files["opencode 2"] = `{"mcp": {"servers": {"files": {"type": "local", "command": ["npx"]}, "other": {"type": "remote", "url": "https://x.example"}}}}`
	for client, text := range files {
		name := "mcp.json"
		switch client {
		case "codex":
			name = "config.toml"
		case "goose":
			name = "config.yaml"
		}
		got, err := clients.Recognize(name, []byte(text))
		if err != nil {
			t.Errorf("Recognize(%s): %v", client, err)
			continue
		}
		var names []string
		for _, s := range got.Servers {
			if s.Stays == "" {
				names = append(names, s.Name)
			}
		}
		if d := cmp.Diff([]string{"files", "other"}, names); d != "" {
			t.Errorf("Recognize(%s): servers (-want +got):\n%s", client, d)
		}
	}
	odd := `{"mcp": {"servers": {"type": "local", "command": ["npx", "x"]}}}`
	if got, err := clients.Recognize("opencode.json", []byte(odd)); err != nil || len(got.Servers) != 1 || got.Servers[0].Name != "servers" {
		t.Errorf("a server called servers = %v, %v; want it as the only server", got.Servers, err)
	}
}
