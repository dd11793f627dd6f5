package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/policyfiles"
)

func (a *app) policyCommand() *cobra.Command {
	c := a.group("policy", "Decide which tools agents may call: allow, ask or deny",
		a.policyListCommand(), a.policyShowCommand(), a.policyCheckCommand(), a.policyTestCommand(),
		a.policyToolCommand(policy.SettingAllow, "Let agents call a tool without approval"),
		a.policyToolCommand(policy.SettingAsk, "Require an approval for each call of a tool"),
		a.policyToolCommand(policy.SettingDeny, "Forbid a tool and hide it from agents"),
		a.policyToolCommand(policy.SettingReset, "Remove the rule about a tool"),
		a.policySetCommand())
	c.Long = `Rules decide for every call whether it runs (allow), waits for an approval (ask), or is
refused (deny). They are Cedar files in the policy folder of the home. These commands
edit the file tools.cedar there; changes of any file are in force within a second.`
	c.Example = `  junctor policy allow files/read_file
  junctor policy deny files/write_file --for agent:claude
  junctor policy set files strict
  junctor policy test --as agent:claude files/write_file`
	return c
}

// policyRow is a rule in answers of the server.
type policyRow = policy.Rule

func (a *app) policyListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the rules in force", Args: cobra.NoArgs,
		RunE: shows(a, "/api/v1/policy", func(out policyAnswer) error {
			var rows [][]string
			for _, r := range out.Rules {
				rows = append(rows, []string{r.ID, effectOf(r), fmt.Sprintf("%s:%d", r.File, r.Line)})
			}
			if err := a.table([]string{"RULE", "EFFECT", "PLACE"}, rows, "no rule is in force, so every call is refused"); err != nil {
				return err
			}
			a.printPolicyFaults(out)
			return nil
		}),
	}
}

// policyAnswer is the answer of GET /api/v1/policy.
type policyAnswer struct {
	Rules   []policyRow
	Fault   *capability.Error
	Unknown []policy.Name
}

// printPolicyFaults prints why files are not in force, and names that do not exist.
func (a *app) printPolicyFaults(out policyAnswer) {
	if out.Fault != nil {
		a.printf("\nThe files on disk cannot be used, so the rules above stay in force: %s\n", plainText(out.Fault.Message))
	}
	for _, n := range out.Unknown {
		line := fmt.Sprintf("\nThe rule %s names %s::%q, which does not exist here", n.Rule, n.Type, n.ID)
		if len(n.Near) > 0 {
			line += "; did you mean " + strings.Join(n.Near, " or ") + "?"
		}
		a.printf("%s\n", plainText(line))
	}
}

// effectOf returns the effect of a rule as lists show it.
func effectOf(r policyRow) string {
	switch {
	case r.Approval != "" && r.Effect == "forbid":
		return "ask " + string(r.Approval)
	case r.Approval != "":
		return "permit after approval (" + string(r.Approval) + ")"
	}
	return r.Effect
}

func (a *app) policyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use: "show [RULE]", Short: "Show the text of all rules, or of one", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.call(cmd.Context(), http.MethodGet, "/api/v1/policy", nil, decoded(func(out policyAnswer) error {
				shown := 0
				for _, r := range out.Rules {
					if len(args) == 0 || r.ID == args[0] {
						a.printf("// %s:%d\n%s\n\n", r.File, r.Line, plainLines(r.Text))
						shown++
					}
				}
				if shown == 0 && len(args) > 0 {
					return capability.Errorf(capability.CodeNotFound, "policy.show", "no rule in force has the id %q", args[0]).
						With("", "see the ids with: junctor policy list")
				}
				return nil
			}))
		},
	}
}

func (a *app) policyCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check FILE", Short: "Check a policy file without using it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return capability.Errorf(capability.CodeInvalidInput, "policy.check", "%s cannot be read: %s", args[0], err)
			}
			body := map[string]string{"name": filepath.Base(args[0]), "text": string(text)}
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/policy/check", body, decoded(func(out struct{ Rules []policyRow }) error {
				a.printf("%s can be used: %d %s\n", args[0], len(out.Rules), counted(len(out.Rules), "rule", "rules"))
				return nil
			}))
		},
	}
}

