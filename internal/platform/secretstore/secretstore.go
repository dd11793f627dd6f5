// Package secretstore stores each named secret in its own file, readable only by the
// server's account, and reads secrets from files that are maintained elsewhere.
// Configuration, extensions and upstreams refer to a secret by its name, so that
// configuration files do not contain secrets. Values leave this package only as
// secret.Value, which prints as dots.
package secretstore

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/secret"
)

var nameGrammar = regexp.MustCompile(`^[A-Za-z0-9._-]{1,120}$`)

// Store is a directory of secrets. It is safe for concurrent use, even by several
// processes, because every change is one rename.
type Store struct {
	dir     *os.Root
	further Further

	mu     sync.Mutex
	values map[string]cached // of further.Vault, by link
}

// Further names where secrets are besides the directory.
type Further struct {
	// Dir is a folder whose files Get reads as [ReadFile] does if the directory has no secret of the
	// name. They are neither changed nor listed. "": none.
	Dir   string
	Vault Vault
}

// Info describes a secret without its value.
type Info struct {
	Name    string    `json:"name"`
	Link    string    `json:"link,omitempty"` // where the value is; "": here
	Updated time.Time `json:"updated"`
}

// Open opens dir, or creates it with mode 0700. Other users' rights to an existing one are
// removed. The caller must close the result.
func Open(dir string, further Further) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, wrap("secrets.open", "the secrets directory cannot be created", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, wrap("secrets.open", "the secrets directory cannot be opened", err)
	}
	if info, err := root.Stat("."); err != nil || info.Mode().Perm()&0o077 != 0 {
		if err := root.Chmod(".", 0o700); err != nil {
			_ = root.Close()
			return nil, wrap("secrets.open", "the secrets directory is open to other users and cannot be closed to them", err)
		}
	}
	return &Store{dir: root, further: further}, nil
}

// Close releases the directory.
func (s *Store) Close() error { return s.dir.Close() }

// Set stores a secret under a name of 1 to 120 letters, digits, dots, underscores and hyphens,
// and replaces an earlier value. Errors: invalid_input for a malformed name or an empty
// value; too_large beyond [MaxValue].
func (s *Store) Set(name string, value secret.Value) error {
	if err := checkName("secrets.set", name); err != nil {
		return err
	}
	text := value.Reveal()
	switch {
	case text == "":
		return capability.Errorf(capability.CodeInvalidInput, "secrets.set", "the value of secret %s is empty", name).
			With("empty_secret", "remove the secret instead")
	case len(text) > MaxValue:
		return capability.Errorf(capability.CodeTooLarge, "secrets.set", "the value of secret %s is larger than %d bytes", name, MaxValue)
	}
	if err := s.replace(name, text); err != nil {
		return wrap("secrets.set", "the secret "+name+" cannot be stored", err)
	}
	if err := s.dir.Remove(linkMark + name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wrap("secrets.set", "the link of the secret "+name+" cannot be removed", err)
	}
	return nil
}

// replace writes a secret to a temporary file and renames it.
func (s *Store) replace(name, text string) (err error) {
	temp := ids.Hex("~", 8) // no secret can have such a name
	file, err := s.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = s.dir.Rename(temp, name)
	}
	if err != nil {
		_ = s.dir.Remove(temp)
		return err
	}
	if dir, err := s.dir.Open("."); err == nil { // makes the name durable if the system supports it
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// Get returns a secret. Errors: not_found if the name does not exist or its link has no value;
// unavailable if the service with the value does not answer.
func (s *Store) Get(name string) (secret.Value, error) {
	if err := checkName("secrets.get", name); err != nil {
		return secret.Value{}, err
	}
	if to := s.link(name); to != "" {
		return s.follow(name, to)
	}
	file, err := s.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) && s.further.Dir != "" {
		value, _, further := ReadFile(filepath.Join(s.further.Dir, name))
		if capability.CodeOf(further) != capability.CodeNotFound {
			return value, further
		}
	}
	if err != nil {
		return secret.Value{}, missing("secrets.get", name, err)
	}
	defer file.Close()
	return read("secrets.get", "the secret "+name, file)
}

