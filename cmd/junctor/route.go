package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/protocol/router"
)

// routeCommand returns the command that calls a module's HTTP route through the server.
func (a *app) routeCommand() *cobra.Command {
	var query, headers []string
	c := &cobra.Command{
		Use:   "route ID METHOD PATH [BODY|-]",
		Short: "Call an HTTP route of a module, or its app bridge",
		Long: `Call an HTTP route of a module, as a browser would under /api/modules/ID/PATH. Where
no declared route fits, the module's app bridge is asked. BODY is a JSON value, or -
to read one from standard input. A status of 400 and more ends with exit status 1.`,
		Example: `  junctor modules route field-notes GET /notes --query q=rope
  junctor modules route field-notes POST /notes '{"text":"buy rope"}'`,
		Args: cobra.RangeArgs(3, 4),
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := a.routeRequest(cmd, args, query, headers)
			if err != nil {
				return err
			}
			hc := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			resp, err := hc.Do(req)
			if err != nil {
				if cmd.Context().Err() != nil {
					return capability.Wrap(capability.CodeCancelled, "client", "interrupted", err)
				}
				return capability.Wrap(capability.CodeUnavailable, "client", "no server answers at "+req.URL.Scheme+"://"+req.URL.Host, err).
					With("service_unavailable", "start one with: junctor serve, or name another one with --server")
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(io.LimitReader(resp.Body, maxRouteAnswer+1))
			switch {
			case err != nil:
				return capability.Wrap(capability.CodeUnavailable, "client", "the answer broke off", err)
			case len(body) > maxRouteAnswer:
				return capability.Errorf(capability.CodeTooLarge, "client", "the answer is larger than %d bytes", maxRouteAnswer)
			}
			return a.printRoute(resp, body)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&query, "query", nil, "`KEY=VALUE` part of the query (repeatable)")
	f.StringArrayVar(&headers, "header", nil, "`NAME=VALUE` header to send (repeatable)")
	return c
}

// routeRequest returns the request for a module's route. It fails with invalid_input for an
// unsupported method or a malformed path, query or header.
func (a *app) routeRequest(cmd *cobra.Command, args, query, headers []string) (*http.Request, error) {
	method, path := strings.ToUpper(args[1]), args[2]
	if verbs := []string{"GET", "POST", "PUT", "PATCH", "DELETE"}; !slices.Contains(verbs, method) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "%q is not a method of a route; use %s", args[1],
			strings.Join(verbs, ", "))
	}
	if !strings.HasPrefix(path, "/") || strings.ContainsAny(path, "?#") {
		return nil, capability.Errorf(capability.CodeInvalidInput, "", "PATH must begin with / and hold no query; give that with --query")
	}
	var body io.Reader
	if len(args) == 4 {
		input, err := a.jsonInput("BODY", args[3])
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(input)
	}
	base, token, err := a.connection()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{URL: base, Token: token})
	if err != nil {
		return nil, err
	}
	values := make(url.Values)
	for _, kv := range query {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "--query %q is not key=value", kv)
		}
		values.Add(name, value)
	}
	target := c.URL() + "/api/modules/" + url.PathEscape(args[0]) + (&url.URL{Path: path}).EscapedPath()
	if len(values) > 0 {
		target += "?" + values.Encode()
	}
	req, err := http.NewRequestWithContext(cmd.Context(), method, target, body)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "client", "the request cannot be made", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, kv := range headers {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || router.CheckHeader(name, value) != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "", "--header %q is not name=value of an HTTP header", kv)
		}
		req.Header.Add(name, value)
	}
	req.Header.Set("User-Agent", "junctor-cli")
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	return req, nil
}

// printRoute prints a module's answer. An answer without the mark of modules comes from the server
// itself and is returned as an error.
func (a *app) printRoute(resp *http.Response, body []byte) error {
	if resp.Header.Get("Content-Security-Policy") == "" {
		var refused struct{ Error *capability.Error }
		if err := json.Unmarshal(body, &refused); err != nil || refused.Error == nil {
			return capability.Wrap(capability.CodeFailed, "client", "the server's answer is not what was expected; is it a junctor server?", err)
		}
		if refused.Error.Code == capability.CodeUnknownCapability {
			return refused.Error.With(refused.Error.Reason, "list the modules with: junctor modules list, and the routes of one with: junctor modules show ID")
		}
		return refused.Error
	}
	if a.json {
		headers := make(map[string]string)
		for name := range resp.Header {
			headers[strings.ToLower(name)] = strings.Join(resp.Header.Values(name), ", ")
		}
		out := map[string]any{"status": resp.StatusCode, "headers": headers, "body": nil}
		switch {
		case len(body) == 0:
		case json.Valid(body) && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/"):
			out["body"] = json.RawMessage(body)
		default:
			out["body"] = string(body)
		}
		data, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if err := a.printJSON(data); err != nil {
			return err
		}
	} else if len(body) > 0 {
		a.printf("%s\n", strings.TrimRight(terminalText(indentJSON(resp, body)), "\n"))
	}
	if resp.StatusCode >= http.StatusMultipleChoices && !a.json {
		a.warnf("the module answered with status %d %s", resp.StatusCode, plainText(resp.Header.Get("Location")))
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return exitStatus(capability.CodeFailed.Row().Exit)
	}
	return nil
}

func indentJSON(resp *http.Response, body []byte) string {
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/") {
		return string(body)
	}
	return indent(body)
}
