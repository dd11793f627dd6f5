package server

import (
	"context"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/heldcall"
	"github.com/junctor-run/junctor/internal/nodes"
	"github.com/junctor-run/junctor/internal/nodes/admission"
	"github.com/junctor-run/junctor/internal/nodes/asset"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/nodeserve"
)

// devices are the nodes that join, and what leads to them.
type devices struct {
	admission *admission.Admission
	gateway   *gateway.Gateway
	source    *nodes.Source
	held      *heldcall.Keeper
	assets    *asset.Store
}

// openNodes opens the bus and the gateway; nodes come in once Run serves.
func (s *Server) openNodes(ctx context.Context) (err error) {
	d := &devices{admission: admission.New(admission.NewSQLStore(s.shared), s.policy, time.Now)}
	if s.nats, err = openMessageBus(ctx, s.cfg, s.home.Path("state", "nats"), s.secrets, d.admission.Authorize, s.logger); err != nil {
		return err
	}
	cfg := s.cfg
	kept := asset.Config{Blobs: s.extensions.Blobs(), Logger: s.logger}
	if cfg.NATS.URL != "" { // there may be other gateways
		kept.Bus = s.nats.Conn()
	}
	d.assets = asset.New(kept)
	d.gateway = gateway.New(gateway.Config{
		Broker: s.nats, Granted: d.admission.Granted, Told: s.nodeChanged, PutAsset: d.assets.Keep, Logger: s.logger,
		Heartbeat: cfg.Gateway.Heartbeat, Fleet: fleet.Config{Lease: cfg.Gateway.HeartbeatTimeout, Grace: cfg.Gateway.Grace},
		TotalStreams: cfg.Gateway.Streams.Total, NodeStreams: cfg.Gateway.Streams.PerNode, Window: int(cfg.Gateway.Streams.Window),
	})
	d.source = nodes.New(nodes.Config{
		Fleet: d.gateway.Fleet(), Caller: d.gateway, Unhealthy: d.gateway.Unhealthy, Asset: d.assets.Fetch, MaxResult: int(s.cfg.Limits.Result), Told: s.onNode, Logger: s.logger,
	})
	s.devices = d
	s.openHeldCalls()
	return nil
}

// nodeChanged records what became of a node and tells everybody.
func (s *Server) nodeChanged(e fleet.Event) {
	s.devices.source.Changed(e.Node)
	switch e.Kind {
	case fleet.NodeJoined, fleet.NodeResumed, fleet.NodeUpdated:
		s.devices.held.Ready(e.Node)
	}
	s.publish(e.Kind, nodeNews(e))
	if !e.Ours { // another gateway writes it
		return
	}
	rec := audit.Record{
		Logger: "gateway", Event: audit.Event(strings.ReplaceAll(e.Kind, ".", "_")),
		Metadata: audit.Metadata{Node: audit.Node{ID: e.Node, Epoch: uint64(max(e.Epoch, 0))}},
	}
	if e.Reason != "" {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "reason", Value: e.Reason})
	}
	if _, err := s.log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}

// onNode records what became of a skill, or of a call, on a node.
func (s *Server) onNode(kind string, ran *capability.NodeRan) {
	rec := audit.Record{
		Logger: "nodes", Event: audit.Event(strings.ReplaceAll(kind, ".", "_")),
		Metadata: audit.Metadata{Node: audit.Node{ID: ran.ID, Epoch: uint64(max(ran.Epoch, 0)), Function: ran.Function, Skill: ran.Skill, PayloadDigest: ran.PayloadDigest}},
	}
	if _, err := s.log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
	s.publish(kind, map[string]any{"node_id": ran.ID, "function": ran.Function, "skill": ran.Skill})
}

func nodeNews(e fleet.Event) map[string]any {
	data := map[string]any{"node_id": e.Node, "epoch": e.Epoch}
	if e.Reason != "" {
		data["reason"] = e.Reason
	}
	return data
}

// revokes ends the sessions of nodes whose credential has ended, soon after it did.
func (s *Server) revokes(ctx context.Context) error {
	tick := time.NewTicker(revokeEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		joined := s.devices.gateway.Fleet().List(fleet.Filter{Suspect: true})
		if len(joined) == 0 {
			continue
		}
		ended, err := s.devices.admission.Ended(ctx) // after the list: who joins has a row before
		if err != nil {
			s.logger.Debug("nobody can tell which credentials have ended", "err", err)
			continue
		}
		for _, n := range joined {
			if !ended(n.ID) || !s.devices.admission.Gone(ctx, n.ID) {
				continue
			}
			if err := s.devices.gateway.Remove(ctx, n.ID); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
				s.logger.Error("a node whose credential has ended is still there", "node", n.ID, "err", err)
				continue
			}
			s.appendNode(audit.NodeRevoked, n.ID)
		}
	}
}

// revokeEvery is how long a node may stay when its token has ended by itself.
const revokeEvery = time.Second

func (s *Server) appendNode(ev audit.Event, node string) {
	if _, err := s.log.Append(context.Background(), audit.Record{Logger: "gateway", Event: ev, Metadata: audit.Metadata{Node: audit.Node{ID: node}}}, audit.Written); err != nil {
		s.logger.Error("audit record not written", "event", string(ev), "err", err)
	}
}

// openNodeDoor is the surface of nodes.
func (s *Server) openNodeDoor() *nodeserve.Surface {
	return nodeserve.New(nodeserve.Config{
		Door: s.door, Engine: s.engine, Admission: s.devices.admission, Gateway: s.devices.gateway, Assets: s.devices.assets,
		Connect: s.nats.Handler, Bus: s.nats.Conn(), Logger: s.logger, Watch: s.devices.gateway.Watch,
		Held: heldDoor{s.devices.held, s.shared}, MayHold: s.mayHold,
		May: func(who capability.Principal, n *fleet.Node) bool {
			return s.policy.Serves(who, nodes.UsersOf(n.Granted), nodes.ExtensionOf(n.ID))
		},
	})
}
