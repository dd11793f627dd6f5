package extensions

import (
	"context"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/exec/browser"
	"github.com/junctor-run/junctor/internal/extensions/runner"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// browserRunner runs browser.navigate and the other browser actions.
type browserRunner struct{ family }

// Execute implements runner.Executor.
func (b *browserRunner) Execute(ctx context.Context, r runner.Run) (runner.Outcome, error) {
	x, err := b.installed(r)
	if err != nil {
		return runner.Outcome{}, err
	}
	req, secrets, err := browser.FromRoute(r.Route)
	if err != nil {
		return runner.Outcome{}, err
	}
	for _, s := range secrets {
		value, err := b.secret(ctx, x, s.Name)
		if err != nil {
			return runner.Outcome{}, err
		}
		req.Fields = append(req.Fields, browser.Field{Selector: s.Selector, Secret: value})
	}
	req.Person = r.Person
	req.Principal, req.Session, req.Extension, req.Digest, req.Run = r.Owner.Principal, r.Owner.Session, x.ID, r.Digest, r.ID
	req.Policy, req.OnEgress, req.Work = b.egress(&x.Package.Manifest), b.egressRecords(r), filepath.Join(b.dir, x.ID, "work")
	req.User = b.user(ctx, x.ID)
	got, err := b.browsers.Do(ctx, req)
	return runner.Outcome{
		Output: got.Output, Metadata: got.Metadata, Kept: got.Output != "",
		Ran: capability.Ran{Tool: "chromium", Sandbox: sandbox.T3.String()},
	}, err
}

// Preview implements runner.Previewer.
func (b *browserRunner) Preview(_ context.Context, r runner.Run, out *capability.Preview) error {
	x, err := b.installed(r)
	if err != nil {
		return err
	}
	out.Details["session"], out.Binds = r.Owner.Session, out.Binds+"\n"+r.Owner.Session // whose page it acts on
	out.Details["hosts"] = append([]string{}, x.Package.Manifest.Network.Allow...)
	_, _, err = browser.FromRoute(r.Route)
	return err
}

// retainBrowsers stops the browsers of extensions that were disabled, removed or changed.
func (x *Service) retainBrowsers() {
	view := x.manager.View()
	x.browsers.Retain(func(id, digest string) bool {
		got, ok := view.Find(id)
		return ok && got.Enabled && "sha256:"+got.TreeHash == digest
	})
}
