// Package fakeregistry is an MCP registry that serves the read API v0.1 over HTTP.
package fakeregistry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
)

// Entry is one version of a server. Server is its server.json.
type Entry struct {
	Name, Version, Status string
	Server                string
}

// Registry is a running registry. Entries of one name are ordered, the latest last.
type Registry struct {
	URL     string
	Entries []Entry
	// Answer replaces the answer to a path and query if it returns true.
	Answer func(w http.ResponseWriter, r *http.Request) bool
}

// Start serves entries until the test ends.
func Start(t testing.TB, entries ...Entry) *Registry {
	t.Helper()
	reg := &Registry{Entries: entries}
	server := httptest.NewServer(reg)
	t.Cleanup(server.Close)
	reg.URL = server.URL
	return reg
}

// Remote returns the server.json of a remote, whose headers are JSON.
func Remote(name, version, url, headers string) Entry {
	return Entry{Name: name, Version: version, Server: fmt.Sprintf(
		`{"name":%q,"version":%q,"description":"a remote","remotes":[{"type":"streamable-http","url":%q,"headers":[%s]}]}`,
		name, version, url, headers)}
}

// Package returns the server.json with one package, whose further members are JSON.
func Package(name, version, kind, identifier, further string) Entry {
	if further != "" {
		further = "," + further
	}
	return Entry{Name: name, Version: version, Server: fmt.Sprintf(
		`{"name":%q,"version":%q,"description":"a package","packages":[{"registryType":%q,"identifier":%q,"version":%q,"transport":{"type":"stdio"}%s}]}`,
		name, version, kind, identifier, version, further)}
}

// ServeHTTP implements http.Handler.
func (reg *Registry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if reg.Answer != nil && reg.Answer(w, r) {
		return
	}
	if r.URL.Path == "/v0.1/servers" {
		reg.list(w, r)
		return
	}
	// The name is one segment, with its slash encoded.
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/v0.1/servers/"), "/")
	if len(parts) != 3 || parts[1] != "versions" {
		http.NotFound(w, r)
		return
	}
	name := strings.ReplaceAll(parts[0], "%2F", "/")
	for i := len(reg.Entries) - 1; i >= 0; i-- {
		if e := reg.Entries[i]; e.Name == name && (parts[2] == "latest" || parts[2] == e.Version) {
			fmt.Fprint(w, e.item())
			return
		}
	}
	http.NotFound(w, r)
}

func (e Entry) item() string {
	status := e.Status
	if status == "" {
		status = "active"
	}
	return fmt.Sprintf(`{"server":%s,"_meta":{"io.modelcontextprotocol.registry/official":{"status":%q}}}`, e.Server, status)
}

func (reg *Registry) list(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	servers, cursor := []json.RawMessage{}, ""
	for i := from; i < len(reg.Entries); i++ {
		if len(servers) == limit {
			cursor = strconv.Itoa(i)
			break
		}
		if strings.Contains(reg.Entries[i].Name, r.URL.Query().Get("search")) {
			servers = append(servers, json.RawMessage(reg.Entries[i].item()))
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"servers": servers, "metadata": map[string]any{"nextCursor": cursor, "count": len(servers)}})
}
