package extensionserve

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
	"github.com/junctor-run/junctor/internal/extensions/eval"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

func (s *Surface) operatorCatalog(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	snap := s.Catalog.Snapshot()
	rows, err := s.operatorRows(r.Context(), snap)
	if err != nil {
		return err
	}
	return httpapi.WriteCatalog(w, r, snap.Generation, map[string]any{"audience": capability.AudienceOperator, "rows": rows})
}

func (s *Surface) staticCatalog(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	name := r.PathValue("name")
	all, err := s.Static.Build(r.Context())
	if err != nil {
		return err
	}
	body := map[string]any{"audience": "static/" + name}
	switch name {
	case "install":
		body["rows"] = all.Install.Rows
	case "onboarding":
		body["rows"] = all.Onboarding.Rows
	case "channels":
		body["rows"] = all.Channels.Rows
	case "cli":
		body["rows"] = all.CLI.Rows
	default:
		return capability.Errorf(capability.CodeNotFound, "catalog", "there is no static catalog %q; use install, onboarding, channels or cli",
			name)
	}
	return httpapi.WriteCatalog(w, r, s.Catalog.Snapshot().Generation, body)
}

// staticCatalogs are all of them.
func (s *Surface) staticCatalogs(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	all, err := s.Static.Build(r.Context())
	if err != nil {
		return err
	}
	return httpapi.WriteCatalog(w, r, s.Catalog.Snapshot().Generation, map[string]any{
		"audience": "static", "install": all.Install.Rows, "onboarding": all.Onboarding.Rows, "channels": all.Channels.Rows, "cli": all.CLI.Rows,
	})
}

// evaluate runs scenarios; they do not use this server's catalog.
func (s *Surface) evaluate(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, maxScenarios)
	if err != nil {
		return err
	}
	var req struct {
		Fixtures  jsonx.Raw `json:"fixtures,omitempty"`
		Scenarios jsonx.Raw `json:"scenarios"`
	}
	if err := jsonx.UnmarshalStrict(body, &req); err != nil {
		return httpapi.BadJSON(err)
	}
	var lines bytes.Buffer
	ok, err := evalScenarios(req.Fixtures, req.Scenarios, &lines)
	if err != nil {
		return err
	}
	outcomes := []jsonx.Raw{}
	for line := range bytes.Lines(lines.Bytes()) {
		outcomes = append(outcomes, jsonx.Raw(bytes.TrimSpace(line)))
	}
	return httpapi.Answer(w, map[string]any{"ok": ok, "outcomes": outcomes}, nil)
}

// operatorRows returns the operator catalog: what the packages in the home directory
// declare, and the diagnostic rows of the snapshot. Nothing of a package is started.
func (s *Surface) operatorRows(ctx context.Context, snap *catalog.Snapshot) ([]operator.Row, error) {
	all, err := s.Static.Build(ctx)
	if err != nil {
		return nil, err
	}
	declared := slices.Clone(all.Extensions)
	for i := range declared {
		declared[i].Stage = capability.StageDeclared
	}
	resolved := declaration.Resolve(declared, snap.Settings().Owners)
	view, err := operator.New(resolved).View(snap, resolved.Conflicts...)
	return view.Rows, err
}

// evalScenarios runs scenarios without this server's own catalog.
func evalScenarios(fixtures, scenarios []byte, out *bytes.Buffer) (ok bool, err error) {
	var shared eval.Fixtures
	if len(fixtures) > 0 {
		if shared, err = eval.ParseFixtures(fixtures); err != nil {
			return false, err
		}
	}
	return eval.RunFiles(shared, []eval.File{{Name: "scenarios", Data: scenarios}}, out)
}
