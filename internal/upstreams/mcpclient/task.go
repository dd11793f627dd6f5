package mcpclient

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/internal/base/pause"
)

// finishTask waits for the task that a legacy server made of a call (MCP 2025-11-25) and returns its
// result. Ask answers the questions of a task that requires input. If the call ends before the
// task, the server receives a cancellation.
func (c *Client) finishTask(ctx context.Context, r Request, task json.RawMessage) (json.RawMessage, error) {
	id := member(task, "taskId")
	if len(id) > maxID || len(id) < 3 || id[0] != '"' {
		return nil, c.nonsense("made a task of a call, without an id that can be used")
	}
	params := json.RawMessage(`{"taskId":` + string(id) + `}`)
	for {
		switch status := text(task, "status", 64); status {
		case "working":
		case "input_required", "completed", "failed", "cancelled":
			result, err := c.Call(ctx, Request{
				Method: "tasks/result", Params: params, Name: r.Name, Idle: r.Idle, Progress: r.Progress, Ask: r.Ask,
			})
			if ctx.Err() != nil {
				c.cancelTask(params)
			}
			return result, err
		default:
			return nil, c.nonsense("has a task in a state that does not exist: %s", status)
		}
		delay := taskPollDelay
		if ms, err := strconv.ParseFloat(string(member(task, "pollInterval")), 64); err == nil {
			delay = min(max(time.Duration(min(ms, 1e9))*time.Millisecond, minTaskPollDelay), maxTaskPollDelay)
		}
		var err error
		if pause.For(ctx, delay) == nil {
			task, err = c.Call(ctx, Request{Method: "tasks/get", Params: params, Idle: r.Idle})
		}
		if ctx.Err() != nil {
			c.cancelTask(params)
			return nil, c.ended(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
}

// cancelTask sends a cancellation, whose answer nothing depends on.
func (c *Client) cancelTask(params json.RawMessage) {
	c.spawn(func() {
		ctx, cancel := context.WithTimeout(c.ctx, noteTimeout)
		defer cancel()
		if _, err := c.Call(ctx, Request{Method: "tasks/cancel", Params: params}); err != nil {
			c.log.Debug("the cancellation of a task failed", "server", c.cfg.Name, "err", err)
		}
	})
}
