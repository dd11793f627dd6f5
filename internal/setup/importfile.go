package setup

import (
	"cmp"
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

// Import implements setupserve.Clients.
func (s *Service) Import(ctx context.Context, by capability.Principal, req setupserve.Import) (setupserve.Result, error) {
	now, err := clients.Recognize(req.File, []byte(req.Text))
	if err != nil {
		return setupserve.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := setupserve.Result{
		File: req.File, Moved: map[string]string{}, Left: map[string]string{}, Folders: map[string]setupserve.Folders{},
	}
	r := record{Servers: out.Moved}
	for _, server := range s.reaching(&out, s.movable(now, req.Move, out.Left), req.Folders, req.KeepUnreached) {
		if req.DryRun {
			d, values, again := s.become(server, "")
			out.Moved[server.Name] = cmp.Or(again, d.Name)
			for _, v := range values {
				out.Secrets = append(out.Secrets, v.name)
			}
			continue
		}
		if err := s.move(ctx, by, server, req.TrustHints, req.Folders[server.Name], &r); err != nil {
			out.Left[server.Name] = reason(err)
			delete(out.Folders, server.Name)
		}
	}
	out.Secrets = append(out.Secrets, r.Secrets...)
	return out, nil
}
