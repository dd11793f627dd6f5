// Package elizafile reads and writes the two files in which an elizaOS agent keeps its
// capability endpoints: config.env, which holds the tokens, and eliza.json, which does not.
// Junctor uses them only for import and export; it stores endpoints in its database and
// tokens in the secret store.
//
// All other content of the files belongs to the agent and is preserved, line by line and
// member by member. A value for junctor that cannot be parsed is an error with its position,
// because the original would ignore such a restriction.
package elizafile

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Places holds the paths of the two files; either file may be missing.
type Places struct{ Env, Config string }

// In returns the paths of the files in a state directory.
func In(dir string) Places {
	return Places{Env: filepath.Join(dir, "config.env"), Config: filepath.Join(dir, "eliza.json")}
}

// Find returns the paths that an agent with this environment uses: in ELIZA_STATE_DIR, else
// in the hidden directory of ELIZA_NAMESPACE in HOME. If set, ELIZA_CONFIG_PATH is the path
// of eliza.json. Error: invalid_input if the directory cannot be determined.
func Find(getenv func(string) string) (Places, error) {
	dir := strings.TrimSpace(getenv("ELIZA_STATE_DIR"))
	namespace := strings.TrimSpace(getenv("ELIZA_NAMESPACE"))
	namespace = cmp.Or(namespace, "eliza")
	if dir == "" {
		home := getenv("HOME")
		if home == "" || !filepath.IsLocal(namespace) {
			return Places{}, capability.Errorf(capability.CodeInvalidInput, "", "where the agent keeps its files is not known").
				With("", "name the directory, or set ELIZA_STATE_DIR")
		}
		dir = filepath.Join(home, "."+namespace)
	}
	p := In(dir)
	if path := strings.TrimSpace(getenv("ELIZA_CONFIG_PATH")); path != "" {
		p.Config = path
	}
	return p, nil
}

// Files holds the content of both files.
type Files struct {
	Env    *Env
	Config *Config
	places Places
	absent bool
}

// Read reads both files. A missing file counts as empty; see Absent.
func Read(p Places) (*Files, error) {
	env, noEnv, err := readFile(p.Env)
	if err != nil {
		return nil, err
	}
	doc, noDoc, err := readFile(p.Config)
	if err != nil {
		return nil, err
	}
	f := &Files{places: p, absent: noEnv && noDoc}
	f.Env = ParseEnv(env)
	if f.Config, err = ParseConfig(doc); err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s: %w", p.Config, err)
	}
	return f, nil
}

// ReadConfig reads only eliza.json, which may have another name. A missing file counts as
// empty.
func ReadConfig(path string) (*Config, error) {
	data, _, err := readFile(path)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(data)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s: %w", path, err)
	}
	return c, nil
}

// Absent reports whether neither file existed.
func (f *Files) Absent() bool { return f.absent }

// Vars returns the ELIZA_ variables that an agent would have after reading both files. Those
// of config.env override those of eliza.json. Error: invalid_input, with the file's path.
func (f *Files) Vars() (map[string]string, error) {
	out := make(map[string]string)
	err := f.Config.vars(func(name, value string) { out[name] = value })
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s: %w", f.places.Config, err)
	}
	for _, name := range f.Env.Names() {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		value, err := f.Env.Get(name)
		if err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "%s: %w", f.places.Env, err)
		}
		out[name] = value
	}
	return out, nil
}

// prefix begins the names of all variables that this package reads and writes.
const prefix = "ELIZA_"

// Write writes both files with mode 0600: first config.env, after copying the old one to
// config.env.bak, then eliza.json. Each is replaced by a rename, so that readers never see a
// partial file.
func (f *Files) Write() error {
	env, err := f.Env.Bytes()
	if err != nil {
		return err
	}
	doc, err := f.Config.Bytes()
	if err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(f.places.Env), filepath.Dir(f.places.Config)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return unwritable(dir, err)
		}
	}
	if old, missing, err := readFile(f.places.Env); err != nil {
		return err
	} else if !missing {
		if err := replace(f.places.Env+".bak", old); err != nil {
			return err
		}
	}
	if err := replace(f.places.Env, env); err != nil {
		return err
	}
	return replace(f.places.Config, doc)
}

// readFile reads a regular file of at most MaxFile bytes. A missing file is not an error.
// Errors: failed, invalid_input for a file of another type, too_large.
func readFile(path string) (data []byte, missing bool, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, capability.Wrap(capability.CodeFailed, "", path+" cannot be read", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false, capability.Wrap(capability.CodeInvalidInput, "", path+" is not a regular file", err)
	}
	data, err = io.ReadAll(io.LimitReader(file, MaxFile+1))
	if err != nil {
		return nil, false, capability.Wrap(capability.CodeFailed, "", path+" cannot be read", err)
	}
	if len(data) > MaxFile {
		return nil, false, capability.Errorf(capability.CodeTooLarge, "", "%s is larger than %d bytes", path, MaxFile)
	}
	return data, false, nil
}

// replace replaces the file at path.
func replace(path string, data []byte) error {
	if len(data) > MaxFile {
		return capability.Errorf(capability.CodeTooLarge, "", "%s would be larger than %d bytes", path, MaxFile)
	}
	if err := hostfs.WriteFile(path, data); err != nil {
		return unwritable(path, err)
	}
	return nil
}

func unwritable(path string, err error) error {
	return capability.Wrap(capability.CodeFailed, "", fmt.Sprintf("%s cannot be written", path), err)
}
