package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
)

// told is what servers say of a session that came or went.
type told struct {
	Server struct {
		ID string `json:"id"`
	} `json:"server"`
	Client struct {
		ID   uint64 `json:"id"`
		Host string `json:"host"`
		User string `json:"user"`
		Name string `json:"name"`
	} `json:"client"`
	Reason string `json:"reason"`
}

// listenToSessions turns what the servers say of their connections into events.
func (b *Broker) listenToSessions(ctx context.Context) error {
	for subject, kind := range map[string]messaging.SessionKind{
		"$SYS.ACCOUNT." + account + ".CONNECT":    messaging.SessionOpened,
		"$SYS.ACCOUNT." + account + ".DISCONNECT": messaging.SessionClosed,
	} {
		if _, err := b.system.Subscribe(subject, func(m *nats.Msg) { b.handleSession(kind, m.Data) }); err != nil {
			return err
		}
	}
	// A server that stops takes its sessions with it, whether it says so of each
	// or not.
	if _, err := b.system.Subscribe("$SYS.SERVER.*.SHUTDOWN", func(*nats.Msg) { b.sessions.Publish(b.sessions.Lost) }); err != nil {
		return err
	}
	return b.system.FlushWithContext(ctx)
}

func (b *Broker) handleSession(kind messaging.SessionKind, data []byte) {
	var e told
	if err := json.Unmarshal(data, &e); err != nil {
		b.cfg.Logger.Warn("what a server says of a session cannot be read", "err", err)
		b.sessions.Publish(b.sessions.Lost)
		return
	}
	if e.Client.User == b.keys.names.gateway {
		return
	}
	b.sessions.Publish(messaging.SessionEvent{Kind: kind, Reason: e.Reason, Session: messaging.Session{
		ID: fmt.Sprintf("%s.%d", e.Server.ID, e.Client.ID), Identity: e.Client.User, Name: e.Client.Name, Address: e.Client.Host,
	}})
}

// Disconnect asks the session's server to close it.
func (b *Broker) Disconnect(ctx context.Context, session string) error {
	gone := capability.Errorf(capability.CodeNotFound, "bus.disconnect", "there is no session %.100q", session)
	server, number, _ := strings.Cut(session, ".")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || messaging.Escape(server) != server || server == "" {
		return gone
	}
	ctx, cancel := context.WithTimeout(ctx, defaultTimeout)
	defer cancel()
	m, err := b.system.RequestWithContext(ctx, "$SYS.REQ.SERVER."+server+".KICK", fmt.Appendf(nil, `{"cid":%d}`, id))
	if errors.Is(err, nats.ErrNoResponders) {
		return gone // its server is gone, and it with it
	}
	if err != nil {
		return b.own.Fault("disconnect", session, err)
	}
	var says struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &says); err != nil {
		return capability.Wrap(capability.CodeFailed, "bus.disconnect", "the server's answer cannot be read", err)
	}
	if says.Error != nil {
		return gone
	}
	return nil
}
