// Package archtest holds the structure of the repository. Its tests read the import
// graph and the source tree and fail when a package imports a level above its own,
// when two wings import each other, when a package has no comment or shares its name
// with another, when a file grows past its ceiling, and when a direct dependency has
// no row in docs/dependencies.md. The rules are those of docs/ARCHITECTURE.md.
package archtest

import "strings"

const (
	// module is the import path that all packages of this repository begin with.
	module = "github.com/junctor-run/junctor"
	// repository is the root of the repository, as seen from this folder.
	repository = "../../.."
	// maxFileLines is the largest size of a source file; 400 is the aim.
	maxFileLines = 800
)

// A place is a part of the repository with one position in the order of imports.
type place struct {
	folder string
	level  int
	wing   bool // a feature, or a surface over all features; wings never import each other
}

// places lists every folder that has a level, lowest first. The folder that a package
// is in decides its level. The first match counts, so that an exception stands before
// the folder that contains it.
func places() []place {
	return []place{
		{folder: "capability"},
		{folder: "secret"},
		{folder: "protocol"},
		{folder: "internal/base"},
		{folder: "internal/core", level: 1},
		{folder: "host/device", level: 5, wing: true}, // the public face of internal/nodes
		{folder: "host", level: 2},
		{folder: "internal/platform", level: 2},
		{folder: "internal/store", level: 3},
		{folder: "internal/config", level: 4},
		{folder: "internal/local", level: 5, wing: true},
		{folder: "internal/taskagents", level: 5, wing: true},
		{folder: "internal/chat", level: 5, wing: true},
		{folder: "internal/extensions", level: 5, wing: true},
		{folder: "internal/nodes", level: 5, wing: true},
		{folder: "internal/upstreams", level: 5, wing: true},
		{folder: "internal/endpoints", level: 5, wing: true},
		{folder: "internal/serve", level: 5, wing: true},
		{folder: "internal/setup", level: 5, wing: true},
		{folder: "internal/console", level: 5, wing: true},
		{folder: "conformance", level: 2},
		{folder: "client", level: 2},
		{folder: "internal/server", level: 6},
		{folder: "internal/testkit", level: 7},
		{folder: "cmd", level: 7},
		{folder: "bench", level: 7},
		{folder: "release", level: 7},
		{folder: "interop", level: 7},
		{folder: "examples", level: 7},
	}
}

// placeOf returns the place that a package is in; ok is false for a package outside
// every place, which is a defect of the table or of the package.
func placeOf(pkg string) (p place, ok bool) {
	for _, p := range places() {
		if inFolder(pkg, p.folder) {
			if p.folder == "host/device" {
				p.folder = "internal/nodes"
			}
			return p, true
		}
	}
	return place{}, false
}

func inFolder(pkg, folder string) bool {
	return pkg == folder || strings.HasPrefix(pkg, folder+"/")
}

// isTestSupport reports whether a package exists for tests only.
func isTestSupport(pkg string) bool { return inFolder(pkg, "internal/testkit") }

// coreForbidden returns the standard packages that internal/core never imports,
// because it does no I/O.
func coreForbidden() []string {
	return []string{"net", "net/http", "os/exec", "database/sql", "syscall"}
}

// coreThirdParty returns the modules that internal/core may use: JSON, JSON Schema,
// the policy language and rate limits.
func coreThirdParty() []string {
	return []string{
		"github.com/santhosh-tekuri/jsonschema/v6", "github.com/cedar-policy/cedar-go", "golang.org/x/time/rate",
		"github.com/go-json-experiment/json", "golang.org/x/text", "go.yaml.in/yaml/v4", "golang.org/x/sync/errgroup",
	}
}

// libraryHomes returns, for each library, the packages that may import it, separated
// by spaces. A type of the library is used nowhere else.
func libraryHomes() map[string]string {
	return map[string]string{
		"github.com/cedar-policy/cedar-go":         "internal/core/policy",
		"github.com/santhosh-tekuri/jsonschema/v6": "internal/core/catalog",
		// internal/extensions/exec/db connects to the databases that extensions name,
		// internal/store to the one that gateways share.
		"modernc.org/sqlite":                     "internal/store internal/extensions/exec/db",
		"github.com/jackc/pgx/v5":                "internal/store internal/extensions/exec/db internal/testkit/pgtest",
		"modernc.org/quickjs":                    "internal/platform/worker",
		"github.com/tetratelabs/wazero":          "internal/platform/worker",
		"github.com/pressly/goose/v3":            "internal/store",
		"github.com/modelcontextprotocol/go-sdk": "internal/serve/mcpserve internal/upstreams/oauthclient internal/upstreams/samplemcp internal/testkit interop bench",
		"github.com/SherClockHolmes/webpush-go":  "internal/console/webpush",
		"github.com/go-webauthn/webauthn":        "internal/console/passkey",
		"github.com/a2aproject/a2a-go":           "internal/serve/a2aserve internal/upstreams/a2a",
		"github.com/coreos/go-oidc":              "internal/platform/oauth",
		"golang.org/x/oauth2":                    "internal/upstreams/oauthclient internal/platform/oauth",
		"github.com/go-jose/go-jose":             "internal/upstreams/a2a",
		"github.com/google/go-github":            "internal/taskagents/workspace/forge/githubforge",
		"github.com/yosida95/uritemplate":        "internal/serve/mcpserve",
		"github.com/prometheus/client_golang":    "internal/platform/telemetry",
		"github.com/prometheus/client_model":     "internal/platform/telemetry",
		"go.opentelemetry.io/proto/slim/otlp":    "internal/platform/telemetry",
		"google.golang.org/protobuf":             "internal/platform/telemetry",
		"github.com/knadh/koanf":                 "internal/config",
		"github.com/spf13/cobra":                 "cmd/junctor",
		"github.com/spf13/pflag":                 "cmd/junctor",
		"github.com/nats-io":                     "internal/nodes/messaging/natsbus internal/nodes/messaging/natsdial internal/testkit",
		"github.com/coder/websocket": "internal/nodes/messaging/natsbus internal/taskagents/agentserve " +
			"internal/chat/channels internal/chat/channels/discord internal/testkit/fakechat bench cmd/junctor",
		"github.com/creack/pty":           "internal/platform/process",
		"golang.org/x/term":               "cmd/junctor",
		"github.com/go-telegram/bot":      "internal/chat/channels/telegram",
		"github.com/yuin/goldmark":        "internal/chat/channels",
		"github.com/emersion/go-imap":     "internal/chat/channels/email internal/testkit/fakechat",
		"github.com/emersion/go-message":  "internal/chat/channels/email",
		"github.com/wneessen/go-mail":     "internal/chat/channels/email",
		"github.com/emersion/go-smtp":     "internal/testkit/fakechat",
		"github.com/emersion/go-sasl":     "internal/testkit/fakechat",
		"charm.land/bubbletea":            "cmd/junctor",
		"github.com/charmbracelet/x/ansi": "cmd/junctor",
		"mvdan.cc/sh":                     "internal/taskagents/permit",
		"google.golang.org/grpc":          "",
		"github.com/stretchr/testify":     "",
	}
}
