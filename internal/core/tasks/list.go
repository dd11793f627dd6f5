package tasks

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// Get returns a task of the owner. Error: not_found.
func (m *Manager) Get(ctx context.Context, owner, id string) (Task, error) {
	if e := m.entry(id); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.task.Owner != owner {
			return Task{}, notFound(id)
		}
		return e.task, nil
	}
	t, ok, err := m.cfg.Store.Task(ctx, id)
	switch {
	case err != nil:
		return Task{}, wrap(err)
	case !ok || t.Owner != owner:
		return Task{}, notFound(id)
	}
	t.Input = nil
	return t, nil
}

// List returns a page of an owner's tasks, the last changed first. A malformed cursor
// is invalid_input.
func (m *Manager) List(ctx context.Context, q Query) (Page, error) {
	before, id, err := parseCursor(q.Cursor)
	if err != nil {
		return Page{}, err
	}
	if q.Limit == 0 {
		q.Limit = 50
	}
	if q.Limit < 1 || q.Limit > 100 {
		return Page{}, capability.Errorf(capability.CodeInvalidInput, "tasks.list", "a page has 1 to 100 tasks, not %d", q.Limit)
	}
	limit := q.Limit
	q.Limit++ // one more, to detect a further page
	list, total, err := m.cfg.Store.Tasks(ctx, q, before, id)
	if err != nil {
		return Page{}, wrap(err)
	}
	p := Page{Tasks: list, Total: total}
	if len(list) > limit {
		p.Tasks = list[:limit]
		last := p.Tasks[limit-1]
		p.Next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", last.Updated.UnixNano(), last.ID))
	}
	return p, nil
}

func parseCursor(s string) (time.Time, string, error) {
	if s == "" {
		return time.Time{}, "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(s)
	at, id, ok := strings.Cut(string(data), ".")
	n, bad := strconv.ParseInt(at, 10, 64)
	if err != nil || bad != nil || !ok || len(s) > 128 || !strings.HasPrefix(id, "tsk_") {
		return time.Time{}, "", capability.Errorf(capability.CodeInvalidInput, "tasks.list",
			"the page token is not one of ours").With("invalid_cursor", "begin at the first page")
	}
	return time.Unix(0, n), id, nil
}
