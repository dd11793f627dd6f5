package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// shownWork is the work of a thread that this user saw last.
type shownWork struct {
	Commit string    `json:"commit"`
	At     time.Time `json:"at"`
}

// shownFile returns the file of this user's home that holds what was shown, by thread. It is not in the
// user's cache, where the programs of agents may write.
func (a *app) shownFile() (string, error) {
	home, err := a.findHome()
	return filepath.Join(home, "run", "shown.json"), err
}

func (a *app) readShown() map[string]shownWork {
	out := make(map[string]shownWork)
	path, err := a.shownFile()
	if err != nil {
		return out
	}
	f, err := os.Open(path)
	if err != nil {
		return out
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxShownFile+1))
	if err != nil || len(data) > maxShownFile || json.Unmarshal(data, &out) != nil || out == nil {
		return make(map[string]shownWork)
	}
	return out
}

// lastShown returns the commit of a thread's work that was shown last, or "".
func (a *app) lastShown(thread string) string { return a.readShown()[thread].Commit }

// keepShown stores that all work of a thread was shown. If it cannot be stored, merge shows the work
// once more.
func (a *app) keepShown(thread, commit string) {
	path, err := a.shownFile()
	if err != nil || commit == "" {
		return
	}
	all := a.readShown()
	all[thread] = shownWork{commit, time.Now().UTC()}
	for len(all) > maxShown {
		oldest := thread
		for id, one := range all {
			if one.At.Before(all[oldest].At) {
				oldest = id
			}
		}
		delete(all, oldest)
	}
	data, err := json.Marshal(all)
	if err == nil && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		_ = hostfs.WriteFile(path, data)
	}
}
