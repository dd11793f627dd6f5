// Package elizafile reads and writes the two files in which an elizaOS agent
// keeps its capability endpoints: config.env, which holds the tokens, and
// eliza.json, which holds none. For us they are forms of import and export
// only; what we remember is in SQL, tokens in the secret store.
//
// Whatever else stands in the files is the agent's: it is kept as it is, line by
// line and member by member. What is ours but cannot be read is an error that
// names the place, because the original takes such a restriction for absent.
package elizafile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// MaxFile bounds each of the two files, in bytes.
const MaxFile = 4 << 20

// Places are the paths of the two files; either file may be missing.
type Places struct{ Env, Config string }

// In are the places of a state directory.
func In(dir string) Places {
	return Places{Env: filepath.Join(dir, "config.env"), Config: filepath.Join(dir, "eliza.json")}
}

// Find are the places that an agent with this environment uses:
// ELIZA_STATE_DIR, else the hidden directory of ELIZA_NAMESPACE in the home of
// the user; ELIZA_CONFIG_PATH is the path of eliza.json when it is set.
func Find(getenv func(string) string) (Places, error) {
	dir := strings.TrimSpace(getenv("ELIZA_STATE_DIR"))
	namespace := strings.TrimSpace(getenv("ELIZA_NAMESPACE"))
	if namespace == "" {
		namespace = "eliza"
	}
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

// Files are both files, read.
type Files struct {
	Env    *Env
	Config *Config
	places Places
	absent bool
}

// Read reads both. A missing one is an empty one; see Absent.
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

// ReadConfig reads eliza.json, or what it is called, alone. A missing one is empty.
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

// Absent reports that neither file was there.
func (f *Files) Absent() bool { return f.absent }

// Vars are the ELIZA_ variables that an agent would have after reading both:
// those of eliza.json, then those of config.env over them.
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

// prefix is what the names of all variables that we read begin with.
const prefix = "ELIZA_"

// Write puts both files in their place with mode 0600: config.env first, after a
// copy of the old one to config.env.bak. Each is replaced by one rename, so that
// no reader ever sees half of it.
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

// replace writes by rename. A temporary file has mode 0600 from the beginning,
// and is on disk before it takes the place of the old one.
func replace(path string, data []byte) error {
	if len(data) > MaxFile {
		return capability.Errorf(capability.CodeTooLarge, "", "%s would be larger than %d bytes", path, MaxFile)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*.tmp")
	if err != nil {
		return unwritable(path, err)
	}
	defer os.Remove(tmp.Name()) // gone already when the rename has happened
	_, err = tmp.Write(data)
	if err := errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return unwritable(path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return unwritable(path, err)
	}
	return nil
}

func unwritable(path string, err error) error {
	return capability.Wrap(capability.CodeFailed, "", fmt.Sprintf("%s cannot be written", path), err)
}
