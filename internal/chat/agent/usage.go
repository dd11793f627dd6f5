package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// asks counts a request to the model. The caller holds r.mu.
func (r *run) asks() {
	r.row.ModelCalls++
	r.used.ModelCalls++
}

// consumes counts the tokens of an answer. The caller holds r.mu.
func (r *run) consumes(u modelwire.Usage) {
	r.row.Tokens += u.In + u.Out
	r.row.Cost += u.Cost
	r.used.Tokens += u.In + u.Out
	r.used.Cost += u.Cost
}

// DayOf returns the day that a time belongs to.
func DayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// spent returns why a person may use no more today, or "".
func (e *Engine) spent(ctx context.Context, person string) (string, error) {
	most := e.cfg.Budget.Day
	if most == (Used{}) {
		return "", nil
	}
	today := DayOf(e.cfg.Now())
	days, err := e.cfg.Journal.Usage(ctx, person, today, today)
	if err != nil || len(days) == 0 {
		return "", err
	}
	used := days[0].Used
	over := func(used, most int) bool { return most > 0 && used >= most }
	switch {
	case over(used.ModelCalls, most.ModelCalls):
		return fmt.Sprintf("the limit of %d requests to the model a day is reached", most.ModelCalls), nil
	case over(used.ToolCalls, most.ToolCalls):
		return fmt.Sprintf("the limit of %d calls a day is reached", most.ToolCalls), nil
	case over(used.Tokens, most.Tokens):
		return fmt.Sprintf("the limit of %d tokens a day is reached", most.Tokens), nil
	case most.Cost > 0 && used.Cost >= most.Cost:
		return "the limit of the cost of a day is reached", nil
	}
	return "", nil
}

// Usage returns what the agent used for the principal on the last days, for all persons if it is an
// operator. The latest day is first.
func (e *Engine) Usage(ctx context.Context, who capability.Principal, days int) ([]Day, error) {
	person := who.ID
	if who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator {
		person = ""
	}
	now := e.cfg.Now()
	return e.cfg.Journal.Usage(ctx, person, DayOf(now.AddDate(0, 0, 1-max(1, min(days, MaxUsageDays)))), DayOf(now))
}
