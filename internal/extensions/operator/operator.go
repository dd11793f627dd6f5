// Package operator builds what operators see of extensions, from manifests alone; it activates
// nothing. A [Catalog] holds the rows of active extensions: control commands and the lines of text
// that match them, provider integrations and their sign-in methods, and setup, command-line,
// configuration and status surfaces. [StaticCatalogs] hold what can be installed, set up and chosen
// as a channel. A [StaticBuilder] reads them from manifest files and never opens an extension's
// code, so that an extension that cannot be loaded is listed too.
package operator

import (
	"cmp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Row is one row of the operator catalog.
type Row struct {
	RowID              string `json:"rowId"`
	Row                string `json:"row"` // command, auth, setup, cli, config, status, diagnostic
	RuntimeID          string `json:"runtimeId,omitempty"`
	Title              string `json:"title"`
	Description        string `json:"description"`
	RequiresActivation bool   `json:"requiresActivation"`
	Availability       string `json:"availability"`
	Metadata           any    `json:"metadata,omitempty"`
}

// Catalog is the operator catalog. It is immutable; callers must not change what its
// methods return.
type Catalog struct {
	rows      []Row
	commands  map[string]*command // by registered name
	auth      []*integration
	rejected  map[string]string
	conflicts []catalog.Conflict
}

// New builds the operator catalog of the active extensions in r.
func New(r *declaration.Resolved) *Catalog {
	c := &Catalog{commands: make(map[string]*command), rejected: make(map[string]string)}
	var named []*command
	for _, x := range r.Extensions {
		if _, failed := r.Failed[x.ID]; failed || x.Stage == capability.StageFailed {
			continue
		}
		for i := range x.Contributions {
			d := &x.Contributions[i]
			runtime := x.ID + "/" + d.ID
			switch d.Kind {
			case "capability.control-command":
				if x.Active() && d.Command != nil {
					named = append(named, &command{Command: d.Command, runtime: runtime, ext: x, availability: availability(d)})
				}
			case "capability.provider-integration":
				if x.Active() && d.Auth != nil {
					c.auth = append(c.auth, &integration{Auth: d.Auth, ext: x.ID, contribution: d.ID})
					c.add(x, d, "auth", true, d.Auth)
				}
			case "surface.setup":
				c.add(x, d, "setup", false, d.Setup)
			case "surface.cli":
				c.add(x, d, "cli", false, d.CLI)
			case "surface.config":
				c.add(x, d, "config", false, nil)
			case "surface.status":
				c.add(x, d, "status", false, nil)
			}
		}
	}
	c.register(named)
	for name, cmd := range c.commands {
		row := Row{
			RowID: "command:" + name, Row: "command", RuntimeID: cmd.runtime, Title: "/" + name, Description: cmd.Description,
			RequiresActivation: true, Availability: cmd.availability, Metadata: cmd.Command,
		}
		c.rows = append(c.rows, row)
	}
	slices.SortFunc(c.auth, func(a, b *integration) int {
		return cmp.Or(cmp.Compare(a.ext, b.ext), cmp.Compare(a.contribution, b.contribution))
	})
	slices.SortFunc(c.rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.RuntimeID, b.RuntimeID), cmp.Compare(a.RowID, b.RowID))
	})
	return c
}

func (c *Catalog) add(x *declaration.Extension, d *declaration.Contribution, row string, activation bool, metadata any) {
	title := d.Title
	title = cmp.Or(title, x.ID+" "+d.ID)
	c.rows = append(c.rows, Row{
		RowID: row + ":" + x.ID + "/" + d.ID, Row: row, RuntimeID: x.ID + "/" + d.ID, Title: title, Description: d.Description,
		RequiresActivation: activation, Availability: availability(d), Metadata: metadata,
	})
}

// Rows returns the rows ordered by runtime id.
func (c *Catalog) Rows() []Row { return slices.Clone(c.rows) }

// Rejected returns, by runtime id, why contributions are not in the catalog.
func (c *Catalog) Rejected() map[string]string { return c.rejected }

// Conflicts returns the names that several commands declare.
func (c *Catalog) Conflicts() []catalog.Conflict { return slices.Clone(c.conflicts) }

// RuntimeIDs returns the runtime ids of the rows, sorted, each once.
func (c *Catalog) RuntimeIDs() []string {
	out := make([]string, 0, len(c.rows))
	for _, r := range c.rows {
		out = append(out, r.RuntimeID)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func availability(d *declaration.Contribution) string {
	return cmp.Or(string(d.Availability.State), string(capability.StateReady))
}

func lower(s string) string { return strings.ToLower(strings.TrimSpace(s)) }
