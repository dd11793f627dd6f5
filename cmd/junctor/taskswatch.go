package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

func (a *app) taskWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "watch ID", Short: "Follow a task or thread until its end; exit 1 if it did not succeed", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			thread, err := a.threadOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			err = a.watchThread(cmd.Context(), thread)
			if cmd.Context().Err() != nil {
				return exitStatus(130) // as for all commands that follow a stream
			}
			return err
		},
	}
}

// line returns the first line of a text without control characters.
func line(text string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return plainText(first)
}

// watchThread prints the new events of a thread until it has ended.
func (a *app) watchThread(ctx context.Context, thread string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	seen := make(map[string]bool)
	for patience := 6; ; { // the summary is written just after the end
		var t struct {
			Status   string
			Summary  string
			Events   []json.RawMessage
			Sessions []struct{ SessionID, Label string }
		}
		if err := c.Do(ctx, http.MethodGet, threadPath(thread, "?fields=events,sessions"), nil, &t); err != nil {
			return err
		}
		labels := make(map[string]string)
		for _, s := range t.Sessions {
			labels[s.SessionID] = s.Label
		}
		for _, raw := range t.Events {
			event, err := decode[struct {
				ID, EventType, SessionID, Summary string
				CreatedAt                         time.Time
			}](raw)
			if err != nil {
				return err
			}
			if seen[event.ID] {
				continue
			}
			seen[event.ID] = true
			if a.json {
				if err := a.printJSON(raw); err != nil {
					return err
				}
				continue
			}
			a.printf("%s  %-20s %-10s %s\n", event.CreatedAt.Local().Format(time.TimeOnly), plainText(event.EventType),
				plainText(dash(labels[event.SessionID])), line(event.Summary))
		}
		switch t.Status {
		case "done":
			if patience--; t.Summary == "" && patience > 0 {
				break
			}
			if !a.json && t.Summary != "" {
				a.printf("\n%s\n", plainLines(t.Summary))
			}
			return nil
		case "failed", "interrupted", "archived":
			return capability.Errorf(capability.CodeFailed, "tasks.watch", "the thread is %s: %s", t.Status, line(t.Summary)).
				With("", "junctor tasks show "+thread+" has the whole of it")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return capability.AsError(ctx.Err())
		}
	}
}
