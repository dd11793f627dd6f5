package config

import (
	"strings"

	"github.com/junctor-run/junctor/internal/config/elizafile"
)

// withElizaFiles returns environ with the variables of an elizaOS agent's own files, which
// apply where the environment has no value or a blank one. It reads the files only if
// ELIZA_STATE_DIR or ELIZA_CONFIG_PATH is set, so that endpoints are not connected without a
// user's request. Values that cannot be parsed are an error.
func withElizaFiles(environ []string) ([]string, error) {
	vars := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		vars[name] = value
	}
	dir, path := strings.TrimSpace(vars["ELIZA_STATE_DIR"]), strings.TrimSpace(vars["ELIZA_CONFIG_PATH"])
	if dir == "" && path == "" {
		return environ, nil
	}
	places := elizafile.Places{Config: path}
	if dir != "" {
		places = elizafile.In(dir)
	}
	if path != "" {
		places.Config = path
	}
	files, err := elizafile.Read(places)
	if err != nil {
		return nil, err
	}
	said, err := files.Vars()
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(environ)+len(said))
	for name, value := range said {
		if strings.TrimSpace(vars[name]) == "" { // blank counts as unset
			out = append(out, name+"="+value)
			delete(vars, name)
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if _, kept := vars[name]; kept {
			out = append(out, kv)
		}
	}
	return out, nil
}
