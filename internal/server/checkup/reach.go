package checkup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/secret"
)

// Silent returns the finding that no server responds at where. where and pid are from run/server.json
// of the home. start is the command that starts a server.
func Silent(home, where string, pid int, start string) httpapi.Check {
	if !held(filepath.Join(home, "run", "lock")) { // another process may have the process id now
		return bad("server", fmt.Sprintf("the server of this home was killed (process %d is gone); nothing that it answered is lost", pid),
			"start it again: "+start)
	}
	return bad("server", fmt.Sprintf("process %d has this home and does not answer at %s", pid, where),
		fmt.Sprintf("look at its log; if it hangs: kill %d, then: %s", pid, start))
}

// held reports whether a server has the lock of a home. It acquires the lock for a moment, in which a
// server could not start.
func held(lock string) bool {
	f, err := os.Open(lock)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(hostfs.TryLock(f), hostfs.ErrHeld)
}

// port finds that another process uses the address on which a server would listen.
func (c Config) port(ctx context.Context) httpapi.Check {
	address := c.Settings.Listen
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		_, port, _ := net.SplitHostPort(address)
		return bad("address", fmt.Sprintf("the server could not listen on %s: %v", address, err),
			"see who does (ss -ltnp sport = :"+port+") and stop it, or start with another one: junctor serve --listen 127.0.0.1:0")
	}
	_ = l.Close()
	return good("address", "%s can be listened on", address)
}

// store checks whether the shared database can be used, without changing it.
func (c Config) store(ctx context.Context) httpapi.Check {
	s := c.Settings.Store
	if s.URL == "" {
		return good("store", "everything is in state/junctor.db of the home")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var password secret.Value
	if s.PasswordSecret != "" {
		password, _ = secretstore.Look(c.path("secrets"), Further(c.Settings), s.PasswordSecret) // another check reports a missing secret
	}
	if err := store.Reach(ctx, store.Postgres{URL: s.URL, Password: password}); err != nil {
		e := capability.AsError(err)
		remedy := e.Hint
		remedy = cmp.Or(remedy, "see that the server runs and can be reached")
		return bad("store", "the database "+store.PlaceOf(s.URL)+" cannot be used, so the server does not start: "+e.Message, remedy)
	}
	return good("store", "the database %s answers", store.PlaceOf(s.URL))
}

// bus checks whether one of the NATS servers can be reached.
func (c Config) bus(ctx context.Context) httpapi.Check {
	if c.Settings.NATS.URL == "" {
		return good("message bus", "inside the server")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var last error
	for address := range strings.SplitSeq(c.Settings.NATS.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil {
			continue // the configuration was checked
		}
		host := u.Host
		if u.Port() == "" {
			host = net.JoinHostPort(u.Hostname(), "4222")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
		if err == nil {
			_ = conn.Close()
			return good("message bus", "%s answers", host)
		}
		last = err
	}
	return bad("message bus", fmt.Sprintf("no server of nats.url answers: %v", last),
		"start the NATS servers, or mend the network to them; junctor config nats prints what they need")
}

// publicURL checks whether the public address leads to this server.
func publicURL(ctx context.Context, address string) httpapi.Check {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	remedy := "see that the proxy runs and passes requests on with their Host, or correct public_url and restart"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/healthz", nil)
	if err != nil {
		return bad("public address", "public_url is not an address: "+err.Error(), remedy)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return bad("public address", fmt.Sprintf("%s does not answer from here, so others may not reach it either: %v", address, err), remedy)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return bad("public address", fmt.Sprintf("%s/healthz answers %s, so it does not lead to this server", strings.TrimSuffix(address, "/"),
			resp.Status), remedy)
	}
	return good("public address", "%s leads to a server", address)
}
