package idp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// notes is an MCP server whose authorization server is the provider. Its tool whoami answers with the
// subject of the token, which userinfo names.
type notes struct {
	*httptest.Server
	idp *Provider

	mu       sync.Mutex
	sessions map[string]string // subjects by session id
	calls    []noteCall
	faults   []string // requests of a session with the token of another subject
}

// noteCall is one call of a tool.
type noteCall struct{ Subject, Token, Session string }

func newNotes(t *testing.T, idp *Provider) *notes {
	t.Helper()
	n := &notes{idp: idp, sessions: make(map[string]string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{
			"resource": n.URL + "/mcp", "authorization_servers": []string{idp.Issuer},
			"scopes_supported": []string{"openid", "profile"}, "bearer_methods_supported": []string{"header"},
		})
	})
	mux.HandleFunc("/mcp", n.serve)
	n.Server = httptest.NewServer(mux)
	t.Cleanup(n.Close)
	return n
}

// Calls returns the calls of tools until now.
func (n *notes) Calls() []noteCall {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// Faults returns the requests that had the token of another subject than their session.
func (n *notes) Faults() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.faults)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have gone
}

// subject asks the provider whose token this is.
func (n *notes) subject(ctx context.Context, token string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.idp.Issuer+"/userinfo", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var info struct{ Sub string }
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("userinfo: status %d", resp.StatusCode)
	}
	if err = json.NewDecoder(resp.Body).Decode(&info); err == nil && info.Sub == "" {
		err = errors.New("userinfo: no subject")
	}
	return info.Sub, err
}

// serve implements the streamable HTTP transport without streams.
func (n *notes) serve(w http.ResponseWriter, r *http.Request) {
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	subject, err := n.subject(r.Context(), token)
	if err != nil {
		challenge := fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", scope="openid profile"`, n.URL)
		if given {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	session := r.Header.Get("Mcp-Session-Id")
	n.mu.Lock()
	defer n.mu.Unlock()
	owner, open := n.sessions[session]
	if open && owner != subject {
		n.faults = append(n.faults, fmt.Sprintf("%s of the session of %s with the token of %s", r.Method, owner, subject))
	}
	switch {
	case session != "" && !open:
		w.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodDelete:
		delete(n.sessions, session)
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := map[string]any{"jsonrpc": "2.0", "id": m.ID}
	switch {
	case m.Method == "initialize":
		session = rand.Text()
		n.sessions[session] = subject
		w.Header().Set("Mcp-Session-Id", session)
		out["result"] = map[string]any{
			"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "notes", "version": "1"},
		}
	case m.Method == "ping":
		out["result"] = map[string]any{}
	case m.Method == "tools/list" && open:
		out["result"] = map[string]any{"tools": []any{map[string]any{
			"name": "whoami", "description": "The subject of the token.", "inputSchema": map[string]any{"type": "object"},
			"annotations": map[string]any{"readOnlyHint": true},
		}}}
	case m.Method == "tools/call" && open:
		n.calls = append(n.calls, noteCall{subject, token, session})
		out["result"] = map[string]any{"content": []any{map[string]any{"type": "text", "text": "you are " + subject}}}
	default:
		out["error"] = map[string]any{"code": -32601, "message": "method not found"}
	}
	reply(w, out)
}
