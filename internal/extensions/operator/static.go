package operator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Install is a row of the install catalog.
type Install struct {
	ExtensionID   string            `json:"extensionId"`
	Name          string            `json:"name"`
	Version       string            `json:"version"`
	Origin        string            `json:"origin"`
	Entries       []string          `json:"entries"`
	PackageSpec   string            `json:"packageSpec,omitempty"`
	LocalPath     string            `json:"localPath,omitempty"`
	DefaultChoice string            `json:"defaultChoice"` // package, local, or "" if neither is known
	Provenance    map[string]string `json:"provenance,omitempty"`
}

// Onboarding is a row of the onboarding catalog: one flow.
type Onboarding struct {
	FlowID          string   `json:"flowId"`
	RuntimeID       string   `json:"runtimeId"`
	Target          string   `json:"target"` // cli, status, setup-ui
	Modes           []string `json:"modes"`
	Phases          []string `json:"phases"`
	Outputs         []string `json:"outputs"`
	QuickstartScore int      `json:"quickstartScore,omitempty"`
	SelectionHint   string   `json:"selectionHint,omitempty"`
}

// CLI is a row of the command-line catalog.
type CLI struct {
	Path           string `json:"path"` // the runtime id where none is declared
	RuntimeID      string `json:"runtimeId"`
	Description    string `json:"description"`
	Mode           string `json:"mode"` // standalone, subcommand, flow-entry
	Interactive    bool   `json:"interactive"`
	NonInteractive bool   `json:"nonInteractive"`
}

// Channel is a row of the channel picker. Every field of the manifest is present, even
// if empty. If Install is null, the channel cannot be installed.
type Channel struct {
	ID                                   string               `json:"id"`
	Label                                string               `json:"label"`
	SelectionLabel                       string               `json:"selectionLabel"`
	DetailLabel                          string               `json:"detailLabel"`
	DocsPath                             string               `json:"docsPath"`
	DocsLabel                            string               `json:"docsLabel"`
	Blurb                                string               `json:"blurb"`
	Order                                *int                 `json:"order"`
	Aliases                              []string             `json:"aliases"`
	PreferOver                           []string             `json:"preferOver"`
	SystemImage                          string               `json:"systemImage"`
	SelectionDocsPrefix                  string               `json:"selectionDocsPrefix"`
	SelectionDocsOmitLabel               bool                 `json:"selectionDocsOmitLabel"`
	SelectionExtras                      []string             `json:"selectionExtras"`
	ShowConfigured                       *bool                `json:"showConfigured"`
	QuickstartAllowFrom                  bool                 `json:"quickstartAllowFrom"`
	ForceAccountBinding                  bool                 `json:"forceAccountBinding"`
	PreferSessionLookupForAnnounceTarget bool                 `json:"preferSessionLookupForAnnounceTarget"`
	Install                              *declaration.Install `json:"install"`
	Dock                                 *declaration.Dock    `json:"dock"`
}

// List is one catalog with its etag: the hex SHA-256 of the rows' canonical JSON.
type List[Row any] struct {
	Etag string `json:"etag"`
	Rows []Row  `json:"rows"`
}

// StaticCatalogs are the four static catalogs. They are immutable and shared.
type StaticCatalogs struct {
	Install    List[Install]
	Onboarding List[Onboarding]
	Channels   List[Channel]
	CLI        List[CLI]
	// Diagnostics lists, sorted, which files and rows were dropped and why.
	Diagnostics []string
	// Extensions are all that were read, in the order of their files. An id occurs
	// once per package.
	Extensions []declaration.Extension
}

