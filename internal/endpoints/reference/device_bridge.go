package reference

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// run is one launched session of the app.
type run struct {
	id        string
	started   string
	refreshed int
}

func (r *run) view() object {
	return object{"sessionId": r.id, "status": "running", "mode": "viewer", "startedAt": r.started, "refreshes": r.refreshed}
}

func (d *device) registerBridge(e *Endpoint) {
	for hook, fn := range map[string]func(context.Context, bridgeParams) (any, error){
		"prepareLaunch":            d.prepareLaunch,
		"resolveViewerAuthMessage": d.viewerAuth,
		"ensureRuntimeReady":       d.ensureReady,
		"collectLaunchDiagnostics": d.diagnostics,
		"resolveLaunchSession":     d.launch,
		"refreshRunSession":        d.refresh,
		"stopRun":                  d.stop,
		"handleAppRoutes":          d.appRoutes,
	} {
		on(e, "plugin.appBridge.call", deviceID, hook, fn)
	}
}

type bridgeParams struct {
	Context struct {
		Method   string          `json:"method"`
		Pathname string          `json:"pathname"`
		Path     string          `json:"path"`
		Body     json.RawMessage `json:"body"`
		RunID    string          `json:"runId"`
		Session  struct {
			SessionID string `json:"sessionId"`
		} `json:"session"`
	} `json:"context"`
}

func (p bridgeParams) sessionID() string {
	if p.Context.Session.SessionID != "" {
		return p.Context.Session.SessionID
	}
	return p.Context.RunID
}

func (d *device) prepareLaunch(context.Context, bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return outcome{object{"ready": d.ready, "path": "/status", "running": len(d.runs)}}, nil
}

func (d *device) viewerAuth(_ context.Context, p bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.runs[p.sessionID()]
	if r == nil {
		return outcome{object{"type": "DEVICE_TOOLS_AUTH", "authenticated": false}}, nil
	}
	return outcome{object{"type": "DEVICE_TOOLS_AUTH", "authenticated": true, "sessionId": r.id}}, nil
}

func (d *device) ensureReady(context.Context, bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ready = true
	return outcome{object{"ready": true}}, nil
}

func (d *device) diagnostics(context.Context, bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := []object{}
	if !d.ready {
		list = append(list, object{"code": "not_initialised", "severity": "warning", "message": "init has not been called yet"})
	}
	if len(d.runs) == 0 {
		list = append(list, object{"code": "no_session", "severity": "info", "message": "no session is running"})
	}
	return outcome{list}, nil
}

func (d *device) launch(context.Context, bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.runs) >= maxRuns {
		return nil, capability.Errorf(capability.CodeOverloaded, "", "%d sessions are running already", maxRuns)
	}
	d.nextRun++
	r := &run{id: "run-" + strconv.Itoa(d.nextRun), started: stamp(d.now())}
	d.runs[r.id] = r
	return outcome{r.view()}, nil
}

func (d *device) refresh(_ context.Context, p bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id := p.sessionID()
	if id == "" {
		return outcome{object{"running": len(d.runs)}}, nil
	}
	r := d.runs[id]
	if r == nil {
		return nil, capability.Errorf(capability.CodeNotFound, "", "no session %q is running", id)
	}
	r.refreshed++
	return outcome{r.view()}, nil
}

func (d *device) stop(_ context.Context, p bridgeParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := len(d.runs)
	if id := p.sessionID(); id != "" {
		delete(d.runs, id)
	} else {
		clear(d.runs)
	}
	return outcome{object{"stopped": before - len(d.runs)}}, nil
}

// appRoutes serves GET /status and POST /echo; anything else is for others. elizaOS passes the whole
// path, /api/apps/<slug>/status.
func (d *device) appRoutes(ctx context.Context, p bridgeParams) (any, error) {
	path := cmp.Or(p.Context.Pathname, p.Context.Path)
	if rest, ok := strings.CutPrefix(path, "/api/apps/"); ok {
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	switch p.Context.Method + " " + path {
	case "GET /status":
		status, err := d.status(ctx, statusParams{})
		if err != nil {
			return nil, err
		}
		return outcome{object{"handled": true, "status": 200, "headers": object{"cache-control": "no-store"}, "body": status}}, nil
	case "POST /echo":
		if len(p.Context.Body) == 0 {
			return outcome{object{"handled": true, "status": 400, "body": object{"error": "a body is needed"}}}, nil
		}
		return outcome{object{"handled": true, "status": 200, "body": p.Context.Body}}, nil
	}
	return outcome{object{"handled": false, "reason": fmt.Sprintf("device-tools does not serve %s %s", p.Context.Method, path)}}, nil
}
