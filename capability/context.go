package capability

import "strings"

// Context describes the situation in which a catalog is compiled and a provider is chosen: the
// workspace, agent and session, the conversation, and the session's bindings. The zero value is
// a local command-line session without conversation and adapter. [Context.Check] enforces its
// bounds: 64 bindings, 64 blocks, 256 bytes a value.
type Context struct {
	Workspace     string    `json:"workspace,omitempty"`
	Agent         string    `json:"agent,omitempty"`
	Session       string    `json:"session,omitempty"`
	ModelProvider string    `json:"modelProvider,omitempty"`
	Dialect       string    `json:"dialect,omitempty"` // of wire names: dotted, mcp, strict64
	Bindings      []Binding `json:"bindings,omitempty"`
	Route         *Route    `json:"route,omitempty"`   // the current conversation
	Adapter       *Adapter  `json:"adapter,omitempty"` // outside a conversation; the route's by default
	Blocks        []Block   `json:"blocks,omitempty"`  // verdicts of route augmenters
	Grants        []string  `json:"grants,omitempty"`  // approvals already given in the session
}

// Binding binds the actions that match a glob to one provider for a session. The longest
// matching glob applies.
type Binding struct {
	Actions  string      `json:"actions"`
	Provider ProviderKey `json:"provider"`
}

// Route is the conversation a request comes from.
type Route struct {
	Kind             string `json:"kind"`
	Account          string `json:"account"`
	Conversation     string `json:"conversation,omitempty"`
	ConversationKind string `json:"conversationKind,omitempty"` // dm, group, channel, thread, call, cli
	Thread           string `json:"thread,omitempty"`
}

// Ref is the conversation reference <kind>:<account>:<conversation>.
func (r Route) Ref() string { return r.Kind + ":" + r.Account + ":" + r.Conversation }

// Adapter is the channel adapter, and optionally its account, through which a request arrived.
type Adapter struct {
	Kind    string `json:"kind"`
	Account string `json:"account,omitempty"`
}

// Block removes the actions that match one of the globs from a context. By is the runtime id
// of the route augmenter that decided it.
type Block struct {
	Actions []string `json:"actions"`
	By      string   `json:"by,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// Through returns the effective adapter: the declared one, else that of the route, else nil.
func (c *Context) Through() *Adapter {
	if c.Adapter != nil {
		return c.Adapter
	}
	if c.Route != nil {
		return &Adapter{Kind: c.Route.Kind, Account: c.Route.Account}
	}
	return nil
}

// Check returns an invalid_input error if the context is invalid: more than 64 bindings or
// blocks, a value over 256 bytes, or a route without kind or account.
func (c *Context) Check() error {
	bad := func(format string, args ...any) error {
		return Errorf(CodeInvalidInput, "context", format, args...).With("invalid_context", "")
	}
	if len(c.Bindings) > maxContextItems || len(c.Blocks) > maxContextItems || len(c.Grants) > maxContextItems {
		return bad("a context has at most %d bindings, blocks and grants", maxContextItems)
	}
	values := []string{c.Workspace, c.Agent, c.Session, c.ModelProvider, c.Dialect}
	for _, b := range c.Bindings {
		if strings.TrimSpace(b.Actions) == "" || b.Provider == "" {
			return bad("a binding needs actions and a provider")
		}
		values = append(values, b.Actions, string(b.Provider))
	}
	for _, b := range c.Blocks {
		if len(b.Actions) > maxContextItems {
			return bad("a block has at most %d globs", maxContextItems)
		}
		values = append(append(values, b.Actions...), b.By, b.Reason)
	}
	if r := c.Route; r != nil {
		if r.Kind == "" || r.Account == "" {
			return bad("a route needs a kind and an account")
		}
		values = append(values, r.Kind, r.Account, r.Conversation, r.ConversationKind, r.Thread)
	}
	if a := c.Adapter; a != nil {
		if a.Kind == "" {
			return bad("an adapter needs a kind")
		}
		values = append(values, a.Kind, a.Account)
	}
	for _, v := range values {
		if len(v) > maxContextValue {
			return bad("the value %.20q… is longer than %d bytes", v, maxContextValue)
		}
	}
	return nil
}

// Set sets one field from a key=value of the command line. Keys with a dot address the route
// and the adapter ("route.kind", "adapter.account"). An unknown key is an error.
func (c *Context) Set(key, value string) error {
	route := func() *Route {
		if c.Route == nil {
			c.Route = new(Route)
		}
		return c.Route
	}
	adapter := func() *Adapter {
		if c.Adapter == nil {
			c.Adapter = new(Adapter)
		}
		return c.Adapter
	}
	switch key {
	case "workspace":
		c.Workspace = value
	case "agent":
		c.Agent = value
	case "session":
		c.Session = value
	case "modelProvider":
		c.ModelProvider = value
	case "dialect":
		c.Dialect = value
	case "route":
		parts := strings.SplitN(value, ":", 3)
		if len(parts) < 2 {
			return Errorf(CodeInvalidInput, "context", "a route is written kind:account:conversation, not %q", value)
		}
		r := route()
		r.Kind, r.Account = parts[0], parts[1]
		if len(parts) == 3 {
			r.Conversation = parts[2]
		}
	case "route.kind":
		route().Kind = value
	case "route.account":
		route().Account = value
	case "route.conversation":
		route().Conversation = value
	case "route.conversationKind":
		route().ConversationKind = value
	case "route.thread":
		route().Thread = value
	case "adapter", "adapter.kind":
		kind, account, found := strings.Cut(value, ":")
		if adapter().Kind = kind; found {
			c.Adapter.Account = account
		}
	case "adapter.account":
		adapter().Account = value
	case "bind":
		glob, provider, found := strings.Cut(value, "=")
		if !found {
			return Errorf(CodeInvalidInput, "context", "a binding is written bind=<actions>=<provider key>, not %q", value)
		}
		c.Bindings = append(c.Bindings, Binding{Actions: glob, Provider: ProviderKey(provider)})
	default:
		return Errorf(CodeInvalidInput, "context", "%q is not a key of a context", key).
			With("invalid_context", "use workspace, agent, session, modelProvider, dialect, route (kind:account:conversation), route.conversationKind, route.thread, adapter (kind:account) or bind (actions=provider)")
	}
	return nil
}

// Scope restricts where a contribution may be used. A dimension that is empty or contains "*"
// admits every context. Otherwise the context must have a value that is listed. Lists are
// sorted.
type Scope struct {
	Workspace        []string `json:"workspace,omitempty"`
	Agent            []string `json:"agent,omitempty"`
	Session          []string `json:"session,omitempty"`
	Account          []string `json:"account,omitempty"`
	Channel          []string `json:"channel,omitempty"`
	Conversation     []string `json:"conversation,omitempty"`
	ConversationKind []string `json:"conversationKind,omitempty"`
	Provider         []string `json:"provider,omitempty"` // of the model
}
