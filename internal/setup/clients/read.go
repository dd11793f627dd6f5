package clients

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

const (
	// unknownForm is why a server stays whose value cannot be read, ofClient why an extension stays, and
	// heldLogin why one stays whose login the client holds.
	unknownForm = "its form is not known"
	ofClient    = "it is an extension of the client itself"
	heldLogin   = "the client logs in to it"
)

// Found is a server of a client, and why it cannot be moved.
type Found struct {
	Server
	// Stays is why the server cannot be moved behind junctor; "" if it can.
	Stays string `json:"stays,omitempty"`
}

// Config is the content of a client's configuration file.
type Config struct {
	Text      []byte // as it is on disk; nil if the file does not exist
	Connected bool   // it has an entry of junctor
	Own       Server // that entry
	Servers   []Found
}

// Has reports whether the configuration has a server of this name.
func (c Config) Has(name string) bool {
	return slices.ContainsFunc(c.Servers, func(f Found) bool { return f.Name == name })
}

// Read reads a configuration file. A missing file is an empty configuration. Error: invalid_input,
// reason client_config, with the file and the fault, if it is not of the expected form; it is
// never changed then.
func (c Client) Read(file string) (Config, error) {
	text, err := hostfs.ReadRegular(file, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil
	}
	if err != nil {
		return Config{}, c.broken(file, err.Error())
	}
	return c.Parse(file, text)
}

// Parse reads the text of a configuration file. Error: as of Read.
func (c Client) Parse(file string, text []byte) (Config, error) {
	out, err := c.parse(text)
	if err != nil {
		return Config{}, c.broken(file, err.Error())
	}
	return out, nil
}

// parse reads the text of a configuration.
func (c Client) parse(text []byte) (Config, error) {
	servers, err := c.servers(text)
	if err != nil {
		return Config{}, err
	}
	out := Config{Text: text}
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		server, stays := c.read(servers[name])
		server.Name = name
		if name == EntryName {
			out.Connected, out.Own = true, server
			continue
		}
		if stays == "" {
			stays = cmp.Or(c.unmovable(server), limited(servers[name]))
		}
		out.Servers = append(out.Servers, Found{server, stays})
	}
	return out, nil
}

func (c Client) broken(file, fault string) error {
	return capability.Errorf(capability.CodeInvalidInput, "clients", "the configuration of %s, %s, cannot be used: %s", c.Title, file, fault).
		With("client_config", "correct the file; it was left as it is")
}

// servers returns the members of the object at Keys.
func (c Client) servers(text []byte) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	doc := overlay.Plain(text)
	if c.Format == TOML {
		var tables map[string]any
		if err := toml.Unmarshal(text, &tables); err != nil {
			return nil, fmt.Errorf("it is not TOML: %w", err)
		}
		var err error
		if doc, err = json.Marshal(map[string]any{c.Keys[0]: tables[c.Keys[0]]}); err != nil {
			return nil, err
		}
	}
	if c.Format == YAML {
		var err error
		if doc, err = yamlDocument(text); err != nil {
			return nil, err
		}
	}
	for _, key := range c.Keys {
		var members map[string]json.RawMessage
		if err := json.Unmarshal(doc, &members); err != nil {
			return nil, fmt.Errorf("it is not the object that was expected: %w", err)
		}
		if doc = members[key]; doc == nil || string(doc) == "null" {
			return nil, nil
		}
	}
	var servers map[string]json.RawMessage
	if err := json.Unmarshal(doc, &servers); err != nil {
		return nil, fmt.Errorf("%s is not an object of servers", strings.Join(c.Keys, "."))
	}
	if len(servers) > maxServers {
		return nil, fmt.Errorf("%s has more than %d servers", strings.Join(c.Keys, "."), maxServers)
	}
	return servers, nil
}

// unmovable returns why a server cannot run behind junctor, or "".
func (c Client) unmovable(s Server) string {
	switch {
	case s.Command == "" && s.URL == "":
		return "it has neither a command nor a URL"
	case strings.Contains(strings.Join(append([]string{s.Command, s.URL}, s.Args...), " "), "${"):
		return "it has variables of the client, such as ${input:…}"
	}
	for _, m := range []map[string]string{s.Env, s.Headers} {
		for name, value := range m {
			if strings.Contains(value, "${") || strings.Contains(value, "{env:") {
				return "the value of " + name + " is a variable of the client"
			}
		}
	}
	return ""
}