// List returns the names with the times of their last change, ordered by name.
func (s *Store) List() ([]Info, error) {
	dir, err := s.dir.Open(".")
	if err != nil {
		return nil, wrap("secrets.list", "the secrets directory cannot be read", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, wrap("secrets.list", "the secrets directory cannot be read", err)
	}
	all := []Info{}
	for _, e := range entries {
		info, err := e.Info()
		name, linked := strings.CutPrefix(e.Name(), linkMark)
		if err != nil || !info.Mode().IsRegular() || !nameGrammar.MatchString(name) {
			continue // removed meanwhile, or not a secret
		}
		one := Info{Name: name, Updated: info.ModTime().UTC()}
		if linked {
			one.Link = s.link(name)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// Remove deletes a secret. The error is not_found if the name does not exist.
func (s *Store) Remove(name string) error {
	if err := checkName("secrets.remove", name); err != nil {
		return err
	}
	// Both are there if an earlier Link was interrupted. The value goes first, so that it does not
	// become valid again.
	err := s.dir.Remove(name)
	if linked := s.dir.Remove(linkMark + name); errors.Is(err, fs.ErrNotExist) || linked != nil && !errors.Is(linked, fs.ErrNotExist) {
		err = linked
	}
	if err != nil {
		return missing("secrets.remove", name, err)
	}
	return nil
}

// Look returns a secret as [Store.Get] does, and changes nothing: dir need not exist.
func Look(dir string, further Further, name string) (secret.Value, error) {
	if err := checkName("secrets.get", name); err != nil {
		return secret.Value{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		if further.Dir != "" {
			value, _, err := ReadFile(filepath.Join(further.Dir, name))
			return value, err
		}
		return secret.Value{}, missing("secrets.get", name, err)
	}
	defer root.Close()
	return (&Store{dir: root, further: further}).Get(name)
}

// Check returns the error of Look, with a hint if a link is why. What is linked to the environment is
// not looked at, because the server has one of its own.
func Check(dir string, further Further, name string) error {
	_, err := Look(dir, further, name)
	if err == nil {
		return nil
	}
	e := *capability.AsError(err)
	switch link, linked := e.Details["link"].(string); {
	case strings.HasPrefix(link, "env:"):
		return nil
	case !linked:
		e.Hint = ""
	}
	return &e
}

// ReadFile reads a secret, such as a token, from a file that is maintained outside of the
// store; one trailing line end is dropped. A non-empty warning reports to the operator that
// other users can read the file; the value is valid.
func ReadFile(path string) (value secret.Value, warning string, err error) {
	const op = "secrets.read"
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return secret.Value{}, "", capability.Errorf(capability.CodeInvalidInput, op, "the secret file is not a regular file")
	}
	file, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return secret.Value{}, "", capability.Wrap(capability.CodeNotFound, op, "the secret file does not exist", err)
	case err != nil:
		return secret.Value{}, "", wrap(op, "the secret file cannot be read", err)
	}
	defer file.Close()
	value, err = read(op, "the secret file", file)
	if err != nil {
		return secret.Value{}, "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(value.Reveal(), "\n"), "\r")
	if text == "" {
		return secret.Value{}, "", capability.Errorf(capability.CodeInvalidInput, op, "the secret file is empty")
	}
	if info.Mode().Perm()&0o077 != 0 {
		warning = "the secret file can be read or changed by other users: give it mode 0600"
	}
	return secret.New(text), warning, nil
}

func read(op, what string, file *os.File) (secret.Value, error) {
	data, err := io.ReadAll(io.LimitReader(file, MaxValue+1))
	if err != nil {
		return secret.Value{}, wrap(op, what+" cannot be read", err)
	}
	if len(data) > MaxValue {
		return secret.Value{}, capability.Errorf(capability.CodeTooLarge, op, "%s is larger than %d bytes", what, MaxValue)
	}
	return secret.New(string(data)), nil
}

func checkName(op, name string) error {
	if !nameGrammar.MatchString(name) || name == "." || name == ".." {
		return capability.Errorf(capability.CodeInvalidInput, op, "the name of a secret must be 1 to 120 letters, digits, dots, underscores or hyphens").
			With("invalid_name", "choose another name")
	}
	return nil
}

// ReasonUnknown is the reason of the error not_found for a secret that does not exist. One whose link leads to no
// value exists.
const ReasonUnknown = "unknown_secret"

func missing(op, name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return capability.Wrap(capability.CodeNotFound, op, "there is no secret "+name, err).
			With(ReasonUnknown, "see the names with: junctor secrets list")
	}
	return wrap(op, "the secret "+name+" cannot be reached", err)
}

func wrap(op, message string, err error) error {
	return capability.Wrap(capability.CodeFailed, op, message, err)
}
