package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/serve/restserve"
	"github.com/junctor-run/junctor/internal/store/backup"
)

func (a *app) auditCommand() *cobra.Command {
	return a.group("audit", "Read the record of what was done",
		a.auditQueryCommand(),
		a.auditShortcut("trail [ID]", "List the records of an invocation or a task's calls, oldest first, with why",
			func(q url.Values, arg string) {
				if strings.HasPrefix(arg, "tsk_") {
					q.Set("parent", arg)
				} else {
					q.Set("run", arg)
				}
			}),
		a.auditShortcut("session ID", "List every record of one session", func(q url.Values, arg string) { q.Set("session", arg) }),
		a.auditShortcut("denied", "List the calls that were refused, and by which rule or decision",
			func(q url.Values, _ string) { q.Set("denied", "true") }),
		a.auditShowCommand(), a.auditForgetCommand(), a.auditVerifyCommand(), a.auditTailCommand())
}

// auditFilters returns the flags that filter audit records, with their query parameters.
func auditFilters() [][2]string {
	return [][2]string{
		{"ext", "`MODULE` only this module"},
		{"event", "`EVENT` only this event, such as capability_executed"},
		{"session", "`SESSION` only this session"},
		{"user", "`PRINCIPAL` only this principal, such as agent:local-agent"},
		{"run", "`ID` only this invocation"},
		{"cap", "`TARGET` only this tool, such as files/read_file, action or capability id"},
		{"provider", "`KEY` only calls that this provider was chosen for"},
		{"parent", "`ID` only calls that this invocation or task made"},
		{"approval", "`ID` only this approval, or the one whose id begins so, and the calls that it permitted"},
		{"level", "`LEVEL` only this level and above: DEBUG, INFO, WARNING or ERROR"},
		{"since", "`TIME` only after this time, or a duration ago such as 15m"},
		{"until", "`TIME` only before this time, or a duration ago such as 15m"},
		{"success", "`SUCCESS` only what succeeded (true) or did not (false)"},
	}
}

