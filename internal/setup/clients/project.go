package clients

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// OfProjects returns the servers that are defined for single projects, which always stay: those that
// the user's file has for each project, and those in the files of the project in folder, unless it is
// empty. now is the content of the user's file. Files that cannot be read are left out, as are servers
// beyond 256.
func (c Client) OfProjects(now Config, file, folder string) (all []Found) {
	add := func(servers map[string]json.RawMessage, where string) {
		for _, name := range slices.Sorted(maps.Keys(servers)) {
			if name == EntryName || len(all) == maxServers {
				continue
			}
			server, _ := c.read(servers[name])
			server.Name = name
			all = append(all, Found{server, "it is defined by project, in " + where})
		}
	}
	if c.nested != "" {
		var doc map[string]json.RawMessage
		var projects map[string]json.RawMessage
		if json.Unmarshal(overlay.Plain(now.Text), &doc) == nil && json.Unmarshal(doc[c.nested], &projects) == nil {
			for _, dir := range slices.Sorted(maps.Keys(projects)) {
				if servers, err := c.servers(projects[dir]); err == nil {
					add(servers, dir)
				}
			}
		}
	}
	if folder == "" {
		return all
	}
	for _, name := range c.project {
		own := filepath.Join(folder, filepath.FromSlash(name))
		if sameFile(own, file) { // the folder is the user's home
			continue
		}
		if text, err := hostfs.ReadRegular(own, maxFileBytes); err == nil {
			if servers, err := c.servers(text); err == nil {
				add(servers, own)
			}
		}
	}
	return all
}

// sameFile reports whether two paths lead to one file.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
