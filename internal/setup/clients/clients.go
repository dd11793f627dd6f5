// Package clients describes the MCP clients that junctor can be set up for: where each keeps its
// configuration, how an MCP server is written there, and which servers it has. It reads and plans;
// package setup makes the changes.
package clients

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Format is the syntax of a configuration file.
type Format string

// The formats.
const (
	JSON Format = "json" // with or without comments
	TOML Format = "toml"
	YAML Format = "yaml"
)

// Client describes one MCP client. The fields of the file come from the documentation of its
// vendor; those of Claude Code, Codex, Gemini CLI and OpenCode were tried with the programs.
type Client struct {
	Name   string // as users type it: "claude"
	Title  string
	Binary string // program that shows that the client is installed; may be empty
	Format Format
	// Keys leads to the object that has one member for each server.
	Keys []string
	// files returns the candidates for the user's file, the first is created if none exists.
	files func(home string, env func(string) string) []string
	// entry returns the value of a server that runs a command, and remote that of one with a URL, for
	// Format JSON. noHTTP is for a client whose file has no form for a URL.
	entry  func(command string, args []string) any
	remote func(url string, headers map[string]string) any
	noHTTP bool
	// project names the files of a project, relative to its folder. nested is the key of an object of
	// the user's file with the same members for each project; it may be empty.
	project []string
	nested  string
	// read reads the value of one server.
	read func(raw json.RawMessage) (Server, string)
}

// Server is an MCP server as a client has it.
type Server struct {
	Name    string            `json:"name"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"-"`
	Dir     string            `json:"dir,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"-"`
}

func (s Server) isSet() bool { return s.Command != "" || s.URL != "" }

// EntryName is the name under which junctor is a server of each client.
const EntryName = "junctor"

// All returns the clients that can be set up, in the order in which they are listed.
func All() []Client {
	return []Client{
		{
			Name: "claude", Title: "Claude Code", Binary: "claude", Format: JSON, Keys: []string{"mcpServers"},
			project: []string{".mcp.json"}, nested: "projects", files: under(".claude.json"), entry: typed("stdio"),
			remote: typedRemote("http"), read: readCommon,
		},
		{
			Name: "claude-desktop", Title: "Claude Desktop", Format: JSON, Keys: []string{"mcpServers"},
			files: inConfig("Claude/claude_desktop_config.json"), entry: plainEntry, noHTTP: true, read: readCommon,
		},
		{
			Name: "codex", Title: "Codex", Binary: "codex", Format: TOML, Keys: []string{"mcp_servers"},
			project: []string{".codex/config.toml"}, files: func(home string, env func(string) string) []string {
				if dir := env("CODEX_HOME"); filepath.IsAbs(dir) {
					return []string{filepath.Join(dir, "config.toml")}
				}
				return []string{filepath.Join(home, ".codex", "config.toml")}
			}, read: readCommon,
		},
		{
			Name: "gemini", Title: "Gemini CLI", Binary: "gemini", Format: JSON, Keys: []string{"mcpServers"},
			project: []string{".gemini/settings.json"}, files: under(".gemini/settings.json"), entry: plainEntry,
			remote: typedRemote("http"), read: readCommon,
		},
		{
			Name: "opencode", Title: "OpenCode", Binary: "opencode", Format: JSON, Keys: []string{"mcp"},
			project: []string{"opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"},
			files: func(home string, env func(string) string) []string {
				dir := filepath.Join(configDir(home, env), "opencode")
				return []string{filepath.Join(dir, "opencode.json"), filepath.Join(dir, "opencode.jsonc")}
			},
			entry: func(command string, args []string) any {
				return struct {
					Type    string   `json:"type"`
					Command []string `json:"command"`
				}{"local", append([]string{command}, args...)}
			}, remote: typedRemote("remote"), read: readOpenCode,
		},
		{
			Name: "vscode", Title: "VS Code", Binary: "code", Format: JSON, Keys: []string{"servers"},
			project: []string{".vscode/mcp.json"}, files: inConfig("Code/User/mcp.json"), entry: typed("stdio"),
			remote: typedRemote("http"), read: readCommon,
		},
		{
			Name: "cursor", Title: "Cursor", Binary: "cursor", Format: JSON, Keys: []string{"mcpServers"},
			project: []string{".cursor/mcp.json"}, files: under(".cursor/mcp.json"), entry: plainEntry, remote: typedRemote(""), read: readCommon,
		},
		{
			Name: "windsurf", Title: "Windsurf", Binary: "windsurf", Format: JSON, Keys: []string{"mcpServers"},
			files: under(".codeium/windsurf/mcp_config.json"), entry: plainEntry,
			remote: func(url string, headers map[string]string) any {
				return map[string]any{"serverUrl": url, "headers": headers}
			}, read: readCommon,
		},
		{
			Name: "zed", Title: "Zed", Binary: "zed", Format: JSON, Keys: []string{"context_servers"},
			project: []string{".zed/settings.json"}, files: func(home string, env func(string) string) []string {
				return []string{filepath.Join(configDir(home, env), "zed", "settings.json")}
			}, entry: plainEntry, remote: typedRemote(""), read: readCommon,
		},
		{
			Name: "goose", Title: "goose", Binary: "goose", Format: YAML, Keys: []string{"extensions"},
			files: func(home string, env func(string) string) []string {
				return []string{filepath.Join(configDir(home, env), "goose", "config.yaml")}
			}, read: readGoose,
		},
	}
}

