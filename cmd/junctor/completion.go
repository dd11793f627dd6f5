package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

// nameSource is a list of the server whose names complete the first argument of commands.
type nameSource struct {
	commands    string // paths below junctor, separated by commas
	path, list  string // of the API and of the member in its answer
	name, about string // members of an item
}

func nameSources() []nameSource {
	const servers = "mcp show,mcp remove,mcp restart,mcp login,mcp set,mcp logs,mcp diff,mcp approve,mcp confine"
	return []nameSource{
		{"approvals show", "/api/v1/approvals", "approvals", "id", "summary"},
		{"approvals approve,approvals deny", "/api/v1/approvals?state=pending", "approvals", "id", "summary"},
		{servers + ",policy set," + strings.ReplaceAll(servers, "mcp ", "upstreams "), upstreamsPath, "upstreams", "name", "state"},
		{"nodes show,nodes drain,nodes remove,nodes call,call,nodes skill list", "/api/v1/nodes", "nodes", "node_id", "status"},
		{
			"tasks show,tasks watch,tasks cancel,tasks answer,tasks diff,tasks merge,tasks discard,tasks attach,tasks comment,tasks pr,tasks send," +
				"tasks share,tasks stop,tasks explain", tasksPath, "tasks", "id", "state",
		},
		{"invoke,catalog explain", "/api/v1/catalog/agent", "actions", "name", "description"},
		{"policy allow,policy ask,policy deny,policy reset,policy test", "/api/v1/tools", "tools", "tool", "description"},
		{"endpoints show,endpoints sync,endpoints remove", "/api/capability-router/endpoints", "endpoints", "id", "state"},
		{"extensions show,extensions enable,extensions disable,extensions uninstall", extensionsPath, "extensions", "id", "name"},
		{"tokens revoke", "/api/v1/tokens", "tokens", "name", "role"},
		{"grants revoke,policy grants revoke", "/api/v1/grants", "grants", "id", "principal"},
		{"secrets set,secrets remove", "/api/v1/secrets", "secrets", "name", ""},
	}
}

// completeNames lets shells complete the first argument of commands with names that the server has.
func (a *app) completeNames(root *cobra.Command) {
	for _, source := range nameSources() {
		for path := range strings.SplitSeq(source.commands, ",") {
			if c, rest, err := root.Find(strings.Fields(path)); err == nil && len(rest) == 0 && c.ValidArgsFunction == nil {
				c.ValidArgsFunction = a.completes(source)
			}
		}
	}
}

// completes returns the completion with the names of a source. Without a server it offers none.
func (a *app) completes(source nameSource) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var out map[string]json.RawMessage
		var items []map[string]any
		if len(args) == 0 && a.do(ctx, http.MethodGet, source.path, nil, &out) == nil {
			_ = json.Unmarshal(out[source.list], &items)
		}
		for _, item := range items {
			name, about := first(item, source.name), strings.TrimPrefix(first(item, source.about), "-")
			if name != "-" {
				names = append(names, cobra.CompletionWithDesc(plainText(name), plainText(about)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
