package clients

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// Recognize reads the servers of a file that may have the form of any client, with the reader of
// that client. Errors: too_large; invalid_input, reason client_config, if no form fits.
func Recognize(file string, text []byte) (Config, error) {
	bad := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "clients", format, args...).With("client_config",
			"give a file with the servers of an MCP client, such as {\"mcpServers\": {…}}")
	}
	if len(text) > maxFileBytes {
		return Config{}, capability.Errorf(capability.CodeTooLarge, "clients", "%s is larger than %d bytes", file, maxFileBytes)
	}
	format := JSON
	switch strings.ToLower(filepath.Ext(file)) {
	case ".toml":
		format = TOML
	case ".yaml", ".yml":
		format = YAML
	}
	fault := ""
	for _, c := range forms() {
		if c.Format != format {
			continue
		}
		out, err := c.parse(text)
		if err != nil {
			fault = err.Error()
			continue
		}
		nested := len(c.Keys) > 1 && slices.ContainsFunc(out.Servers, func(f Found) bool { return f.Stays == unknownForm })
		if (len(out.Servers) > 0 || out.Connected) && !nested { // a server may be called "servers"
			return out, nil
		}
	}
	if fault != "" {
		return Config{}, bad("%s cannot be used: %s", file, fault)
	}
	return Config{}, bad("%s has no MCP servers in a form that is known", file)
}

// forms returns one client for each form of a configuration. The second form of OpenCode comes
// before its first, of which it is a special case.
func forms() []Client {
	list := []Client{{Format: JSON, Keys: []string{"mcp", "servers"}, read: readOpenCode}}
	for _, c := range All() {
		if !slices.ContainsFunc(list, func(o Client) bool { return o.Format == c.Format && slices.Equal(o.Keys, c.Keys) }) {
			list = append(list, c)
		}
	}
	return list
}