// Find returns the client with this name. Error: not_found, reason client_not_found.
func Find(name string) (Client, error) {
	var names []string
	for _, c := range All() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Client{}, capability.Errorf(capability.CodeNotFound, "clients", "%q is not a client that can be set up; use %s", name,
		strings.Join(names, ", ")).
		With("client_not_found", "")
}

// File returns the user's configuration file: the first candidate that exists, or else the first.
func (c Client) File(home string, env func(string) string) string {
	all := c.files(home, env)
	for _, name := range all {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return all[0]
}

// Check returns an error for a server that the client's file has no form for: invalid_input, reason
// client_no_http, for a URL.
func (c Client) Check(own Server) error {
	if own.URL == "" || !c.noHTTP {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "clients", "%s has no servers with a URL in its file", c.Title).
		With("client_no_http", "leave --http out, and it gets a command that connects to junctor")
}

// value returns the JSON value of a server.
func (c Client) value(own Server) (json.RawMessage, error) {
	if own.URL == "" {
		return json.Marshal(c.entry(own.Command, slices.Clone(own.Args)))
	}
	return json.Marshal(c.remote(own.URL, own.Headers))
}

func under(path string) func(string, func(string) string) []string {
	return func(home string, _ func(string) string) []string {
		return []string{filepath.Join(home, filepath.FromSlash(path))}
	}
}

// inConfig returns the file of a desktop program below the system's folder for configuration.
func inConfig(path string) func(string, func(string) string) []string {
	return func(home string, env func(string) string) []string {
		dir := configDir(home, env)
		if runtime.GOOS == "darwin" {
			dir = filepath.Join(home, "Library", "Application Support")
		}
		return []string{filepath.Join(dir, filepath.FromSlash(path))}
	}
}

// configDir returns $XDG_CONFIG_HOME, or ~/.config.
func configDir(home string, env func(string) string) string {
	if dir := env("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(home, ".config")
}

type commandEntry struct {
	Type    string   `json:"type,omitempty"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

func plainEntry(command string, args []string) any { return commandEntry{Command: command, Args: args} }

func typed(kind string) func(string, []string) any {
	return func(command string, args []string) any { return commandEntry{kind, command, args} }
}

// remoteEntry is a server with a URL.
type remoteEntry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

func typedRemote(kind string) func(string, map[string]string) any {
	return func(url string, headers map[string]string) any {
		return remoteEntry{Type: kind, URL: url, Headers: headers}
	}
}
