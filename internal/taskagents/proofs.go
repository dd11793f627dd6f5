package taskagents

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/programcheck"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// proofs checks programs whose version junctor was not tested with, each version once, and stores the
// results.
type proofs struct {
	cfg   programcheck.Config
	store choice.Store

	turn chan struct{} // one check at a time; the second request for a program finds the result of the first
}

// proof is the result of the check of a file. Another modification time is another file.
type proof struct {
	Path     string    `json:"path"`
	Modified time.Time `json:"modified"`
	Version  string    `json:"version"`
	Why      string    `json:"why"` // why it cannot be relied on; "" if it can
}

// prove implements Prove of agents.Config.
func (p *proofs) prove(ctx context.Context, program preflight.Result) (why string, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return "", capability.AsError(ctx.Err())
	}
	known, err := p.read(ctx)
	if err != nil {
		return "", err
	}
	now := proof{Path: program.Path, Version: program.Version}
	if info, err := os.Stat(program.Path); err == nil {
		now.Modified = info.ModTime().UTC()
	}
	if old, ok := known[program.Adapter]; ok && old.Path == now.Path && old.Version == now.Version && old.Modified.Equal(now.Modified) {
		return old.Why, nil
	}
	r, err := programcheck.Run(ctx, p.cfg, program)
	if err != nil {
		return "", err
	}
	if r.Failed != "" {
		now.Why = r.Failed + ": " + r.Finding
	}
	if r.Late { // a busy machine may be the cause, so the next task tries again
		return now.Why, nil
	}
	known[program.Adapter] = now
	data, err := jsonx.Marshal(known)
	if err != nil {
		return "", err
	}
	return now.Why, p.store.Save(ctx, data)
}

func (p *proofs) read(ctx context.Context) (map[programs.Name]proof, error) {
	known := make(map[programs.Name]proof)
	data, err := p.store.Load(ctx)
	if err == nil && len(data) > 0 {
		err = json.Unmarshal(data, &known)
	}
	return known, err
}
