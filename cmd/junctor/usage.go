package main

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/core/audit"
)

func (a *app) usageCommand() *cobra.Command {
	var since, until, agent string
	var by []string
	var limit int
	c := &cobra.Command{
		Use: "usage", Short: "Count calls by agent, tool, provider or day", Args: cobra.NoArgs,
		Example: `  junctor audit usage --since 24h
  junctor audit usage --by agent,day --since 168h
  junctor audit usage --by tool --agent agent:local-agent`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{"by": {strings.Join(by, ",")}, "limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"since": since, "until": until, "agent": agent} {
				if value != "" {
					query.Set(name, value)
				}
			}
			return shows(a, "/api/v1/usage?"+query.Encode(), func(out struct{ Usage []audit.Usage }) error {
				var head []string
				for _, key := range by {
					head = append(head, strings.ToUpper(key))
				}
				var rows [][]string
				for _, u := range out.Usage {
					of := map[audit.UsageKey]string{
						audit.ByUser: u.User, audit.ByCapability: toolName(u.Capability), audit.ByProvider: u.Provider, audit.ByDay: u.Day,
					}
					var row []string
					for _, key := range by {
						row = append(row, dash(of[audit.UsageKey(key)]))
					}
					rows = append(rows, append(row, strconv.FormatInt(u.Calls, 10), strconv.FormatInt(u.Failed, 10),
						strconv.FormatInt(u.Refused, 10), when(u.Last)))
				}
				return a.table(append(head, "CALLS", "FAILED", "REFUSED", "LAST"), rows, "no call was recorded in this time")
			})(cmd, nil)
		},
	}
	f := c.Flags()
	f.StringVar(&since, "since", "", "`TIME` only from this time on, or a duration ago such as 24h")
	f.StringVar(&until, "until", "", "`TIME` only before this time, or a duration ago such as 15m")
	f.StringVar(&agent, "agent", "", "`NAME` only calls of this principal, such as agent:local-agent")
	f.StringSliceVar(&by, "by", []string{"agent", "tool"}, "`KEYS` what calls are grouped by: agent, tool, provider, day")
	f.IntVar(&limit, "limit", 100, "`N` at most this many rows, those with the most calls first")
	return c
}