func (a *app) auditQueryCommand() *cobra.Command {
	values := make(map[string]*string)
	var limit int
	var format string
	c := &cobra.Command{
		Use: "query", Short: "List records that match, the newest first", Args: cobra.NoArgs,
		Example: `  junctor audit query --user agent:local-agent --since 1h
  junctor audit query --event permission_denied --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, v := range values {
				if *v != "" {
					q.Set(name, *v)
				}
			}
			switch format {
			case "json":
				a.json = true
			case "table":
			default:
				return capability.Errorf(capability.CodeInvalidInput, "", "--format %q is neither json nor table", format)
			}
			return a.auditList(cmd, q)
		},
	}
	for _, f := range auditFilters() {
		values[f[0]] = c.Flags().String(f[0], "", f[1])
	}
	c.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("at most so many, up to %d", restserve.MaxRecords))
	c.Flags().StringVar(&format, "format", "table", "`FORMAT` json or table")
	return c
}

// auditShortcut returns a command that lists up to 1000 records. set adds the filter for the
// command's optional argument.
func (a *app) auditShortcut(use, short string, set func(url.Values, string)) *cobra.Command {
	args := cobra.NoArgs
	if strings.Contains(use, " ") {
		args = cobra.ExactArgs(1)
	}
	trail := strings.HasPrefix(use, "trail ")
	if trail {
		args = cobra.MaximumNArgs(1)
	}
	arguments, latest := false, false
	c := &cobra.Command{
		Use: use, Short: short, Args: args, Example: "  junctor audit " +
			strings.Replace(strings.Replace(use, "trail [ID]", "trail run_0123456789abcdef01234567", 1), "session ID", "session s1", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if arguments && a.json {
				return capability.Errorf(capability.CodeInvalidInput, "", "--arguments is for people; use junctor audit show ID --json")
			}
			q := url.Values{"limit": {"1000"}}
			arg := ""
			if len(args) == 1 {
				arg = args[0]
			}
			if trail {
				var err error
				if arg, err = a.invocation(cmd, args, latest); err != nil {
					return err
				}
			}
			set(q, arg)
			if err := a.auditList(cmd, q); err != nil || !arguments {
				return err
			}
			kept, err := a.arguments(cmd.Context(), arg)
			if err == nil {
				a.printArguments(kept)
			}
			return err
		},
	}
	if trail {
		c.Flags().BoolVar(&latest, "latest", false, latestHelp)
		c.Flags().BoolVar(&arguments, "arguments", false, "show the arguments of the invocation, which is recorded")
	}
	return c
}

// reasons explains the decisions of records: the rules, the grant, or the approval with the principal
// that decided it.
type reasons struct {
	ctx      context.Context
	client   *client.Client // nil: no server runs
	short    func(id string) string
	deciders map[string]string // by approval
}

func (a *app) reasons(ctx context.Context, c *client.Client) *reasons {
	return &reasons{ctx: ctx, client: c, short: a.short, deciders: make(map[string]string)}
}

// cell returns why a call was decided as it was or failed, or what an event of another kind changed.
func (r *reasons) cell(row auditRow) string {
	m := row.Metadata
	var parts []string
	if ids := m.Decision.PolicyIDs; len(ids) > 0 {
		parts = append(parts, counted(len(ids), "rule ", "rules ")+strings.Join(ids, ", "))
	}
	if grant := cmp.Or(m.Decision.Grant, m.texts["grant"]); grant != "" && row.call() {
		parts = append(parts, "grant "+grant)
	}
	parts = append(parts, row.details()...)
	approval := cmp.Or(m.Decision.Approval, m.texts["approval"])
	if approval == "" && (m.Code == string(capability.CodeApprovalRequired) || m.Reason == policy.ReasonRejected) {
		approval = requestedApproval().FindString(row.Error) // the decision names an approval only once it was given
	}
	switch {
	case approval == "":
	case row.Event == string(audit.ConfirmationAnswered): // its principal decided
		parts = append(parts, "approval "+r.short(approval))
	default:
		parts = append(parts, "approval "+r.short(approval)+r.decider(approval))
	}
	failed := row.Event == string(audit.CapabilityFailed) || row.Event == string(audit.SecurityViolation)
	if row.Error != "" && (len(parts) == 0 || failed || !row.call()) {
		parts = append(parts, row.Error)
	}
	return dash(strings.Join(parts, ", "))
}

// requestedApproval matches the id of an approval in the text of an error.
func requestedApproval() *regexp.Regexp { return regexp.MustCompile(`\b(apr|cnf)_[0-9a-f]+\b`) }

// decider returns the state of an approval with who decided it, or "" if it cannot be read.
func (r *reasons) decider(id string) string {
	if known, ok := r.deciders[id]; ok || len(r.deciders) >= maxDeciders || r.client == nil {
		return known
	}
	var out struct {
		Approval struct {
			State     string
			DecidedBy string `json:"decided_by"`
		}
	}
	text := ""
	if err := r.client.Do(r.ctx, http.MethodGet, "/api/v1/approvals/"+url.PathEscape(id), nil, &out); err == nil {
		text = " (" + out.Approval.State
		if out.Approval.DecidedBy != "" {
			text += " by " + out.Approval.DecidedBy
		}
		text += ")"
	}
	r.deciders[id] = text
	return text
}

// auditList prints the records that match q. The commands trail and session fail with not_found if
// none exist.
func (a *app) auditList(cmd *cobra.Command, q url.Values) error {
	if err := a.wholeApproval(cmd.Context(), q); err != nil {
		return err
	}
	c, raw, err := a.records(cmd.Context(), q)
	if err != nil {
		return err
	}
	if c == nil {
		a.note(fromFiles)
	}
	out, err := decode[struct{ Records []auditRow }](raw)
	if err != nil {
		return err
	}
	if id := q.Get("run") + q.Get("parent"); cmd.Name() == "trail" && len(out.Records) == 0 {
		return capability.Errorf(capability.CodeNotFound, "", "the log has no invocation, and no call of a task, with the ID %q", id).With("",
			"find its id with: junctor audit query")
	}
	if session := q.Get("session"); cmd.Name() == "session" && len(out.Records) == 0 {
		return capability.Errorf(capability.CodeNotFound, "", "the log knows no session %q", session).With("",
			"find its id with: junctor audit query --json")
	}
	if a.json {
		return a.printJSON(raw)
	}
	var rows [][]string
	head, why := auditHead(), a.reasons(cmd.Context(), c)
	if cmd.Name() == "trail" {
		slices.Reverse(out.Records) // a story is read from its beginning
	}
	for _, r := range out.Records {
		if a.columns() > 0 {
			head, rows = narrowHead(), append(rows, r.narrow(why.cell(r)))
		} else {
			rows = append(rows, append(r.cells(), why.cell(r)))
		}
	}
	return a.table(head, rows, "no record matches; see the latest with: junctor audit query")
}

func (a *app) auditVerifyCommand() *cobra.Command {
	var anchors string
	c := &cobra.Command{
		Use: "verify", Short: "Verify the whole chain and name the first bad record", Args: cobra.NoArgs,
		Long: `Verify the whole chain and name the first bad record; the exit status is then 1. Where
no server runs on the home, the files are read and not changed, with the home's key
and database. Records that the server did not write have no valid code; missing ones
are found by the database, and by the checkpoints that audit.anchor wrote elsewhere.
Those of a URL or of syslog are given as a file: the lines that were received.`,
		Example: `  junctor audit verify
  journalctl -t junctor > anchors.txt && junctor audit verify --anchors anchors.txt`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, raw, err := a.verify(cmd, anchors)
			if err != nil {
				return err
			}
			if a.json {
				err = a.printJSON(raw)
			} else if report.FirstBad == nil {
				a.printf("the chain holds: %d records in %d %s\n", report.Records, report.Segments, counted(report.Segments, "segment", "segments"))
				if report.Anchors > 0 {
					a.printf("%d %s of the anchor agree\n", report.Anchors, counted(int(report.Anchors), "checkpoint", "checkpoints"))
				}
				if report.AnchorsSkipped > 0 {
					a.note(fmt.Sprintf("%d lines of the anchor name this log and were not written by it; they were ignored", report.AnchorsSkipped))
				}
				if !report.Keyed {
					a.note("only hashes were checked, because the key state/audit.key of the home is missing")
				}
			} else {
				a.printf("the chain is broken at record %d in segment %d: %s\n", report.FirstBad.Seq, report.FirstBad.Segment,
					plainText(report.FirstBad.Reason))
			}
			if err == nil && report.FirstBad != nil {
				return exitStatus(1)
			}
			return err
		},
	}
	c.Flags().StringVar(&anchors, "anchors", "", "`FILE` compare with the checkpoints in this file, and read the home without its server")
	return c
}

// verify lets the server verify the audit log. If no server runs on the home, or anchors names a file,
// it reads the files itself without changing them.
func (a *app) verify(cmd *cobra.Command, anchors string) (audit.VerifyReport, json.RawMessage, error) {
	c, err := a.client()
	if err == nil && anchors == "" {
		var raw json.RawMessage
		err = c.Do(cmd.Context(), http.MethodGet, "/api/v1/audit/verify", nil, &raw)
		if err == nil {
			report, err := decode[audit.VerifyReport](raw)
			return report, raw, err
		}
	}
	far := a.far()
	if anchors == "" && (far || capability.CodeOf(err) != capability.CodeUnavailable) {
		return audit.VerifyReport{}, nil, err
	}
	if far {
		return audit.VerifyReport{}, nil, capability.Errorf(capability.CodeInvalidInput, "",
			"--anchors reads a home of this machine, so it cannot be used with the address of a server")
	}
	home, err := a.findHome()
	if err != nil {
		return audit.VerifyReport{}, nil, err
	}
	if anchors != "" {
		if anchors, err = filepath.Abs(anchors); err == nil {
			_, err = os.Stat(anchors)
		}
	} else if cfg, cfgErr := a.loadConfig(home, "", nil); cfgErr == nil { // a configuration with faults must not prevent it
		anchors = cfg.Audit.Anchor
	}
	if err != nil {
		return audit.VerifyReport{}, nil, capability.Wrap(capability.CodeInvalidInput, "", "--anchors: "+anchors+" cannot be read", err)
	}
	report, err := backup.VerifyAudit(cmd.Context(), home, anchors)
	if errors.Is(err, fs.ErrNotExist) {
		return audit.VerifyReport{}, nil, capability.Wrap(capability.CodeNotFound, "", home+" does not contain an audit log", err).With("",
			"name the home of a server with --home")
	}
	if err != nil {
		return report, nil, err
	}
	raw, err := json.Marshal(report)
	return report, raw, err
}

const fromFiles = "no server runs on the home, so that its files are read"

// far reports whether commands are for a server that is named by its address.
func (a *app) far() bool { return a.server != "" || a.env("JUNCTOR_URL") != "" }

// records returns the records that match q as the server's answer. If no server runs on the home, it
// reads the files of the home, without changing them, and the client is nil.
func (a *app) records(ctx context.Context, q url.Values) (*client.Client, json.RawMessage, error) {
	c, err := a.client()
	if err == nil {
		var raw json.RawMessage
		err = c.Do(ctx, http.MethodGet, "/api/v1/audit?"+q.Encode(), nil, &raw)
		if err == nil {
			return c, raw, nil
		}
	}
	if a.far() || capability.CodeOf(err) != capability.CodeUnavailable {
		return nil, nil, err
	}
	home, homeErr := a.findHome()
	if homeErr != nil {
		return nil, nil, homeErr
	}
	query, denied, queryErr := restserve.ParseQuery(q)
	if queryErr != nil {
		return nil, nil, queryErr
	}
	query.Capability = restserve.RecordedAs(query.Capability)
	list, readErr := backup.QueryAudit(ctx, home, query, denied)
	if errors.Is(readErr, fs.ErrNotExist) {
		return nil, nil, err
	}
	if readErr != nil {
		return nil, nil, capability.Wrap(capability.CodeFailed, "audit", "the record of "+home+" cannot be read", readErr)
	}
	raw, err := json.Marshal(map[string]any{"records": append([]json.RawMessage{}, list...)})
	return nil, raw, err
}

// wholeApproval completes the beginning of an approval's id in a filter.
func (a *app) wholeApproval(ctx context.Context, q url.Values) error {
	id := q.Get("approval")
	if id == "" {
		return nil
	}
	whole, err := a.findApproval(ctx, id)
	if capability.CodeOf(err) == capability.CodeUnavailable && !a.far() {
		return nil // the files of the home are read
	}
	if err == nil {
		q.Set("approval", whole)
	}
	return err
}

func (a *app) auditTailCommand() *cobra.Command {
	return &cobra.Command{
		Use: "tail", Short: "Follow new records as they are written", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.follow(cmd, "/api/v1/audit/tail", func(line json.RawMessage) error {
				r, err := decode[auditRow](line)
				if err != nil {
					return err
				}
				what, _ := r.subject()
				a.printf("%s %-7s %s %s %s %s\n", when(r.Timestamp), r.Level, r.Event, plainText(what), plainText(dash(r.who())),
					plainText(r.Error))
				return nil
			})
		},
	}
}

// follow prints a stream until it ends or the user interrupts it, which exits with 130.
func (a *app) follow(cmd *cobra.Command, path string, show func(json.RawMessage) error) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	for line, err := range c.Lines(cmd.Context(), http.MethodGet, path, nil) {
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(line)
		} else {
			err = show(line)
		}
		if err != nil {
			return err
		}
	}
	if cmd.Context().Err() != nil {
		return exitStatus(130) // Ctrl-C is the usual end and needs no message
	}
	return nil
}
