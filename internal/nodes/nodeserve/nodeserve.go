// Package nodeserve serves the HTTP paths for nodes and their operators: enrolment, the WebSocket
// through which nodes use the bus, large values, and the part of /api/v1 that lists and removes
// nodes. It also receives the calls of nodes from the bus and invokes them on the engine.
package nodeserve

import (
	"context"
	"crypto/ed25519"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Admission decides who may join.
type Admission interface {
	Enrol(ctx context.Context, token string, e wire.Enrol) (wire.EnrolReply, error)
	Key(ctx context.Context, node string) (ed25519.PublicKey, error)
	TokenNode(ctx context.Context, token, node string) error
	Principal(ctx context.Context, node string) (capability.Principal, error)
	Remove(ctx context.Context, node string) error
}

// Gateway manages the sessions of nodes.
type Gateway interface {
	Fleet() *fleet.Table
	Drain(ctx context.Context, node string) error
	Remove(ctx context.Context, node string) error
}

// Assets keeps large values by digest.
type Assets interface {
	// Put keeps for a principal what body holds, at most cmp.MaxAsset bytes, whose SHA-256 must be digest (hex).
	Put(ctx context.Context, principal, digest, mediaType string, body io.Reader) (cmp.Asset, error)
	// Get opens what is kept; not_found when there is nothing. The caller closes it.
	Get(ctx context.Context, digest string) (data io.ReadSeekCloser, mediaType string, err error)
}

// Config configures the surface; all fields but Connect and Logger are required.
type Config struct {
	Door      *httpapi.Door
	Engine    *invoke.Engine
	Admission Admission
	Gateway   Gateway
	Assets    Assets
	// Connect returns the handler of the transport, which calls admit for each request first.
	Connect func(admit func(*http.Request) error) http.Handler
	// Bus is the gateway's session, on which nodes call upward.
	Bus messaging.Conn
	// May reports whether a principal may see a node.
	May func(who capability.Principal, n *fleet.Node) bool
	// Held keeps calls for nodes that are away, and MayHold states who may leave one.
	Held    Held
	MayHold func(ctx context.Context, who capability.Principal, node string) bool
	// Watch yields the current nodes and then their changes.
	Watch  func(ctx context.Context) iter.Seq2[gateway.Sight, error]
	Logger *slog.Logger
	Now    func() time.Time
}

// Surface serves the paths.
type Surface struct {
	Config
	upwards upwards
}

// New returns the surface.
func New(cfg Config) *Surface {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Surface{Config: cfg, upwards: upwards{by: make(map[string]int)}}
}

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST "+wire.EnrolPath, s.enrol)
	mux.Handle("GET /nodes/connect", s.bounded(s.Connect(s.admit)))
	mux.HandleFunc("PUT "+wire.AssetsPath+"{digest}", s.putAsset)
	mux.HandleFunc("GET "+wire.AssetsPath+"{digest}", s.getAsset)
	s.heldRoutes(mux)
	const base = "/api/v1/nodes"
	lookAfter := []capability.Role{capability.RoleAdmin, capability.RoleOperator}
	mux.Handle("GET "+base, s.Door.Guard(s.list))
	mux.Handle("GET "+base+"/watch", s.Door.Guard(s.watch))
	mux.Handle("GET "+base+"/{id}", s.Door.Guard(s.show))
	mux.Handle("POST "+base+"/{id}/drain", s.Door.Guard(s.drain, lookAfter...))
	mux.Handle("DELETE "+base+"/{id}", s.Door.Guard(s.remove, lookAfter...))
}

// bearer returns the token of a request, "" without one.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func (s *Surface) enrol(w http.ResponseWriter, r *http.Request) {
	body, err := httpapi.ReadBody(w, r, 4<<10)
	var e *wire.Enrol
	if err == nil {
		e, err = wire.Decode[wire.Enrol](body)
	}
	var reply wire.EnrolReply
	if err == nil {
		reply, err = s.Admission.Enrol(r.Context(), bearer(r), *e)
	}
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	httpapi.WriteJSON(w, http.StatusOK, reply)
}

