// Package archtest holds the house together: its tests read the import graph and
// the source tree and fail when a layer is crossed, a package has no comment, two
// packages share a name, a file outgrows its ceiling, or a direct dependency is
// not accounted for. The rules are docs/ARCHITECTURE.md's.
package archtest

import (
	"strings"
)

// module is the import path all of ours begin with.
const module = "github.com/junctor-run/junctor"

// layer is a package's height: imports point down only.
func layer(pkg string) int {
	switch {
	case pkg == "capability", pkg == "secret", pkg == "internal/jsonx", strings.HasPrefix(pkg, "protocol/"):
		return 0
	case strings.HasPrefix(pkg, "internal/catalog"), pkg == "internal/session", pkg == "internal/audit",
		strings.HasPrefix(pkg, "internal/audit/"), pkg == "internal/policy", pkg == "internal/command", strings.HasPrefix(pkg, "internal/command/"), pkg == "internal/invoke":
		return 1
	case strings.HasPrefix(pkg, "internal/surface/"), strings.HasPrefix(pkg, "internal/provider/"),
		strings.HasPrefix(pkg, "internal/exec/"), strings.HasPrefix(pkg, "internal/task/"), pkg == "internal/intake", strings.HasPrefix(pkg, "internal/intake/"),
		pkg == "internal/reference", pkg == "conformance", strings.HasPrefix(pkg, "conformance/"):
		return 3
	case pkg == "internal/server", strings.HasPrefix(pkg, "internal/server/"), pkg == "internal/config":
		return 4
	case strings.HasPrefix(pkg, "cmd/"), pkg == "bench", pkg == "release", pkg == "interop", strings.HasPrefix(pkg, "interop/"):
		return 5
	}
	return 2
}

// beside lists the pairs of one layer that may be imported: the order inside the
// core, and the few L2 packages that others build on.
func beside(from, to string) bool {
	if strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/") {
		return true // a package and its own sub-packages
	}
	for _, root := range []string{"internal/catalog/", "internal/command/", "internal/intake/", "internal/framework/", "internal/messaging/", "internal/provider/upstream/", "internal/sandbox/", "internal/skill/", "internal/surface/mcpserve/", "internal/task/", "internal/workspace/"} { // parts of one whole, split for their size
		if strings.HasPrefix(from, root) && strings.HasPrefix(to, root) {
			return true
		}
	}
	switch {
	case strings.HasPrefix(from, "protocol/") && (to == "capability" || to == "secret" || to == "internal/jsonx"):
		return true
	case from == "internal/framework/replay" && to == "internal/term", from == "internal/framework/preflight" && to == "internal/sandbox":
		return true
	case from == "internal/skill/deviceaction" && to == "internal/sandbox", from == "internal/skill/pushed" && to == "internal/worker":
		return true
	}
	if strings.HasPrefix(from, "host/device") && (to == "internal/skill" || strings.HasPrefix(to, "internal/skill/") || from == "host/device/pushcode" && (to == "internal/worker" || to == "internal/sandbox")) {
		return true // it is the whole of a node, for programs of others
	}
	allowed := map[string][]string{
		"capability":         {"secret", "internal/jsonx"},
		"internal/session":   {"internal/catalog"},
		"internal/audit":     {"internal/catalog"},
		"internal/policy":    {"internal/catalog", "internal/catalog/actions", "internal/session", "internal/audit"},
		"internal/invoke":    {"internal/catalog", "internal/catalog/actions", "internal/catalog/arbitration", "internal/catalog/compile", "internal/catalog/rules", "internal/catalog/search", "internal/session", "internal/audit", "internal/policy"},
		"internal/gitcmd":    {"internal/sandbox"},
		"internal/worker":    {"internal/sandbox"},
		"host":               {"internal/sandbox"},
		"internal/noderun":   {"host/device", "host/device/pushcode", "internal/skill/asking", "internal/segment"},
		"host/device":        {"internal/hostfs", "internal/node", "internal/messaging", "internal/messaging/natsdial"},
		"internal/term":      {"internal/sandbox"},
		"internal/workspace": {"internal/gitcmd", "internal/sandbox", "internal/hostfs"},
		// What the parts of a workspace use of the same two.
		"internal/workspace/evidence":        {"internal/gitcmd"},
		"internal/workspace/forge/bareforge": {"internal/gitcmd", "internal/sandbox"},
		"internal/gateway":                   {"internal/bus", "internal/fleet", "internal/messaging"},
		"internal/node":                      {"internal/messaging", "internal/skill", "internal/skill/functions", "internal/skill/execution"},
		"internal/admission":                 {"internal/messaging"},
		"internal/asset":                     {"internal/blob", "internal/messaging"},
		"internal/store":                     {"internal/admission", "internal/heldcall"},
		"internal/chat":                      {"internal/runs"},
		"internal/backup":                    {"internal/hostfs", "internal/segment", "internal/store"},
		"internal/server":                    {"internal/config"},
		"internal/server/checkup":            {"internal/config"},
	}
	for _, ok := range allowed[from] {
		if ok == to {
			return true
		}
	}
	// What all surfaces share, and the suites of a tree, are walls of the tree itself.
	return to == "internal/surface/door" && strings.HasPrefix(from, "internal/surface/")
}