func (a *app) policyTestCommand() *cobra.Command {
	var as string
	c := &cobra.Command{
		Use: "test TOOL [INPUT]", Short: "Show the decision about a call without making it", Args: cobra.RangeArgs(1, 2),
		Long: `Shows whether a call would be allowed, would need an approval, or would be refused, and
which rule decides. TOOL is SERVER/TOOL, a canonical action, or a capability id.`,
		Example: `  junctor policy test --as agent:claude files/write_file '{"path": "a.txt", "text": "hi"}'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"as": as, "target": args[0]}
			if len(args) > 1 {
				if !json.Valid([]byte(args[1])) {
					return capability.Errorf(capability.CodeInvalidInput, "policy.test", "the input is not JSON")
				}
				body["input"] = json.RawMessage(args[1])
			}
			return a.call(cmd.Context(), http.MethodPost, "/api/v1/policy/test", body, decoded(func(out struct {
				Results []struct {
					Tool, Provider, Decision, Because string
					Rules                             []policyRow
					InputError                        string `json:"input_error"`
				}
			},
			) error {
				for _, r := range out.Results {
					a.printf("%-5s  %s on %s: %s\n", r.Decision, plainText(r.Tool), plainText(r.Provider), plainText(reasonOf(r.Rules, r.Because)))
					if r.InputError != "" {
						a.printf("       the input does not fit the tool: %s\n", plainText(r.InputError))
					}
				}
				return nil
			}))
		},
	}
	c.Flags().StringVar(&as, "as", "", "`PRINCIPAL` the principal that calls, such as agent:local-agent (see junctor tokens list)")
	_ = c.MarkFlagRequired("as")
	return c
}

// reasonOf returns the rules of a decision with their places, or the other reason.
func reasonOf(rules []policyRow, because string) string {
	var places []string
	for _, r := range rules {
		places = append(places, fmt.Sprintf("rule %s (%s:%d)", r.ID, r.File, r.Line))
	}
	if because != "" {
		places = append(places, because)
	}
	return strings.Join(places, ", ")
}

func (a *app) policyToolCommand(setting policy.Setting, short string) *cobra.Command {
	change := policy.Change{Setting: setting}
	var dry bool
	c := &cobra.Command{
		Use: string(setting) + " TOOL", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `.

TOOL is SERVER/TOOL, as junctor tools list shows it, or a canonical action such as
fs.writeText. A later rule about the same tool replaces the earlier one.`,
		Example: "  junctor policy " + string(setting) + " files/write_file",
		RunE: func(cmd *cobra.Command, args []string) error {
			change.Target = args[0]
			return a.changePolicy(cmd, change, dry)
		},
	}
	c.Flags().StringVar(&change.For, "for", "", "`PRINCIPAL` only for this principal, such as agent:claude; all agents if not given")
	c.Flags().BoolVar(&change.New, "new", false, "with --for: also for a principal that has no token yet")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the rule without writing it")
	return c
}

func (a *app) policySetCommand() *cobra.Command {
	var change policy.Change
	var dry bool
	c := &cobra.Command{
		Use: "set SERVER guarded|open|strict", Short: "Choose a preset for all tools of a server", Args: cobra.ExactArgs(2),
		Long: `Chooses what agents may do with all tools of one MCP server or A2A agent:

  guarded  tools that only read run; all others need an approval (the default)
  open     every tool runs and is recorded; destructive ones still need an approval,
           unless --including-destructive is given
  strict   every tool needs an approval

Rules about single tools come on top: see junctor policy allow, ask and deny.`,
		Example: "  junctor policy set files strict",
		RunE: func(cmd *cobra.Command, args []string) error {
			change.Target, change.Setting = args[0], policy.Setting(args[1])
			return a.changePolicy(cmd, change, dry)
		},
	}
	c.Flags().StringVar(&change.For, "for", "", "`PRINCIPAL` only for this principal, such as agent:claude; all agents if not given")
	c.Flags().BoolVar(&change.New, "new", false, "with --for: also for a principal that has no token yet")
	c.Flags().BoolVar(&change.IncludingDestructive, "including-destructive", false,
		"with open: also tools that declare themselves destructive")
	c.Flags().BoolVar(&dry, "dry-run", false, "show the rule without writing it")
	return c
}

// changePolicy makes one change and prints the rule that was written or removed.
func (a *app) changePolicy(cmd *cobra.Command, change policy.Change, dry bool) error {
	body := struct {
		policy.Change
		DryRun bool `json:"dry_run,omitempty"`
	}{change, dry}
	return a.call(cmd.Context(), http.MethodPost, "/api/v1/policy/changes", body, decoded(func(done policyfiles.Changed) error {
		switch {
		case done.Before == done.After && done.Rule == "":
			a.printf("nothing to reset: policy/%s has no rule %q; the other rules decide, see: junctor policy list\n"+
				"an answer \"always\" is taken back with: junctor grants revoke %s\n", done.File, change.ID(), plainText(change.Target))
		case done.Before == done.After:
			a.printf("nothing to change: %s already says so\n", done.File)
		case done.Rule == "":
			verb := map[bool]string{true: "would remove", false: "removed"}[dry]
			a.printf("%s the rule from policy/%s; the other rules decide now\n", verb, done.File)
		default:
			a.printf("%s policy/%s:\n\n%s\n", map[bool]string{true: "would write to", false: "written to"}[dry], done.File, plainLines(done.Rule))
		}
		return nil
	}))
}
