package device

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// identity is the stored identity of a node. The secret half of its key is in a file of
// its own.
type identity struct {
	ID        string   `json:"node_id"`
	Gateway   string   `json:"gateway,omitzero"`
	PublicKey string   `json:"public_key,omitzero"`
	Labels    []string `json:"labels,omitzero"` // that the token granted
	Enrolled  bool     `json:"enrolled,omitzero"`
}

// folder is the folder with the identity and the key of one node.
type folder struct {
	dir  string
	lock *os.File
}

// openFolder creates the folder and locks it, because only one process may use it.
func openFolder(dir string) (*folder, error) {
	if err := hostfs.Supported(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "node.open", "the node's folder "+dir+" cannot be made", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "node.open", "the lock of the node's folder cannot be opened", err)
	}
	if err := hostfs.TryLock(f); err != nil {
		defer f.Close()
		if !errors.Is(err, hostfs.ErrHeld) {
			return nil, capability.Wrap(capability.CodeFailed, "node.open", "the node's folder "+dir+" cannot be locked", err).
				With("", "keep it on a disk of this machine")
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		return nil, capability.Errorf(capability.CodeConflict, "node.open", "process %s is the node of this folder already",
			orUnknown(string(pid))).
			With("node_running", "junctor node status shows it; one home is one node")
	}
	if err := f.Truncate(0); err == nil {
		_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // named in the error of another process
	}
	return &folder{dir: dir, lock: f}, nil
}

func orUnknown(s string) string {
	if s = strings.TrimSpace(s); s != "" {
		return s
	}
	return "(unknown)"
}

func (f *folder) close() {
	_ = f.lock.Truncate(0)
	_ = f.lock.Close()
}

// identity reads the stored identity. A new node receives id.
func (f *folder) identity(id string) (identity, error) {
	who := identity{ID: id}
	data, err := os.ReadFile(filepath.Join(f.dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return who, nil
	}
	if err == nil {
		who = identity{}
		err = jsonx.Unmarshal(data, &who)
	}
	if err == nil {
		err = cmp.CheckNode(who.ID)
	}
	if err != nil {
		return who, capability.Wrap(capability.CodeFailed, "node.open", "the file state.json of the node's folder cannot be read", err).
			With("", "remove it to enrol the node again")
	}
	if id != "" && id != who.ID { // the user has renamed the node
		who = identity{ID: id}
	}
	return who, nil
}

func (f *folder) save(who identity) error {
	data, err := json.MarshalIndent(who, "", "  ")
	if err != nil {
		return err
	}
	return hostfs.WriteFile(filepath.Join(f.dir, "state.json"), append(data, '\n'))
}

// key returns the node's key, and creates it if it does not exist.
func (f *folder) key() (messaging.Key, error) {
	path := filepath.Join(f.dir, "key")
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		seed, key, err := natsdial.NewKey()
		if err == nil {
			err = hostfs.WriteFile(path, []byte(seed.Reveal()+"\n"))
		}
		if err != nil {
			return key, capability.Wrap(capability.CodeFailed, "node.open", "the node's key cannot be kept", err)
		}
		return key, nil
	}
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return messaging.Key{}, capability.Errorf(capability.CodeDenied, "node.open", "others may read the node's key %s",
			path).With("key_exposed", "chmod 600 "+path)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if err != nil {
		return messaging.Key{}, capability.Wrap(capability.CodeFailed, "node.open", "the node's key cannot be read", err)
	}
	return natsdial.ParseKey(secret.New(strings.TrimSpace(string(data))))
}

// web is the HTTP side of a gateway, or of several gateways of one cluster.
type web struct {
	bases  []*url.URL
	client *http.Client

	mu sync.Mutex
	at int // the one that answered last
}