// CompileStatic builds the static catalogs of extensions, and of the server's own channels. The
// result does not depend on their order.
func CompileStatic(extensions []declaration.Extension, own ...declaration.Channel) (*StaticCatalogs, error) {
	c := &StaticCatalogs{Extensions: extensions}
	admitted := declaration.Resolve(extensions, nil)
	for _, x := range admitted.Extensions {
		if class, failed := admitted.Failed[x.ID]; failed {
			c.Diagnostics = append(c.Diagnostics, "extension "+x.ID+" is not listed: "+class)
			continue
		}
		if x.Stage == capability.StageFailed {
			continue
		}
		c.Install.Rows = append(c.Install.Rows, install(x))
		for i := range x.Contributions {
			c.contribution(x, &x.Contributions[i])
		}
	}
	for _, x := range admitted.Shadowed {
		c.Diagnostics = append(c.Diagnostics, "package "+x.String()+" stands behind one of a stronger origin")
	}
	listed := []declaration.Extension{{ID: "junctor", Channels: own}}
	for _, x := range slices.Concat(admitted.Extensions, admitted.Shadowed, admitted.Refused) {
		if _, failed := admitted.Failed[x.ID]; !failed {
			listed = append(listed, *x)
		}
	}
	c.channels(listed)
	slices.SortFunc(c.Onboarding.Rows, func(a, b Onboarding) int {
		return cmp.Or(cmp.Compare(b.QuickstartScore, a.QuickstartScore), cmp.Compare(a.FlowID, b.FlowID), cmp.Compare(a.RuntimeID, b.RuntimeID))
	})
	slices.SortFunc(c.CLI.Rows, func(a, b CLI) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.RuntimeID, b.RuntimeID))
	})
	slices.Sort(c.Diagnostics)
	var err error
	for _, seal := range []func() error{c.Install.seal, c.Onboarding.seal, c.Channels.seal, c.CLI.seal} {
		if err = seal(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (l *List[Row]) seal() error {
	if l.Rows == nil {
		l.Rows = []Row{}
	}
	doc, err := json.Marshal(l.Rows)
	if err == nil {
		doc, err = jsonx.Canonical(doc)
	}
	if err != nil {
		return fmt.Errorf("write a static catalog: %w", err)
	}
	sum := sha256.Sum256(doc)
	l.Etag = hex.EncodeToString(sum[:])
	return nil
}

func install(x *declaration.Extension) Install {
	row := Install{
		ExtensionID: x.ID, Name: cmp.Or(x.Name, x.ID), Version: x.Version, Origin: cmp.Or(x.Origin, "bundled"),
		Entries: list(x.Entries), Provenance: x.Provenance,
	}
	if in := x.Install; in != nil {
		row.PackageSpec, row.LocalPath, row.DefaultChoice = in.PackageSpec, in.LocalPath, in.DefaultChoice
	}
	switch {
	case row.DefaultChoice != "":
	case row.PackageSpec != "":
		row.DefaultChoice = "package"
	case row.LocalPath != "":
		row.DefaultChoice = "local"
	}
	return row
}

func (c *StaticCatalogs) contribution(x *declaration.Extension, d *declaration.Contribution) {
	runtime := x.ID + "/" + d.ID
	switch d.Kind {
	case "surface.setup":
		row := Onboarding{FlowID: runtime, RuntimeID: runtime, Target: "setup-ui", Modes: []string{}, Phases: []string{}, Outputs: []string{}}
		if s := d.Setup; s != nil {
			row = Onboarding{
				FlowID: cmp.Or(s.FlowID, runtime), RuntimeID: runtime, Target: cmp.Or(s.Target, "setup-ui"), Modes: list(s.Modes),
				Phases: list(s.Phases), Outputs: list(s.Outputs), QuickstartScore: s.QuickstartScore, SelectionHint: s.SelectionHint,
			}
		}
		c.Onboarding.Rows = append(c.Onboarding.Rows, row)
	case "surface.cli":
		row := CLI{Path: runtime, RuntimeID: runtime, Description: d.Description, Mode: "subcommand"}
		if s := d.CLI; s != nil {
			row = CLI{
				Path: cmp.Or(s.Path, runtime), RuntimeID: runtime, Description: cmp.Or(s.Description, d.Description),
				Mode:        cmp.Or(s.Mode, "subcommand"),
				Interactive: s.Interactive, NonInteractive: s.NonInteractive,
			}
		}
		c.CLI.Rows = append(c.CLI.Rows, row)
	}
}

func (c *StaticCatalogs) channels(extensions []declaration.Extension) {
	channels, diagnostics := declaration.Channels(extensions)
	c.Diagnostics = append(c.Diagnostics, diagnostics...)
	for _, ch := range channels {
		c.Channels.Rows = append(c.Channels.Rows, Channel{
			ID: ch.ID, Label: ch.Label, SelectionLabel: ch.SelectionLabel, DetailLabel: ch.DetailLabel, DocsPath: ch.DocsPath,
			DocsLabel: ch.DocsLabel,
			Blurb:     ch.Blurb, Order: ch.Order, Aliases: list(ch.Aliases), PreferOver: list(ch.PreferOver), SystemImage: ch.SystemImage,
			SelectionDocsPrefix: ch.SelectionDocsPrefix, SelectionDocsOmitLabel: ch.SelectionDocsOmitLabel,
			SelectionExtras: list(ch.SelectionExtras),
			ShowConfigured:  ch.ShowConfigured, QuickstartAllowFrom: ch.QuickstartAllowFrom, ForceAccountBinding: ch.ForceAccountBinding,
			PreferSessionLookupForAnnounceTarget: ch.PreferSessionLookupForAnnounceTarget, Install: ch.Install, Dock: ch.Dock,
		})
	}
}

func list(values []string) []string {
	if values == nil {
		return []string{}
	}
	return values
}
