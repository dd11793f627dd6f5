package nodes

import (
	"context"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
)

// nodeChanged audits and publishes a change of a node.
func (s *Service) nodeChanged(e fleet.Event) {
	s.source.Changed(e.Node)
	switch e.Kind {
	case fleet.NodeJoined, fleet.NodeResumed, fleet.NodeUpdated:
		s.held.Ready(e.Node)
	}
	s.cfg.Publish(e.Kind, nodeNews(e))
	if !e.Ours { // another gateway audits it
		return
	}
	rec := audit.Record{
		Logger: "gateway", Event: audit.Event(strings.ReplaceAll(e.Kind, ".", "_")),
		Metadata: audit.Metadata{Node: audit.Node{ID: e.Node, Epoch: uint64(max(e.Epoch, 0))}},
	}
	if e.Reason != "" {
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "reason", Value: e.Reason})
	}
	if _, err := s.cfg.Log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.cfg.Logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
}

// onNode audits and publishes a change of a skill, or a lost call, on a node.
func (s *Service) onNode(kind string, ran *capability.NodeRan) {
	rec := audit.Record{
		Logger: "nodes", Event: audit.Event(strings.ReplaceAll(kind, ".", "_")),
		Metadata: audit.Metadata{Node: audit.Node{
			ID: ran.ID, Epoch: uint64(max(ran.Epoch, 0)), Function: ran.Function, Skill: ran.Skill,
			PayloadDigest: ran.PayloadDigest,
		}},
	}
	if _, err := s.cfg.Log.Append(context.Background(), rec, audit.Buffered); err != nil {
		s.cfg.Logger.Error("audit record not written", "event", string(rec.Event), "err", err)
	}
	s.cfg.Publish(kind, map[string]any{"node_id": ran.ID, "function": ran.Function, "skill": ran.Skill})
}

func nodeNews(e fleet.Event) map[string]any {
	data := map[string]any{"node_id": e.Node, "epoch": e.Epoch}
	if e.Reason != "" {
		data["reason"] = e.Reason
	}
	return data
}

// revokes periodically ends the sessions of nodes whose credential is no longer valid.
func (s *Service) revokes(ctx context.Context) error {
	tick := time.NewTicker(revokeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		joined := s.gateway.Fleet().List(fleet.Filter{Suspect: true})
		if len(joined) == 0 {
			continue
		}
		ended, err := s.admission.Ended(ctx) // after the list, because a node has a row before it joins
		if err != nil {
			s.cfg.Logger.Debug("ended credentials unknown", "err", err)
			continue
		}
		for _, n := range joined {
			if !ended(n.ID) || !s.admission.Gone(ctx, n.ID) {
				continue
			}
			if err := s.gateway.Remove(ctx, n.ID); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
				s.cfg.Logger.Error("a node whose credential has ended is still there", "node", n.ID, "err", err)
				continue
			}
			s.appendNode(audit.NodeRevoked, n.ID)
		}
	}
}

func (s *Service) appendNode(ev audit.Event, node string) {
	if _, err := s.cfg.Log.Append(context.Background(), audit.Record{
		Logger: "gateway", Event: ev,
		Metadata: audit.Metadata{Node: audit.Node{ID: node}},
	}, audit.Written); err != nil {
		s.cfg.Logger.Error("audit record not written", "event", string(ev), "err", err)
	}
}