// send sends a request to the gateway that answered last and, if it cannot be reached, to
// the others in turn.
func (w *web) send(ctx context.Context, make func(base *url.URL) (*http.Request, error)) (*http.Response, error) {
	w.mu.Lock()
	at := w.at
	w.mu.Unlock()
	var failed []error
	for range w.bases {
		req, err := make(w.bases[at])
		if err != nil {
			return nil, err
		}
		resp, err := w.client.Do(req)
		if err == nil && resp.StatusCode < http.StatusInternalServerError {
			w.prefer(at)
			return resp, nil
		}
		at = (at + 1) % len(w.bases)
		if err == nil {
			w.prefer(at) // the next time
			return resp, nil
		}
		if failed = append(failed, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failed...)
}

func (w *web) prefer(at int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

// hosts returns the names of the gateways, for messages.
func (w *web) hosts() string {
	var names []string
	for _, u := range w.bases {
		names = append(names, u.Host)
	}
	return strings.Join(names, " or ")
}

// enrol sends the node's public key and the operator's token. It retries until a gateway
// answers, because a node may start first; waiting receives the reason of each retry. A
// refusal is an error.
func (w *web) enrol(ctx context.Context, who identity, token secret.Value, waiting func(error)) (*wire.EnrolReply, error) {
	pause := messaging.DialOptions{ReconnectWait: time.Second, ReconnectMax: time.Minute}
	for n := 1; ; n++ {
		reply, again, err := w.ask(ctx, who, token)
		if err == nil || !again {
			return reply, err
		}
		waiting(err)
		select {
		case <-time.After(pause.Pause(n, rand.Float64())):
		case <-ctx.Done():
			return nil, capability.AsError(ctx.Err())
		}
	}
}

// ask makes one attempt to enrol. again reports that a later attempt may succeed.
func (w *web) ask(ctx context.Context, who identity, token secret.Value) (reply *wire.EnrolReply, again bool, err error) {
	body, err := wire.Encode(&wire.Enrol{NodeID: who.ID, PublicKey: who.PublicKey})
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, webTimeout)
	defer cancel()
	resp, err := w.send(ctx, func(base *url.URL) (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base.JoinPath(wire.EnrolPath).String(), bytes.NewReader(body))
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+token.Reveal())
		}
		return req, err
	})
	if err != nil {
		return nil, true, capability.Wrap(capability.CodeUnavailable, "node.enrol", "the gateway "+w.hosts()+" is not reached", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(data) > maxAnswer {
		return nil, true, capability.Wrap(capability.CodeUnavailable, "node.enrol", "the gateway's answer cannot be read", err)
	}
	if resp.StatusCode == http.StatusOK {
		reply, err := wire.Decode[wire.EnrolReply](data)
		if err != nil {
			return reply, false, capability.Wrap(capability.CodeInvalidInput, "node.enrol", "what answers at "+w.hosts()+" is not a gateway",
				err).With("", "check the URL: it is that of a junctor server")
		}
		if reply.NodeID != who.ID {
			err = cmp.Errorf(cmp.ReasonEncoding, "the gateway enrolled %s, not %s", reply.NodeID, who.ID)
		}
		return reply, false, err
	}
	e := refusal(resp, data, "node.enrol")
	switch resp.StatusCode {
	case http.StatusConflict:
		e.Hint = "choose another id (--id), or remove the other on the gateway: junctor nodes remove " + who.ID
	case http.StatusUnauthorized, http.StatusForbidden:
		if e.Hint == "" {
			e.Hint = "the token must be a node token: junctor tokens create --role node"
		}
	case http.StatusNotFound:
		e.Message = "there is no gateway for nodes at " + resp.Request.URL.Host
	}
	return nil, resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500, e
}

// refusal is what a gateway answered in place of what was wanted. Its words are kept,
// if it is one of ours, its code only where it fits the status.
func refusal(resp *http.Response, data []byte, op string) *capability.Error {
	var body struct {
		Error *capability.Error `json:"error"`
	}
	code := codeOf(resp.StatusCode)
	if json.Unmarshal(data, &body) != nil || body.Error == nil || body.Error.Message == "" {
		return capability.Errorf(code, op, "the gateway %s answered with status %d", resp.Request.URL.Host, resp.StatusCode)
	}
	e := capability.Errorf(code, op, "%.1000s", body.Error.Message).With(body.Error.Reason, fmt.Sprintf("%.1000s", body.Error.Hint))
	return e
}

func codeOf(status int) capability.Code {
	switch status {
	case http.StatusBadRequest:
		return capability.CodeInvalidInput
	case http.StatusUnauthorized:
		return capability.CodeUnauthenticated
	case http.StatusForbidden:
		return capability.CodeDenied
	case http.StatusNotFound:
		return capability.CodeNotFound
	case http.StatusConflict:
		return capability.CodeConflict
	case http.StatusRequestEntityTooLarge:
		return capability.CodeTooLarge
	case http.StatusTooManyRequests:
		return capability.CodeOverloaded
	}
	if status >= 500 {
		return capability.CodeUnavailable
	}
	return capability.CodeFailed
}
