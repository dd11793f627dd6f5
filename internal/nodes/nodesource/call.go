package nodesource

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// perChunk is the overhead counted for each kept chunk, in bytes.
const perChunk = 64

// provider is one node, for one of its two domains.
type provider struct {
	source *Source
	node   string
	key    capability.ProviderKey
}

// Key implements capability.Provider.
func (p *provider) Key() capability.ProviderKey { return p.key }

// ReturnsPromptly implements capability.Prompt: calls wait only for the gateway.
func (p *provider) ReturnsPromptly() {}

// Arguments implements capability.Arguer. It returns the arguments by name, which the
// function's schema describes.
func (p *provider) Arguments(input json.RawMessage) (json.RawMessage, error) {
	a, err := cmp.ParseArguments(input)
	if err != nil || len(a.Args) > 0 {
		return nil, err
	}
	if len(a.Kwargs) == 0 {
		return json.RawMessage("{}"), nil
	}
	return jsonx.Marshal(a.Kwargs)
}

// Preview implements capability.Previewer. It refuses references before an approval is requested.
func (p *provider) Preview(_ context.Context, c capability.Call) (capability.Preview, error) {
	return capability.Preview{}, refuseReferences(c.Input)
}

// refuseReferences returns invalid_params for an input with a reference to an asset at any depth. An
// approver would be shown the digest only, and earlier devices replace references by their content.
func refuseReferences(input json.RawMessage) error {
	if !bytes.Contains(input, []byte("$asset")) && !bytes.Contains(input, []byte(`\u`)) {
		return nil
	}
	if err := cmp.CheckJSON(input); err != nil { // before referred recurses
		return err
	}
	var v any
	if err := jsonx.Unmarshal(input, &v); err != nil || !referred(v) {
		return err
	}
	return cmp.Errorf(cmp.ReasonParams, "the arguments contain a reference to an asset").
		With(cmp.ReasonParams, `give the content itself in place of {"$asset": …}`)
}

func referred(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, referred)
	case map[string]any:
		_, is := v["$asset"]
		return is && len(v) == 1 || slices.ContainsFunc(slices.Collect(maps.Values(v)), referred)
	}
	return false
}

// Invoke calls the function named by the call's member, with arguments derived from the
// input. A streaming function is called as a stream: its chunks are sent as progress, and
// the result is their list.
func (p *provider) Invoke(ctx context.Context, c capability.Call) (capability.Result, error) {
	if c.Member.Kind != memberKind {
		return capability.Result{}, capability.Wrap(capability.CodeInternal, "nodes.call", "this entry cannot be called itself", errNoDoor)
	}
	if err := refuseReferences(c.Input); err != nil { // again, because a fallback has no preview
		return capability.Result{}, err
	}
	arguments, err := cmp.ParseArguments(c.Input)
	if err != nil {
		return capability.Result{}, err
	}
	role, _, _ := strings.Cut(c.Principal.ID, ":")
	r := gateway.Request{
		Node: p.node, Function: c.Member.Name, Arguments: arguments, IdempotencyKey: c.Key,
		Caller: wire.Caller{Kind: role, ID: c.Principal.ID},
	}
	progress := 0.0
	r.Progress = func(fraction float64, message string) {
		if fraction <= progress { // chunks are counted as progress
			return
		}
		progress = fraction
		c.Progress(capability.Chunk{Progress: fraction, Total: 1, Message: message})
	}
	var stream collected
	ran := &capability.Ran{Node: &capability.NodeRan{ID: p.node, Function: c.Member.Name}}
	if n, ok := p.source.cfg.Fleet.Get(p.node); ok {
		ran.Node.Epoch = n.Epoch
		f := n.Function(c.Member.Name)
		if f != nil {
			if skill, is := strings.CutPrefix(f.Owner, "skill:"); is {
				ran.Node.Skill = skill
			}
		}
		if f != nil && f.Stream && c.Watched {
			r.Stream = true
			r.Chunk = func(value json.RawMessage) error {
				stream.add(value)
				c.Progress(capability.Chunk{Progress: float64(stream.count), Data: value})
				return nil
			}
		}
	}
	result, err := p.source.cfg.Caller.Do(ctx, fleet.Request{Node: p.node, Function: c.Member.Name}, r)
	if c.Member.Name == cmp.InstallSkill || c.Member.Name == cmp.UninstallSkill {
		p.source.Settled(ctx) // so that a client notified of an install finds the new functions
		if kind := about(ran.Node, result.Value); kind != "" {
			p.source.cfg.Told(kind, ran.Node)
		}
	}
	if capability.AsError(err) != nil && capability.AsError(err).Reason == cmp.ReasonNodeLost {
		p.source.cfg.Told(CallLost, ran.Node)
	}
	if err != nil {
		return capability.Result{Ran: ran}, err
	}
	if r.Stream {
		result.Value, err = stream.result()
		if err != nil {
			return capability.Result{Ran: ran}, err
		}
	}
	value, err := p.whole(ctx, result.Value)
	return capability.Result{Value: value, Ran: ran}, err
}

