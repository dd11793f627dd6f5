package invoke

import (
	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/catalog"
)

// resolve names the candidates of the target in the surface's catalog. A target
// that does not exist and one this audience does not see get the same answer.
func (r *run) resolve() ([]*catalog.Entry, error) {
	r.snap = r.engine.cfg.Catalog.Snapshot()
	return visible(r.snap, r.inv.Target, r.inv.Audience)
}

func visible(snap *catalog.Snapshot, target capability.Target, audience capability.Audience) ([]*catalog.Entry, error) {
	if audience == "" {
		audience = capability.AudienceAgent
	}
	all := snap.Resolve(target)
	for i, e := range all {
		if e.VisibleTo(audience) {
			continue
		}
		// Rare: copy only when something has to be left out.
		kept := append([]*catalog.Entry(nil), all[:i]...)
		for _, e := range all[i+1:] {
			if e.VisibleTo(audience) {
				kept = append(kept, e)
			}
		}
		all = kept
		break
	}
	if len(all) == 0 {
		return nil, capability.UnknownCapability(target)
	}
	return all, nil
}