// toolLists are the members with which clients limit the tools of a server: those of Gemini CLI, Codex,
// goose, Windsurf, and Copilot, whose files can be imported. If one of the first four is empty, no tool
// is permitted; if one of the others is, all are.
var toolLists = []string{
	"includeTools", "enabled_tools", "enabledTools", "tools", "excludeTools", "disabled_tools", "disabledTools", "available_tools",
}

// limited returns why a server stays whose tools the client limits, or "". Behind junctor all of them
// would be offered.
func limited(raw json.RawMessage) string {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members) // it is an object, which was read before
	for i, name := range toolLists {
		var list []string
		err := json.Unmarshal(members[name], &list)
		if v := members[name]; v == nil || string(v) == "null" || i > 3 && err == nil && len(list) == 0 ||
			name == "tools" && (err != nil || slices.Contains(list, "*")) { // Codex has a table of that name
			continue
		}
		return "it limits its tools with " + name + ", which junctor would not keep; add it by hand with junctor mcp add --quarantine, " +
			"and approve the tools that agents may use with junctor mcp approve"
	}
	return ""
}

// readCommon reads the form that most clients share: command, args, env, cwd; url and headers.
func readCommon(raw json.RawMessage) (Server, string) {
	var in struct {
		Type, Transport, Command, URL, HTTPURL, ServerURL, Cwd string
		Args                                                   []string
		Env, Headers                                           map[string]string
		HTTPHeaders                                            map[string]string `json:"http_headers"`
		EnvHTTPHeaders                                         map[string]string `json:"env_http_headers"`
		BearerTokenEnvVar                                      string            `json:"bearer_token_env_var"`
		EnvVars                                                []json.RawMessage `json:"env_vars"`
		Source, EnvFile, HeadersHelper, AuthProviderType       string
		OAuth, Auth                                            json.RawMessage
		Disabled                                               bool
		Enabled                                                *bool
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Server{}, unknownForm
	}
	s := Server{Command: in.Command, Args: in.Args, Env: in.Env, Dir: in.Cwd, Headers: in.Headers}
	for _, url := range []string{in.URL, in.HTTPURL, in.ServerURL} {
		s.URL = cmp.Or(s.URL, url)
	}
	if s.Headers == nil {
		s.Headers = in.HTTPHeaders
	}
	switch {
	case in.Disabled || in.Enabled != nil && !*in.Enabled:
		return s, "it is disabled"
	case in.Type == "sse" || in.Transport == "sse":
		return s, "its transport is sse"
	case in.Source == "extension":
		return s, ofClient
	case in.BearerTokenEnvVar != "" || len(in.EnvHTTPHeaders) > 0 || len(in.EnvVars) > 0:
		return s, "its credential is a variable of the client's environment"
	case in.EnvFile != "":
		return s, "its variables are in the file " + in.EnvFile
	case in.HeadersHelper != "":
		return s, "its headers come from a program that the client runs"
	case logsIn(in.OAuth) || logsIn(in.Auth) || in.AuthProviderType != "":
		return s, heldLogin
	}
	return s, ""
}

// logsIn reports whether the settings of a login are present and not turned off.
func logsIn(settings json.RawMessage) bool {
	var in struct{ Enabled *bool }
	switch string(settings) {
	case "", "null", "false":
		return false
	}
	return json.Unmarshal(settings, &in) != nil || in.Enabled == nil || *in.Enabled
}

// readOpenCode reads the form of OpenCode: the command is one list, and the variables are called
// environment.
func readOpenCode(raw json.RawMessage) (Server, string) {
	var in struct {
		Type, URL            string
		Command              []string
		Environment, Headers map[string]string
		Enabled              *bool
		OAuth                json.RawMessage
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Server{}, unknownForm
	}
	s := Server{URL: in.URL, Env: in.Environment, Headers: in.Headers}
	if len(in.Command) > 0 {
		s.Command, s.Args = in.Command[0], in.Command[1:]
	}
	switch {
	case in.Enabled != nil && !*in.Enabled:
		return s, "it is disabled"
	case logsIn(in.OAuth):
		return s, heldLogin
	}
	return s, ""
}
