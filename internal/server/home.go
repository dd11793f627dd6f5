package server

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Home is the directory one server owns.
type Home struct {
	Dir  string
	lock *os.File
}

// FindHome returns the home a command uses: dir, else JUNCTOR_HOME, else the
// XDG data directory, else ~/.local/share/junctor.
func FindHome(dir string) (string, error) {
	if dir == "" {
		dir = os.Getenv("JUNCTOR_HOME")
	}
	if dir == "" {
		if xdg := os.Getenv("XDG_DATA_HOME"); xdg != "" {
			dir = filepath.Join(xdg, "junctor")
		}
	}
	if dir == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", capability.Errorf(capability.CodeInvalidInput, "home", "no home directory is known; name one with --home")
		}
		dir = filepath.Join(user, ".local", "share", "junctor")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return "", capability.Errorf(capability.CodeInvalidInput, "home", "the home %s is not a directory", dir).With("",
			"name another one with --home")
	}
	return dir, nil
}

// OpenHome creates the folders of a home and acquires its lock. If another server has the lock, the
// error is a conflict that names the process.
func OpenHome(dir string) (*Home, error) {
	if err := hostfs.Supported(); err != nil {
		return nil, err
	}
	for _, d := range []string{"", "run", "state", "audit", "logs", "policy", "secrets", "blobs", "blobs/sha256", "cache"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, capability.Wrap(capability.CodeFailed, "home", "the home "+dir+" cannot be made", err).
				With("", "name a directory you may write to with --home")
		}
	}
	narrow(dir)
	f, err := os.OpenFile(filepath.Join(dir, "run", "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "home", "the lock of the home cannot be opened", err)
	}
	if err := hostfs.TryLock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, hostfs.ErrHeld) {
			return nil, capability.Wrap(capability.CodeFailed, "home", "the home "+dir+" cannot be locked", err).
				With("", "keep it on a disk of this machine")
		}
		pid, _ := os.ReadFile(f.Name())
		return nil, capability.Errorf(capability.CodeConflict, "home", "process %s serves this home already",
			orUnknown(strings.TrimSpace(string(pid)))).
			With("home_locked", "stop it, or use another --home")
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return &Home{Dir: dir, lock: f}, nil
}

// narrow removes other users' rights to an existing home folder, but not to files below it, which
// programs of extensions may have to read. A failure is ignored; the doctor reports it.
func narrow(dir string) {
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o077 != 0 {
		_ = os.Chmod(dir, 0o700)
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

// Path joins names below the home.
func (h *Home) Path(names ...string) string {
	return filepath.Join(append([]string{h.Dir}, names...)...)
}

// Close removes run/server.json and releases the lock.
func (h *Home) Close() error {
	_ = os.Remove(h.Path("run", "server.json"))
	_ = h.lock.Truncate(0)
	return h.lock.Close()
}

// key returns 32 random bytes stored in state/<name>, and creates them at first use.
func (h *Home) key(name string) ([]byte, error) {
	path := h.Path("state", name)
	data, err := os.ReadFile(path)
	if err == nil && len(data) == 32 {
		return data, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data = make([]byte, 32)
	_, _ = rand.Read(data)
	return data, hostfs.WriteFile(path, data)
}

// generationsPerStart is the number of generations reserved for one process: enough for a change every
// microsecond for an hour, and small enough that JSON numbers stay exact.
const generationsPerStart = 1 << 32

// generations returns the first catalog generation of this process, and durably reserves its range,
// so that no generation is used twice.
func (h *Home) generations() (from uint64, err error) {
	path := h.Path("state", "generation")
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	default:
		if from, err = strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return from, hostfs.WriteFile(path, fmt.Appendf(nil, "%d\n", from+generationsPerStart))
}

// ReadyLine is the line that serve prints and the content of run/server.json.
type ReadyLine struct {
	URL       string `json:"url"`
	PID       int    `json:"pid"`
	Home      string `json:"home"`
	TokenFile string `json:"token_file"`
	Version   string `json:"version"`
}

// StartCommand returns the command that starts a server on a home, from any directory.
func StartCommand(home string) string {
	if usual, err := FindHome(""); err == nil && usual == home {
		return "junctor serve"
	}
	return "junctor serve --home " + home
}

// ReadServer returns the content of run/server.json, which describes the running server of a home.
func ReadServer(home string) (ReadyLine, error) {
	var line ReadyLine
	data, err := os.ReadFile(filepath.Join(home, "run", "server.json"))
	if err != nil {
		return line, capability.Wrap(capability.CodeUnavailable, "client", "no server runs on the home "+home, err).
			With("service_unavailable", "start one with: "+StartCommand(home)+", or name one with --server")
	}
	if err := json.Unmarshal(data, &line); err != nil {
		return line, fmt.Errorf("run/server.json: %w", err)
	}
	return line, nil
}
