package noderun

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// control is the socket in the home: a process that may open the file acts as the owner.
type control struct {
	p        *Process
	listener net.Listener
	server   *http.Server
}

// listen takes the place of a socket that a dead process left: the lock of the folder
// means that none is live.
func (p *Process) listen(path string) (*control, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, capability.Wrap(capability.CodeFailed, "node.control", "the socket of an earlier node cannot be removed", err)
	}
	l, err := listenPrivate(path)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "node.control", "the node's socket cannot be made", err).
			With("", "the path of the home may be too long for a socket (about 100 characters), or the disk full")
	}
	c := &control{p: p, listener: l}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", c.status)
	mux.HandleFunc("POST /drain", c.order((*device.Device).Drain))
	mux.HandleFunc("POST /leave", c.order(c.leave))
	mux.HandleFunc("POST /rescan", c.rescan)
	mux.HandleFunc("GET /consent", c.questions)
	mux.HandleFunc("POST /consent/{id}", c.answer)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	return c, nil
}

// listenPrivate makes a socket that other users cannot open, not even for a moment: it
// is made in a folder of its own and moved to its place.
func listenPrivate(path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s") // 0700
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	tmp := filepath.Join(dir, "s")
	l, err := net.Listen("unix", tmp)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		l.Close()
		os.Remove(tmp)
		return nil, err
	}
	return l, nil
}

// serve answers until ctx ends.
func (c *control) serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = os.Remove(Socket(c.p.cfg.Home))
		if c.server.Shutdown(ctx) != nil { // the client that requested the end is notified
			_ = c.server.Close()
		}
	})
	defer stop()
	if err := c.server.Serve(c.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if data, err := jsonx.Answer(v); err == nil {
		_, _ = w.Write(append(data, '\n')) // the other side may have gone
	}
}

func refuse(w http.ResponseWriter, err error) {
	e := capability.AsError(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Code.Row().HTTP)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": e})
}

func (c *control) status(w http.ResponseWriter, _ *http.Request) { answerJSON(w, c.p.report()) }

// order gives an order and answers when it has been carried out.
func (c *control) order(give func(*device.Device, context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := give(c.p.device, r.Context()); err != nil {
			refuse(w, err)
			return
		}
		answerJSON(w, map[string]any{"ok": true, "node_id": c.p.device.ID()})
	}
}

// leave ends a node that has not enrolled yet, too.
func (c *control) leave(d *device.Device, ctx context.Context) error {
	err := d.Leave(ctx)
	if e := capability.AsError(err); e != nil && e.Reason == cmp.ReasonConnection {
		c.p.stop()
		return nil
	}
	return err
}

func (c *control) rescan(w http.ResponseWriter, r *http.Request) {
	c.p.device.Rescan(r.Context())
	host, _ := c.p.device.HostStatus()
	answerJSON(w, map[string]any{"ok": host.Sandbox.Error == nil, "sandbox": host.Sandbox, "actions": host.ActionCount})
}

func (c *control) questions(w http.ResponseWriter, _ *http.Request) {
	list := []device.Question{}
	if c.p.asked != nil {
		list = c.p.asked.list()
	}
	answerJSON(w, map[string]any{"questions": list})
}

func (c *control) answer(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Decision string `json:"decision"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, maxControl)).Decode(&body); err != nil {
		refuse(w, capability.Errorf(capability.CodeInvalidInput, "node.consent", "the answer is not a JSON object"))
		return
	}
	if err := c.p.Answer(r.PathValue("id"), body.Decision, "owner"); err != nil {
		refuse(w, err)
		return
	}
	answerJSON(w, map[string]any{"ok": true, "id": r.PathValue("id"), "decision": body.Decision})
}

// Ask sends a request to the node of a home. If the node does not run, it fails with
// unavailable, reason node_not_running.
func Ask(ctx context.Context, home, method, path string, body any) (json.RawMessage, error) {
	socket := Socket(home)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://node"+path, content)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return nil, capability.AsError(ctx.Err())
		}
		return nil, capability.Wrap(capability.CodeUnavailable, "node", "no node runs in the home "+home, err).With("node_not_running",
			"start one with: junctor node join URL --node-token-file FILE")
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxControl))
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "node", "the node went away while it answered", err)
	}
	if resp.StatusCode == http.StatusOK {
		return data, nil
	}
	var refusal struct {
		Error *capability.Error `json:"error"`
	}
	if json.Unmarshal(data, &refusal) != nil || refusal.Error == nil {
		return nil, capability.Errorf(capability.CodeFailed, "node", "the node answered with status %d", resp.StatusCode)
	}
	return nil, refusal.Error
}
