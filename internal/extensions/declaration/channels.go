package declaration

import (
	"cmp"
	"slices"
)

// noOrder is the order of a channel that declares none.
const noOrder = 999

// Channels returns the channels of all packages for the picker, ordered by order, label
// and id. The strongest origin of an id wins. A missing selection label, documentation
// path and installation default to the label, /channels/<id> and the package's own.
// diagnostics names the rows without a label, which are dropped.
func Channels(extensions []Extension) (list []Channel, diagnostics []string) {
	type row struct {
		Channel
		strength int
		ext      string
		version  string
	}
	best := make(map[string]row)
	for i := range extensions {
		x := &extensions[i]
		for _, ch := range x.Channels {
			if ch.Label == "" {
				diagnostics = append(diagnostics, "channel "+ch.ID+" of "+x.ID+" has no label")
				continue
			}
			if ch.Install == nil {
				ch.Install = x.Install
			}
			now := row{ch, originStrength(x.origin()), x.ID, x.Version}
			was, had := best[ch.ID]
			if !had || now.strength > was.strength || now.strength == was.strength &&
				(now.ext < was.ext || now.ext == was.ext && now.version > was.version) {
				best[ch.ID] = now
			}
		}
	}
	for _, r := range best {
		r.SelectionLabel = cmp.Or(r.SelectionLabel, r.Label)
		r.DocsPath = cmp.Or(r.DocsPath, "/channels/"+r.ID)
		list = append(list, r.Channel)
	}
	order := func(c Channel) int {
		if c.Order == nil {
			return noOrder
		}
		return *c.Order
	}
	slices.SortFunc(list, func(a, b Channel) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Label, b.Label), cmp.Compare(a.ID, b.ID))
	})
	slices.Sort(diagnostics)
	return list, diagnostics
}
