package a2aserve

import (
	"context"

	"github.com/junctor-run/junctor/protocol/a2awire"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
)

// Bodies returns the documents by which a push reports a change, as a stream would.
func Bodies(before, now *tasks.Task, legacy bool) (bodies [][]byte) {
	for _, e := range events(before, now, shown{artifacts: true}) {
		var v any = e
		if legacy {
			e.Last = settled(now)
			v = e.V03()
		}
		if body, err := jsonx.Marshal(v); err == nil {
			bodies = append(bodies, body)
		}
	}
	return bodies
}

func (s *Surface) checkPush(p *a2awire.PushConfig) error {
	if s.cfg.Push == nil {
		return refuse(a2a.ErrPushNotificationNotSupported, "this server sends no push notifications")
	}
	c := configOf(p, false)
	return s.cfg.Push.Check(&c)
}

func configOf(p *a2awire.PushConfig, legacy bool) push.Config {
	c := push.Config{ID: p.ID, Task: p.TaskID, URL: p.URL, Token: p.Token, Legacy: legacy}
	if p.Auth != nil {
		c.Scheme, c.Credentials = p.Auth.Scheme, p.Auth.Credentials
	}
	return c
}

// shownPush returns a configuration for clients, without credentials.
func shownPush(c *push.Config) *a2awire.PushConfig {
	out := &a2awire.PushConfig{TaskID: c.Task, ID: c.ID, URL: c.URL, Token: c.Token}
	if c.Scheme != "" {
		out.Auth = &a2awire.PushAuth{Scheme: c.Scheme}
	}
	return out
}

func (s *Surface) setPush(ctx context.Context, c *caller, p *a2awire.PushConfig, t *tasks.Task) (*a2awire.PushConfig, error) {
	if p.ID == "" {
		p.ID = "push-" + ids.Text()
	}
	cfg := configOf(p, c.legacy)
	cfg.Task, cfg.Owner = t.ID, t.Owner
	if err := s.cfg.Push.Set(ctx, cfg, t); err != nil {
		return nil, err
	}
	return shownPush(&cfg), nil
}

func (s *Surface) createPush(ctx context.Context, c *caller, p *a2awire.PushConfig) (*a2awire.PushConfig, error) {
	t, err := s.pushTask(ctx, c, p.Tenant, p.TaskID)
	if err != nil {
		return nil, err
	}
	if err := s.checkPush(p); err != nil {
		return nil, err
	}
	return s.setPush(ctx, c, p, &t)
}

// pushTask returns the task of a push method, which must belong to the caller.
func (s *Surface) pushTask(ctx context.Context, c *caller, tenant, id string) (tasks.Task, error) {
	if s.cfg.Push == nil {
		return tasks.Task{}, refuse(a2a.ErrPushNotificationNotSupported, "this server sends no push notifications")
	}
	return s.find(ctx, c, &a2awire.TaskParams{Tenant: tenant, ID: id})
}

func (s *Surface) getPush(ctx context.Context, c *caller, p *a2awire.PushParams) (*a2awire.PushConfig, error) {
	if _, err := s.pushTask(ctx, c, p.Tenant, p.TaskID); err != nil {
		return nil, err
	}
	cfg, ok, err := s.cfg.Push.Get(ctx, c.who.ID, p.TaskID, p.ID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, refuse(a2a.ErrTaskNotFound, "the task has no push configuration of that id")
	}
	return shownPush(&cfg), nil
}

func (s *Surface) listPush(ctx context.Context, c *caller, p *a2awire.PushParams) (*a2awire.PushList, error) {
	if _, err := s.pushTask(ctx, c, p.Tenant, p.TaskID); err != nil {
		return nil, err
	}
	list, err := s.cfg.Push.List(ctx, c.who.ID, p.TaskID) // 16 at most: one page
	if err != nil {
		return nil, err
	}
	out := &a2awire.PushList{Configs: []a2awire.PushConfig{}}
	for i := range list {
		out.Configs = append(out.Configs, *shownPush(&list[i]))
	}
	return out, nil
}

func (s *Surface) deletePush(ctx context.Context, c *caller, p *a2awire.PushParams) error {
	if _, err := s.pushTask(ctx, c, p.Tenant, p.TaskID); err != nil {
		return err
	}
	return s.cfg.Push.Delete(ctx, c.who.ID, p.TaskID, p.ID)
}