// admit keeps clients with an invalid token off the bus. A client without a token
// proves a key inside the protocol.
func (s *Surface) admit(r *http.Request) error {
	if r.Header.Get("Authorization") == "" {
		return nil
	}
	who, err := s.Door.Principal(r)
	if err == nil && who.Role != capability.RoleNode {
		err = capability.Errorf(capability.CodeDenied, "nodes.connect", "this token has the role %s, and devices join with one of role node",
			who.Role)
	}
	return err
}

// view is a node as lists show it: the first members are the original's.
type view struct {
	NodeID        string   `json:"node_id"`
	Status        string   `json:"status"`
	Version       string   `json:"version"`
	Location      string   `json:"location"`
	Capabilities  []string `json:"capabilities"`
	Functions     any      `json:"functions"`
	CurrentLoad   float64  `json:"current_load"`
	LastHeartbeat int64    `json:"last_heartbeat"`

	Epoch         int64     `json:"epoch"`
	Revision      uint64    `json:"revision"`
	OS            string    `json:"os,omitempty"`
	Arch          string    `json:"arch,omitempty"`
	Granted       []string  `json:"granted_labels"`
	MaxConcurrent int       `json:"max_concurrent"`
	Active        int       `json:"active"`
	Queued        int       `json:"queued"`
	InFlight      int       `json:"in_flight"`
	Accepting     bool      `json:"accepting"`
	Joined        time.Time `json:"joined"`
}

func viewOf(n *fleet.Node, whole bool) view {
	v := view{
		NodeID: n.ID, Status: string(n.Status), Version: n.Software, Location: n.Location, Capabilities: append([]string{}, n.Labels...),
		CurrentLoad: n.LoadFactor(), LastHeartbeat: n.LastBeat.Unix(), Epoch: n.Epoch, Revision: n.Revision, OS: n.OS, Arch: n.Arch,
		Granted: append([]string{}, n.Granted...), MaxConcurrent: n.MaxConcurrent, Active: n.Load.Active, Queued: n.Load.Queued,
		InFlight: n.InFlight, Accepting: n.Load.Accepting, Joined: n.Joined.UTC(),
	}
	slices.Sort(v.Capabilities)
	if v.Functions = append([]string{}, n.Names()...); whole {
		v.Functions = functionsOf(n)
	}
	return v
}

// function is a function in the answer, as far as the gateway knows it.
type function struct {
	Name          string    `json:"name"`
	Tags          []string  `json:"tags"`
	Description   string    `json:"description"`
	Version       string    `json:"version"`
	Timeout       *float64  `json:"timeout_seconds"`
	Stream        bool      `json:"stream"`
	Effect        string    `json:"effect,omitempty"`
	Owner         string    `json:"owner,omitempty"`
	MaxConcurrent int       `json:"max_concurrent"`
	Input         jsonx.Raw `json:"input_schema,omitempty"`
	Output        jsonx.Raw `json:"output_schema,omitempty"`
}

func functionsOf(n *fleet.Node) []function {
	out := make([]function, len(n.Functions))
	for i := range n.Functions {
		f := &n.Functions[i]
		out[i] = function{
			Name: f.Name, Tags: append([]string{}, f.Tags...), Description: f.Description, Version: f.Version, Stream: f.Stream, Effect: f.Effect,
			Owner: f.Owner, MaxConcurrent: f.MaxConcurrent, Input: jsonx.Raw(f.Input), Output: jsonx.Raw(f.Output),
		}
		if f.Timeout > 0 {
			seconds := f.Timeout.Seconds()
			out[i].Timeout = &seconds
		}
	}
	slices.SortFunc(out, func(a, b function) int { return strings.Compare(a.Name, b.Name) })
	return out
}

const listNodes = "list them with: junctor nodes list"

