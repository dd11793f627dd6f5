package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// attention is the answer of GET /api/v1/attention: how much waits for a person.
type attention struct {
	Approvals   int      `json:"approvals"`   // calls that wait, and questions of programs
	Questions   int      `json:"questions"`   // of the caller's tasks
	Definitions int      `json:"definitions"` // new or changed, of MCP servers
	Down        []string `json:"down"`        // MCP servers that cannot be reached
	Total       int      `json:"total"`       // without Down; all definitions of a server count once
	// More reports that there are more approvals or tasks than one page has.
	More bool `json:"more"`
}

// showAttention answers with counts that are cheap to fetch again: with the ETag of an earlier answer,
// nothing is sent while nothing has changed.
func (s *Service) showAttention(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var approvals struct {
		Approvals []struct{} `json:"approvals"`
		Next      string     `json:"next"`
	}
	var tasks struct {
		Tasks []struct {
			State string `json:"state"`
		} `json:"tasks"`
		Next string `json:"next_cursor"`
	}
	var upstreams struct {
		Upstreams []struct {
			Name     string `json:"name"`
			State    string `json:"state"`
			Failed   bool   `json:"failed"`
			Disabled bool   `json:"disabled"`
			Counts   struct {
				Held        int `json:"held"`
				Quarantined int `json:"quarantined"`
			} `json:"counts"`
		} `json:"upstreams"`
	}
	for path, into := range map[string]any{
		"/api/v1/approvals?state=pending": &approvals, "/api/v1/tasks?limit=100": &tasks, "/api/v1/upstreams": &upstreams,
	} {
		if got := s.ask(r, who, http.MethodGet, path, nil); got.code != http.StatusOK || json.Unmarshal(got.body.Bytes(), into) != nil {
			return capability.Errorf(capability.CodeUnavailable, "console.attention", "%s cannot be read", path)
		}
	}
	out := attention{Approvals: len(approvals.Approvals), Down: []string{}, More: approvals.Next != "" || tasks.Next != ""}
	for _, t := range tasks.Tasks {
		if t.State == "input_required" {
			out.Questions++
		}
	}
	for _, u := range upstreams.Upstreams {
		if n := u.Counts.Held + u.Counts.Quarantined; n > 0 {
			out.Definitions += n
			out.Total++ // a server is one thing to review
		}
		if !u.Disabled && (u.Failed || u.State != "ready") {
			out.Down = append(out.Down, u.Name)
		}
	}
	out.Total += out.Approvals + out.Questions
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return httpapi.Answer(w, json.RawMessage(body), nil)
}