// coreForbidden is what the core (L1) never imports: it does no I/O.
func coreForbidden() []string {
	return []string{"net", "net/http", "os/exec", "database/sql", "syscall"}
}

// coreThirdParty is what the core may use of others: schema, policy language,
// rate limits.
func coreThirdParty() []string {
	return []string{
		"github.com/santhosh-tekuri/jsonschema/v6", "github.com/cedar-policy/cedar-go", "golang.org/x/time/rate",
		"github.com/go-json-experiment/json",
	}
}

// stopsAt says in which packages a library's types end: nobody else imports it.
func stopsAt() map[string]string {
	return map[string]string{
		"github.com/cedar-policy/cedar-go":         "internal/policy",
		"github.com/santhosh-tekuri/jsonschema/v6": "internal/catalog",
		"modernc.org/sqlite":                       "internal/store internal/exec/db",
		// One speaks to the servers that extensions name, the other to the one that gateways share.
		"github.com/jackc/pgx/v5":                "internal/store internal/exec/db",
		"modernc.org/quickjs":                    "internal/worker",
		"github.com/tetratelabs/wazero":          "internal/worker",
		"github.com/pressly/goose/v3":            "internal/store",
		"github.com/modelcontextprotocol/go-sdk": "internal/surface/mcpserve internal/oauthclient internal/samplemcp interop bench",
		"github.com/a2aproject/a2a-go":           "internal/surface/a2aserve internal/provider/a2a",
		"github.com/coreos/go-oidc":              "internal/oauth",
		"golang.org/x/oauth2":                    "internal/oauthclient",
		"github.com/go-jose/go-jose":             "internal/provider/a2a",
		"github.com/google/go-github":            "internal/workspace/forge/githubforge",
		"github.com/yosida95/uritemplate":        "internal/surface/mcpserve",
		"github.com/prometheus/client_golang":    "internal/telemetry",
		"github.com/knadh/koanf":                 "internal/config",
		"github.com/spf13/cobra":                 "cmd/junctor",
		"github.com/spf13/pflag":                 "cmd/junctor",
		"github.com/nats-io":                     "internal/messaging/natsbus internal/messaging/natsdial",
		"github.com/coder/websocket":             "internal/messaging/natsbus internal/surface/agentserve bench cmd/junctor",
		"github.com/creack/pty":                  "internal/task/process",
		"golang.org/x/term":                      "cmd/junctor",
		"mvdan.cc/sh":                            "internal/task/permit",
		"google.golang.org/grpc":                 "nobody",
		"github.com/stretchr/testify":            "nobody",
	}
}

const (
	fileCeiling = 800 // lines; 400 is the aim
)
