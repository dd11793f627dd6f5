package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

const childBase = "/api/coding-agents"

// child holds the session, port and token that a program started by the server has in its
// environment.
type child struct{ session, port, token string }

// child reads the environment. It fails with invalid_input, reason not_a_child, if a variable is
// missing.
func (a *app) child() (child, error) {
	c := child{a.env("PARALLAX_SESSION_ID"), a.env("ELIZA_HOOK_PORT"), a.env("ELIZA_HOOK_TOKEN")}
	if c.session == "" || c.port == "" || c.token == "" {
		return c, capability.Errorf(capability.CodeInvalidInput, "child",
			"this is for the programs that a server starts: PARALLAX_SESSION_ID, ELIZA_HOOK_PORT and ELIZA_HOOK_TOKEN are not all set").
			With("not_a_child", "a task agent's program calls it; for the state of a task use: junctor tasks show ID")
	}
	return c, nil
}

// ask sends a request to the server on this machine that started the calling program.
func (c child) ask(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	const op = "child"
	req, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:"+c.port+childBase+path, bytes.NewReader(body))
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, op, "ELIZA_HOOK_PORT is not a port", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Parallax-Hook-Token", c.token)
	req.Header.Set("X-Parallax-Session-Id", c.session)
	res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(req)
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, op, "the server that started this program cannot be reached", err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxChildBody))
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, op, "the server's answer broke off", err)
	}
	if res.StatusCode == http.StatusOK {
		return data, nil
	}
	var said struct{ Error, Code string }
	_ = json.Unmarshal(data, &said) // a malformed answer still has its status
	code := capability.CodeFailed
	switch res.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		code = capability.CodeNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		code = capability.CodeDenied
	case http.StatusServiceUnavailable:
		code = capability.CodeUnavailable
	}
	return nil, capability.Errorf(code, op, "%s (HTTP %d)", plainText(said.Error), res.StatusCode).With(said.Code, "")
}

// childCommand returns the command that agents' programs call.
func (a *app) childCommand() *cobra.Command {
	hook := &cobra.Command{
		Use: "hook FRAMEWORK [JSON]", Short: "Pass on a hook of an agent's program, and print the answer", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			reply, err := a.hook(cmd.Context(), args)
			if err != nil { // a failing hook must not break the program
				fmt.Fprintln(a.stderr, "junctor:", capability.AsError(err).Message)
				reply = json.RawMessage("{}")
				if failed := programs.Of(programs.Name(args[0])).FailedHook; failed != "" {
					reply = json.RawMessage(failed)
				}
			}
			a.printf("%s\n", reply)
			return nil
		},
	}
	decision := &cobra.Command{
		Use: "decision TEXT...", Short: "Tell a decision to the agents that work beside you", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(strings.Fields(strings.Join(args, " ")), " ")
			c, err := a.child()
			if err != nil {
				return err
			}
			body, err := json.Marshal(map[string]any{"event": "decision", "sessionId": c.session, "data": map[string]string{"text": text}})
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), childTimeout)
			defer cancel()
			if _, err := c.ask(ctx, http.MethodPost, "/hooks", body); err != nil {
				return err
			}
			a.printf("DECISION: %s\n", text)
			return nil
		},
	}
	about := &cobra.Command{
		Use: "context", Short: "Show your session, your folder and your task", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := a.bridge(cmd.Context(), "parent-context")
			if err != nil || a.json {
				return a.printRaw(raw, err)
			}
			out, err := decode[struct {
				SessionID    string `json:"session_id"`
				Label        string `json:"agent_label"`
				Workdir      string
				Repo         string
				OriginalTask string `json:"original_task"`
				Swarm        struct{ Siblings []any }
			}](raw)
			if err != nil {
				return err
			}
			variant := "scratch"
			switch {
			case len(out.Swarm.Siblings) > 0:
				variant = "swarm"
			case out.Repo != "":
				variant = "repo"
			}
			for _, line := range [][2]string{
				{"session", out.SessionID},
				{"label", out.Label},
				{"workdir", out.Workdir},
				{"repo", out.Repo},
				{"variant", variant},
				{"hook_url", "http://127.0.0.1:" + a.env("ELIZA_HOOK_PORT") + childBase + "/hooks"},
				{"task", strings.Join(strings.Fields(out.OriginalTask), " ")},
			} {
				if line[1] != "" {
					a.printf("%s=%s\n", line[0], plainText(line[1]))
				}
			}
			return nil
		},
	}
	parent := &cobra.Command{
		Use: "parent context|memory|peers [QUERY]", Short: "Show what the server knows about your task: context, memory or peers",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, known := map[string]string{"context": "parent-context", "memory": "memory", "peers": "active-workspaces"}[args[0]]
			if !known {
				return capability.Errorf(capability.CodeInvalidInput, "child", "%q is not something to ask for; use context, memory or peers", args[0])
			}
			if len(args) > 1 {
				path += "?q=" + url.QueryEscape(args[1])
			}
			return a.printRaw(a.bridge(cmd.Context(), path))
		},
	}
	return a.group("child", "Talk to the server from inside a task agent (people do not need it)", hook, about, decision, parent)
}

func (a *app) printRaw(raw json.RawMessage, err error) error {
	if err != nil {
		return err
	}
	a.printf("%s\n", bytes.TrimSpace(raw))
	return nil
}

// bridge requests information about the calling program's session.
func (a *app) bridge(ctx context.Context, path string) (json.RawMessage, error) {
	c, err := a.child()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	return c.ask(ctx, http.MethodGet, "/"+url.PathEscape(c.session)+"/"+path, nil)
}

// hook posts the body of a hook, from the second argument or standard input, and returns the reply.
func (a *app) hook(ctx context.Context, args []string) (json.RawMessage, error) {
	c, err := a.child()
	if err != nil {
		return nil, err
	}
	var body []byte
	if len(args) > 1 {
		body = []byte(args[1])
	} else if body, err = io.ReadAll(io.LimitReader(a.stdin, maxChildBody)); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, hookTimeout)
	defer cancel()
	reply, err := c.ask(ctx, http.MethodPost, "/hooks", body)
	return bytes.TrimSpace(reply), err
}
