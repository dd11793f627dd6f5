package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/admission"
	"github.com/junctor-run/junctor/internal/audit"
	"github.com/junctor-run/junctor/internal/blob"
	"github.com/junctor-run/junctor/internal/fleet"
	"github.com/junctor-run/junctor/internal/gateway"
	"github.com/junctor-run/junctor/internal/provider/nodes"
	"github.com/junctor-run/junctor/internal/surface/nodeserve"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// devices are the nodes that join, and what leads to them.
type devices struct {
	admission *admission.Admission
	gateway   *gateway.Gateway
	source    *nodes.Source
	assets    assets
}

// openNodes opens the bus and the gateway; nodes come in once Run serves.
func (s *Server) openNodes(ctx context.Context) (err error) {
	d := &devices{admission: admission.New(s.shared, s.policy, time.Now), assets: assets{s.extensions.Blobs()}}
	if s.nats, err = openMessageBus(ctx, s.cfg, s.home.Path("state", "nats"), s.secrets, d.admission.Authorize, s.logger); err != nil {
		return err
	}
	cfg := s.cfg
	d.gateway = gateway.New(gateway.Config{
		Broker: s.nats, Granted: d.admission.Granted, Told: s.nodeChanged, PutAsset: d.assets.keep, Logger: s.logger,
		Heartbeat: cfg.Gateway.Heartbeat, Fleet: fleet.Config{Lease: cfg.Gateway.HeartbeatTimeout, Grace: cfg.Gateway.Grace},
		TotalStreams: cfg.Gateway.Streams.Total, NodeStreams: cfg.Gateway.Streams.PerNode, Window: int(cfg.Gateway.Streams.Window),
	})
	d.source = nodes.New(nodes.Config{
		Fleet: d.gateway.Fleet(), Caller: d.gateway, Unhealthy: d.gateway.Unhealthy, Asset: d.assets.fetch, MaxResult: int(s.cfg.Limits.Result), Logger: s.logger,
	})
	s.devices = d
	return nil
}

// nodeChanged records what became of a node and tells everybody.
func (s *Server) nodeChanged(e fleet.Event) {
	s.devices.source.Changed(e.Node)
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
		May: func(who capability.Principal, n *fleet.Node) bool {
			var users []string
			for _, l := range n.Granted {
				if user, is := strings.CutPrefix(l, "user:"); is {
					users = append(users, user)
				}
			}
			return s.policy.Serves(who, users, nodes.ExtensionOf(n.ID))
		},
	})
}

// assets keeps the large values of nodes among the blobs, for an hour.
type assets struct{ blobs *blob.Store }

const (
	assetLife      = time.Hour
	assetRunPrefix = "asset:"
)

// Put implements nodeserve.Assets.
func (a assets) Put(ctx context.Context, node, digest, mediaType string, body io.Reader) (cmp.Asset, error) {
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	ref, err := a.blobs.Put(ctx, blob.Ref{
		Principal: "node:" + node, Run: assetRunPrefix + digest, Name: "value", MIME: mediaType, Expires: time.Now().Add(assetLife),
	}, &verified{from: body, sum: sha256.New(), want: digest}, cmp.MaxAsset)
	if errors.Is(err, errDigest) {
		err = cmp.Errorf(cmp.ReasonDigest, "the bytes are not those of the digest %s", digest)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		err = cmp.Errorf(cmp.ReasonTooLarge, "a value has at most %d bytes", cmp.MaxAsset)
	}
	return cmp.Asset{Digest: "sha256:" + digest, Size: ref.Size, MediaType: ref.MIME, URL: "/nodes/assets/" + digest}, err
}

// verified fails at its end where the bytes were not those of the digest, so that
// they are not kept.
type verified struct {
	from io.Reader
	sum  hash.Hash
	want string
}

var errDigest = errors.New("the digest is another one")

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(v.sum.Sum(nil)) != v.want {
		err = errDigest
	}
	return n, err
}

// keep holds arguments that are too large for one message.
func (a assets) keep(ctx context.Context, node string, arguments []byte) (cmp.Asset, error) {
	sum := sha256.Sum256(arguments)
	return a.Put(ctx, node, hex.EncodeToString(sum[:]), "application/json", bytes.NewReader(arguments))
}

// Get implements nodeserve.Assets.
func (a assets) Get(ctx context.Context, digest string) (data io.ReadSeekCloser, mediaType string, err error) {
	refs, err := a.blobs.List(ctx, assetRunPrefix+digest)
	if err != nil {
		return nil, "", err
	}
	if len(refs) == 0 {
		return nil, "", capability.Errorf(capability.CodeNotFound, "assets", "there is no value %s, or not any more", digest).
			With("asset_not_found", "values are kept for an hour")
	}
	data, err = a.blobs.Read(refs[0])
	return data, refs[0].MIME, err
}

// fetch reads what a reference that a node sent leads to.
func (a assets) fetch(ctx context.Context, asset cmp.Asset) ([]byte, error) {
	file, _, err := a.Get(ctx, strings.TrimPrefix(asset.Digest, "sha256:"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, asset.Size+1))
	if err == nil && int64(len(data)) != asset.Size {
		err = cmp.Errorf(cmp.ReasonDigest, "the value has other than the %d bytes that were announced", asset.Size)
	}
	return data, err
}
