package console

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/config"
)

// dangerous describes a request that needs verification, or returns "". These are what creates
// rights or secrets, runs a program, answers for a person, or publishes the work of an agent. The
// verifier of the request's context finds dangerous calls and approvals, whatever path they came by.
func dangerous(r *http.Request, body []byte) string {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return ""
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/")
	if !ok {
		return publishes(r, body)
	}
	first, id, _ := strings.Cut(rest, "/")
	switch first {
	case "tokens", "grants", "secrets", "upstreams", "extensions", "clients", "imports", "channels":
		var req struct {
			DryRun bool `json:"dry_run"`
		}
		if r.Method == http.MethodDelete || (first == "clients" || first == "imports") && json.Unmarshal(body, &req) == nil && req.DryRun {
			return "" // takes rights away, or only shows what would change
		}
		return strings.ToLower(r.Method) + " " + text.Visible(rest)
	case "console":
		if r.URL.Path == passkeysPath {
			return "add a passkey"
		}
		if r.Method == http.MethodDelete && strings.HasPrefix(id, "passkeys/") {
			return "remove a passkey"
		}
	case "audit":
		if r.Method == http.MethodDelete {
			return "remove kept arguments"
		}
	case "nodes": // a call that is held for a node is made later
		if r.Method == http.MethodPost && strings.HasSuffix(id, "/calls") {
			return "call a function of " + text.Visible(strings.TrimSuffix(id, "/calls"))
		}
	case "policy":
		if id == "changes" {
			return "change the policy"
		}
	}
	return ""
}

// publishes describes a request to the APIs of task agents and endpoints that publishes, merges or discards
// work, answers for a person, or connects an endpoint, or returns "".
func publishes(r *http.Request, body []byte) string {
	rest := strings.TrimPrefix(r.URL.Path, "/api/")
	first, _, _ := strings.Cut(rest, "/")
	last := rest[strings.LastIndexByte(rest, '/')+1:]
	switch first {
	case "workspace":
		if r.Method == http.MethodDelete {
			return "discard " + text.Visible(rest)
		}
		if last == "push" || last == "pr" || last == "finalize" {
			return "publish the work in " + text.Visible(strings.TrimSuffix(rest, "/"+last))
		}
	case "issues":
		return strings.ToLower(r.Method) + " " + text.Visible(rest)
	case "capability-router":
		if last == "connect" {
			return "connect an endpoint"
		}
	case "coding-agents", "task-agents":
		if strings.Contains(rest, "/coordinator/confirm/") {
			return "answer for a person: " + text.Visible(rest)
		}
		if strings.HasSuffix(rest, "/scratch/delete") {
			return "discard " + text.Visible(strings.TrimSuffix(rest, "/delete"))
		}
		switch last {
		case "pr":
			return "publish the work of " + text.Visible(strings.TrimSuffix(rest, "/"+last))
		case "merge", "discard":
			return last + " the work of " + text.Visible(strings.TrimSuffix(rest, "/"+last))
		case "choose", "answer":
			return "answer for a person: " + text.Visible(rest)
		case "spawn", "threads":
			if startsShell(body) {
				return "run the text as shell commands"
			}
			return "start a coding agent"
		case "send", "comment", "control", "resume", "continue", "reopen":
			return "let a coding agent go on: " + text.Visible(rest)
		case "settings", "supervision":
			return "change what coding agents may do: " + last
		}
		if strings.Contains(rest, "/auth/") {
			return "change a sign-in of coding agents"
		}
	}
	return ""
}

// startsShell reports whether a request to start a task, or a part of it, names the program shell, which
// runs the text of the task.
func startsShell(body []byte) bool {
	type program struct {
		AgentType string // agentType: encoding/json ignores the case
	}
	var req struct {
		program
		Agents []program
	}
	if json.Unmarshal(body, &req) != nil {
		return false // the handler refuses it
	}
	shell := func(p program) bool {
		return config.SameName(p.AgentType, "shell") || config.SameName(p.AgentType, "bash")
	}
	return shell(req.program) || slices.ContainsFunc(req.Agents, shell)
}
