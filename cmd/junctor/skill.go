package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

func (a *app) skillCommand() *cobra.Command {
	return a.group("skill", "Pack, sign and install skills for devices",
		a.skillPackCommand(), a.skillSignCommand(), a.skillInstallCommand(), a.skillUninstallCommand(), a.skillListCommand(),
		a.skillDiffCommand())
}

// onNode calls a reserved function of a node and returns the whole answer and its result.
func (a *app) onNode(ctx context.Context, node, action string, input any, timeout, key string) (json.RawMessage, json.RawMessage, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, nil, err
	}
	c, err := a.client()
	if err != nil {
		return nil, nil, err
	}
	var answer json.RawMessage
	err = c.Invoke(ctx, client.Invocation{
		Target: action, Input: raw, Select: map[string]string{"node": node}, Timeout: timeout,
		IdempotencyKey: key,
	}, &answer)
	if err != nil {
		return nil, nil, err
	}
	out, err := decode[client.Invoked](answer)
	return answer, out.Result, err
}

func (a *app) skillInstallCommand() *cobra.Command {
	var keep, dryRun, yes bool
	var sha256, timeout, key string
	c := &cobra.Command{
		Use: "install NODE FILE|DIR|-", Short: "Install a skill on a node, or upgrade it", Args: cobra.ExactArgs(2),
		Long: `Install a skill on a node. The device decides: code that comes with a skill is taken
only where its owner allowed that, and capabilities that demand consent are asked for
there. Either all of it is installed or nothing.`,
		Example: `  junctor skill install laptop ./camera-pack --dry-run
  junctor skill install laptop camera-pack.json --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := a.readSkill(args[1])
			if err != nil {
				return err
			}
			input := map[string]any{"skill_payload": raw, "replace_existing_skill": !keep}
			if dryRun {
				input["dry_run"] = true
			}
			if sha256 != "" {
				input["expected_sha256"] = sha256
			}
			return a.confirmed(cmd.Context(), yes, func() error {
				answer, result, err := a.onNode(cmd.Context(), args[0], "device.skill.install", input, timeout, key)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(answer)
				}
				out, err := decode[cmp.Installed](result)
				if err != nil {
					return err
				}
				return a.printSkill(args[0], &out)
			})
		},
	}
	f := c.Flags()
	f.BoolVar(&keep, "keep", false, "add to the installed version instead of replacing it")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be done; do nothing")
	f.StringVar(&sha256, "sha256", "", "`HASH` refuse it unless it has this SHA-256")
	f.StringVar(&timeout, "timeout", "", "`DURATION` how long to wait, also for the owner of the device to agree (default 5m)")
	f.StringVar(&key, "idempotency-key", "", "`KEY` do the work once, however often the key is used")
	f.BoolVar(&yes, "yes", false, yesHelp)
	return c
}

func (a *app) printSkill(node string, out *cmp.Installed) error {
	word := "installed"
	switch {
	case out.DryRun:
		word = "would be installed"
	case !out.Changed:
		word = "was installed already"
	}
	a.printf("%s %s on %s\n", plainText(out.InstalledSkill), word, plainText(node))
	record := out.InstalledSkills[out.InstalledSkill]
	var rows [][]string
	for _, alias := range slices.Sorted(maps.Keys(record.Capabilities)) {
		c := record.Capabilities[alias]
		bound := c.BindingMode
		if c.ActionName != nil {
			bound += " " + *c.ActionName
		}
		rows = append(rows, []string{alias, c.FunctionName, bound, fmt.Sprint(c.Registered)})
	}
	for _, w := range out.Warnings {
		fmt.Fprintf(a.stderr, "junctor: %s\n", plainText(w.Message))
	}
	return a.table([]string{"ALIAS", "FUNCTION", "BOUND TO", "REGISTERED"}, rows, "")
}

func (a *app) skillUninstallCommand() *cobra.Command {
	var leave, yes bool
	c := &cobra.Command{
		Use: "uninstall NODE SKILL", Short: "Uninstall a skill from a node: the functions it brought, and nothing else", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.confirmed(cmd.Context(), yes, func() error {
				answer, result, err := a.onNode(cmd.Context(), args[0], "device.skill.uninstall",
					map[string]any{"skill_name": args[1], "unregister_functions": !leave}, "", "")
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(answer)
				}
				out, err := decode[cmp.Uninstalled](result)
				if err != nil {
					return err
				}
				if !out.Uninstalled {
					a.printf("%s was not installed on %s\n", plainText(args[1]), plainText(args[0]))
					return nil
				}
				a.printf("%s is gone from %s\n", plainText(args[1]), plainText(args[0]))
				return nil
			})
		},
	}
	c.Flags().BoolVar(&leave, "leave-functions", false, "leave its functions callable; installing the skill again takes them back")
	c.Flags().BoolVar(&yes, "yes", false, yesHelp)
	return c
}

// installedOn returns the records of the skills on a node, and the whole answer.
func (a *app) installedOn(ctx context.Context, node string) (answer json.RawMessage, records map[string]cmp.Record, err error) {
	answer, result, err := a.onNode(ctx, node, "device.skill.list", struct{}{}, "", "")
	if err == nil {
		records, err = decode[map[string]cmp.Record](result)
	}
	return answer, records, err
}

func (a *app) skillListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list NODE", Short: "List the skills installed on a node", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, records, err := a.installedOn(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(answer)
			}
			var rows [][]string
			for _, name := range slices.Sorted(maps.Keys(records)) {
				r := records[name]
				rows = append(rows, []string{name, r.State, dash(r.SkillVersion), fmt.Sprint(len(r.Capabilities)), r.Source, cut(r.SHA256, 12)})
			}
			return a.table([]string{"NAME", "STATE", "VERSION", "CAPABILITIES", "FROM", "SHA256"}, rows,
				"no skill is installed on "+args[0]+"; install one with: junctor skill install "+args[0]+" FILE|DIR")
		},
	}
}

func cut(s string, n int) string { return s[:min(len(s), n)] }

func (a *app) skillDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use: "diff NODE FILE|DIR", Short: "Show what installing a skill would change on a node", Args: cobra.ExactArgs(2),
		Long: "Show what installing a skill would change on a node. The exit status is 1 if\nit is not what is installed.",
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, p, err := a.checkedSkill(args[1])
			if err != nil {
				return err
			}
			digest, err := payload.Digest(raw)
			if err != nil {
				return err
			}
			_, records, err := a.installedOn(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d := difference(p, records[p.SkillName], digest)
			if a.json {
				doc, err := jsonx.Marshal(d)
				if err != nil {
					return err
				}
				if err := a.printJSON(doc); err != nil {
					return err
				}
			} else {
				a.printf("%s", d.text())
			}
			if d.Same {
				return nil
			}
			return exitStatus(capability.CodeFailed.Row().Exit)
		},
	}
}

// skillDiff is the difference between a payload and the installed skill.
type skillDiff struct {
	Skill     string   `json:"skill"`
	Installed bool     `json:"installed"`
	Same      bool     `json:"same"`
	SHA256    string   `json:"sha256"`
	Was       string   `json:"installed_sha256,omitempty"`
	Added     []string `json:"added"`
	Removed   []string `json:"removed"`
	Changed   []string `json:"changed"`
}

// difference compares the capabilities of a payload with those of the installed record.
func difference(p *payload.Payload, was cmp.Record, digest string) skillDiff {
	d := skillDiff{
		Skill: p.SkillName, Installed: was.Capabilities != nil, Same: was.SHA256 == digest, SHA256: digest, Was: was.SHA256,
		Added: []string{}, Removed: []string{}, Changed: []string{},
	}
	now := make(map[string]bool)
	for i := range p.Capabilities {
		c := &p.Capabilities[i]
		now[c.Alias] = true
		old, had := was.Capabilities[c.Alias]
		switch {
		case !had:
			d.Added = append(d.Added, c.Alias)
		case old.FunctionName != c.FunctionName || old.Stream != c.Stream || old.MediaType != c.MediaType ||
			!bytes.Equal(sortedJSON(old.Metadata), sortedJSON(c.Metadata)):
			d.Changed = append(d.Changed, c.Alias)
		}
	}
	for alias := range was.Capabilities {
		if !now[alias] {
			d.Removed = append(d.Removed, alias)
		}
	}
	slices.Sort(d.Added)
	slices.Sort(d.Removed)
	slices.Sort(d.Changed)
	return d
}

func sortedJSON(doc json.RawMessage) []byte {
	if len(doc) == 0 {
		return []byte("{}")
	}
	out, err := jsonx.Sorted(doc)
	if err != nil {
		return doc
	}
	return out
}

// text returns the difference as text, one line for each capability.
func (d *skillDiff) text() string {
	if d.Same {
		return plainText(d.Skill) + " is what is installed\n"
	}
	var b strings.Builder
	if !d.Installed {
		fmt.Fprintf(&b, "%s is not installed\n", plainText(d.Skill))
	}
	for _, part := range []struct {
		sign  string
		names []string
	}{{"+", d.Added}, {"~", d.Changed}, {"-", d.Removed}} {
		for _, name := range part.names {
			fmt.Fprintf(&b, "%s %s\n", part.sign, plainText(name))
		}
	}
	if len(d.Added)+len(d.Changed)+len(d.Removed) == 0 && d.Installed {
		b.WriteString("the capabilities are the same; something else of the payload differs, such as its code\n")
	}
	return b.String()
}
