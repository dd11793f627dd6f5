package reference

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

type routeParams struct {
	Method string                     `json:"method"`
	Path   string                     `json:"path"`
	Body   json.RawMessage            `json:"body"`
	Query  map[string]json.RawMessage `json:"query"`
}

// one returns the first value of a query parameter.
func (p routeParams) one(name string) string {
	var s string
	if jsonx.Unmarshal(p.Query[name], &s) == nil {
		return s
	}
	var list []string
	if jsonx.Unmarshal(p.Query[name], &list) == nil && len(list) > 0 {
		return list[0]
	}
	return ""
}

func status(code int, body any) (any, error) {
	return object{"status": code, "headers": map[string]string{"cache-control": "no-store"}, "body": body}, nil
}

func problem(code int, message string) (any, error) { return status(code, object{"error": message}) }

// route is the module's small HTTP server: failures of a request are statuses,
// not errors of the call.
func (n *notes) route(_ context.Context, p routeParams) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, one := strings.CutPrefix(p.Path, "/notes/")
	switch {
	case p.Path == "/notes" && p.Method == "GET":
		return n.routeList(p)
	case p.Path == "/notes" && p.Method == "POST":
		return n.routeAdd(p)
	case one && !strings.Contains(id, "/"):
		return n.routeOne(p.Method, id)
	case p.Path == "/notes":
		return notAllowed("GET, POST")
	}
	return problem(404, "nothing is served at "+p.Path)
}

func notAllowed(allow string) (any, error) {
	return object{"status": 405, "headers": map[string]string{"allow": allow}, "body": object{"error": "use " + allow}}, nil
}

func (n *notes) routeList(p routeParams) (any, error) {
	limit := 20
	if text := p.one("limit"); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > 100 {
			return problem(400, "limit must be a number from 1 to 100")
		}
		limit = v
	}
	found := n.newest(len(n.list))
	if q := strings.ToLower(p.one("q")); q != "" {
		found = slices.DeleteFunc(found, func(x note) bool { return !strings.Contains(strings.ToLower(x.Text), q) })
	}
	total := len(found)
	return status(200, object{"notes": found[:min(limit, total)], "total": total})
}

func (n *notes) routeAdd(p routeParams) (any, error) {
	var body struct {
		Text string   `json:"text"`
		Tags []string `json:"tags"`
	}
	if len(p.Body) == 0 || jsonx.Unmarshal(p.Body, &body) != nil {
		return problem(400, `the body must be {"text", "tags"?}`)
	}
	added, err := n.add(body.Text, body.Tags)
	if err != nil {
		return problem(capability.CodeOf(err).Row().HTTP, capability.AsError(err).Message)
	}
	return object{"status": 201, "headers": map[string]string{"location": "/notes/" + added.ID}, "body": added}, nil
}

func (n *notes) routeOne(method, id string) (any, error) {
	at := slices.IndexFunc(n.list, func(x note) bool { return x.ID == id })
	switch {
	case method != "GET" && method != "DELETE":
		return notAllowed("GET, DELETE")
	case at < 0:
		return problem(404, "there is no note "+strconv.Quote(id))
	case method == "GET":
		return status(200, n.list[at])
	}
	n.list = slices.Delete(n.list, at, at+1)
	return object{"status": 204}, nil
}