// list returns the nodes that match the filters. Nodes without a session are shown to people only.
func (s *Surface) list(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	q := r.URL.Query()
	limit, err := httpapi.Number(r, "limit", defaultPage, 1, maxPage)
	if err != nil {
		return err
	}
	status := fleet.Status(q.Get("status"))
	switch status {
	case "", fleet.Connected, fleet.Disconnected, fleet.Draining:
	default:
		return capability.Errorf(capability.CodeInvalidInput, "nodes.list",
			"%q is not a state of a node; use connected, disconnected or draining", status)
	}
	cursor, part := q.Get("cursor"), q.Get("q")
	all := s.Gateway.Fleet().List(fleet.Filter{
		Labels: words(q["label"]), Functions: words(q["function"]), Status: status, Suspect: people(who),
		Visible: func(n *fleet.Node) bool {
			return strings.Contains(n.ID, part) && (people(who) || n.Status != fleet.Disconnected) && s.May(who, n)
		},
	})
	total := len(all)
	all = slices.DeleteFunc(all, func(n fleet.Node) bool { return n.ID <= cursor })
	out, next := []view{}, ""
	for i := range all {
		if len(out) == limit {
			next = all[i-1].ID
			break
		}
		out = append(out, viewOf(&all[i], q.Get("functions") == "full"))
	}
	return httpapi.Answer(w, map[string]any{"nodes": out, "next": next, "total": total}, nil)
}

// words removes blank values, which do not restrict the list.
func words(in []string) []string {
	var out []string
	for _, w := range in {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// node returns a node that the principal may see.
func (s *Surface) node(who capability.Principal, id string) (*fleet.Node, error) {
	n, ok := s.Gateway.Fleet().Get(id)
	if !ok || !s.May(who, &n) || n.Status == fleet.Disconnected && !people(who) {
		return nil, cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", id).With(cmp.ReasonNodeNotFound, listNodes)
	}
	return &n, nil
}

// show answers GetNodeStatus.
func (s *Surface) show(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	n, err := s.node(who, r.PathValue("id"))
	if err != nil {
		return err
	}
	health := 0.0
	if n.Status == fleet.Connected {
		health = 1
	}
	return httpapi.Answer(w, struct {
		view
		CPU      float64 `json:"cpu_usage"`
		Memory   float64 `json:"memory_usage"`
		GPU      float64 `json:"gpu_usage"`
		Health   float64 `json:"health_score"`
		LastSeen int64   `json:"last_seen"`
		Detail   any     `json:"function_details"`
	}{viewOf(n, false), n.Load.CPU, n.Load.Memory, n.Load.GPU, health, n.LastBeat.Unix(), functionsOf(n)}, nil)
}

func (s *Surface) drain(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	if err := s.Gateway.Drain(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	return httpapi.Answer(w, map[string]any{"ok": true}, nil)
}

// remove ends a node's session. With forget its credential is forgotten, too, so
// that its id is free and it has to be let in again.
func (s *Surface) remove(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	id := r.PathValue("id")
	err := s.Gateway.Remove(r.Context(), id)
	if r.URL.Query().Get("forget") == "true" {
		if gone := s.Admission.Remove(r.Context(), id); gone == nil {
			err = nil
		} else if err == nil && capability.CodeOf(gone) != capability.CodeNotFound {
			err = gone
		}
		_ = s.Gateway.Remove(r.Context(), id) // it may have come back between the two
	}
	return httpapi.Answer(w, map[string]any{"ok": true}, err)
}

// watch streams the current nodes, then every change. A reader that is too slow gets a new
// snapshot.
func (s *Surface) watch(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	out := httpapi.NewStream(w, r)
	known := make(map[string]bool)
	for sight, err := range s.Watch(r.Context()) {
		if err != nil {
			return nil //nolint:nilerr // the reader is gone
		}
		line := map[string]any{"event": sight.Kind, "at": s.Now().UTC()}
		if n := &sight.Node; n.ID != "" {
			if !s.May(who, n) || !people(who) && n.Status == fleet.Disconnected {
				continue
			}
			known[n.ID], line["node"] = true, viewOf(n, false)
		}
		id := sight.Event.Node
		if id == "" {
			id = sight.Node.ID
		}
		switch {
		case id == "": // of the snapshot
		case !people(who) && !known[id]:
			continue
		}
		if id != "" {
			line["node_id"] = id
		}
		if sight.Kind == fleet.NodeLeft {
			delete(known, id)
		}
		if sight.Event.Reason != "" {
			line["reason"] = sight.Event.Reason
		}
		if !sendJSON(out, sight.Kind, line) {
			return nil
		}
	}
	return nil
}