// about copies the skill's data from the result of an install or uninstall to ran, and
// returns the kind of event, "" for none. The data are the node's own report, unverified.
func about(ran *capability.NodeRan, value json.RawMessage) (kind string) {
	var said struct {
		Installed       string `json:"installed_skill"`
		Changed         bool   `json:"changed"`
		DryRun          bool   `json:"dry_run"`
		Removed         string `json:"skill_name"`
		Uninstalled     bool   `json:"uninstalled"`
		InstalledSkills map[string]struct {
			SHA256 string `json:"sha256"`
		} `json:"installed_skills"`
	}
	if jsonx.Unmarshal(value, &said) != nil {
		return ""
	}
	digest := said.InstalledSkills[said.Installed].SHA256
	if len(said.Removed) > cmp.MaxName || len(said.Installed) > cmp.MaxName || len(digest) > 64 {
		return ""
	}
	if ran.Skill = said.Removed; said.Installed != "" {
		ran.Skill, ran.PayloadDigest = said.Installed, digest
	}
	switch {
	case said.Installed != "" && said.Changed && !said.DryRun:
		return SkillInstalled
	case said.Uninstalled:
		return SkillUninstalled
	}
	return ""
}

// whole fetches a result that is stored as a JSON asset, if it fits into the limit. Other
// values are returned unchanged.
func (p *provider) whole(ctx context.Context, value json.RawMessage) (json.RawMessage, error) {
	a, is := decodeAsset(value)
	if !is || p.source.cfg.Asset == nil || a.Size > int64(p.source.cfg.MaxResult) || a.MediaType != "" && a.MediaType != "application/json" {
		return value, nil
	}
	data, err := p.source.cfg.Asset(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := cmp.CheckJSON(data); err != nil {
		return nil, err
	}
	return data, nil
}

// collected holds the kept chunks of a stream.
type collected struct {
	chunks []jsonx.Raw
	count  int
	bytes  int64
}

func (s *collected) add(value json.RawMessage) {
	s.count++
	s.bytes += int64(len(value))
	if s.bytes+perChunk*int64(s.count) <= maxKept {
		s.chunks = append(s.chunks, jsonx.Raw(slices.Clone(value)))
	}
}

// result returns the list of all chunks, or, if some were dropped, the first chunks and the
// total number.
func (s *collected) result() (json.RawMessage, error) {
	if s.chunks == nil {
		s.chunks = []jsonx.Raw{}
	}
	if len(s.chunks) == s.count {
		return jsonx.Marshal(s.chunks)
	}
	return jsonx.Marshal(map[string]any{"mode": "stream", "chunks": s.chunks, "chunkCount": s.count, "bytes": s.bytes, "truncated": true})
}

// Order returns at most three entries of one function on several nodes, in the order in
// which to try them. Errors are those of fleet.Table.Pick.
func (s *Source) Order(b capability.Balance, among []*catalog.Entry) ([]*catalog.Entry, error) {
	byNode := make(map[string]*catalog.Entry, len(among))
	for _, e := range among {
		if node, ok := NodeOf(e.Key()); ok {
			byNode[node] = e
		}
	}
	if len(byNode) == 0 {
		return nil, cmp.Errorf(cmp.ReasonNoNodes, "no live node can take this call")
	}
	function := among[0].Contribution.Member.Name
	strategy, _ := fleet.ParseStrategy(b.Strategy)
	r := fleet.Request{
		Function: function, Balance: true, Strategy: strategy, Preferred: b.Preferred, Excluded: b.Excluded, Labels: b.Labels, Tags: b.Tags,
		NeedsGPU: b.NeedsGPU, MinMemory: b.MinMemory, Visible: func(n *fleet.Node) bool { return byNode[n.ID] != nil },
	}
	if s.cfg.Unhealthy != nil {
		r.Unhealthy = func(node string) bool { return s.cfg.Unhealthy(function, node) }
	}
	picked, err := s.cfg.Fleet.Pick(r)
	if err != nil {
		return nil, err
	}
	out := make([]*catalog.Entry, 0, len(picked))
	for i := range picked {
		out = append(out, byNode[picked[i].ID])
	}
	return out, nil
}
