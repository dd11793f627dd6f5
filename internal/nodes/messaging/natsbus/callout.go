package natsbus

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/secret"
)

const (
	calloutSubject = "$SYS.REQ.USER.AUTH"
	// callouts limits the sessions that one gateway authorises at once.
	callouts = 64
)

// answerCallouts subscribes to the servers' authorisation requests, each of which goes to
// one gateway of the cluster.
func (b *Broker) answerCallouts(ctx context.Context) error {
	places := make(chan struct{}, callouts)
	sub, err := b.own.NATS().QueueSubscribe(calloutSubject, "gateways", func(m *nats.Msg) {
		if !b.enter() {
			return
		}
		go func() {
			defer b.wg.Done()
			b.answer(m, places)
		}()
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(10*messaging.DefaultPending, messaging.DefaultPendingBytes); err != nil {
		return err
	}
	b.callout = sub
	return b.own.NATS().FlushWithContext(ctx)
}

// leaveCallouts ends the subscription to authorisation requests. It returns once the
// servers send no more of them and those received are being answered.
func (b *Broker) leaveCallouts() {
	if b.callout == nil {
		return
	}
	over := b.callout.StatusChanged(nats.SubscriptionClosed)
	if b.callout.Drain() != nil {
		return // no session exists yet, so the authorizer is not called
	}
	timer := time.NewTimer(leaveTimeout)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	}
}

// answer authorises the session of one request and sends the signed answer; a refusal and
// its reason are logged here only. A session that could not be judged is disconnected without an
// answer, so that its client tries again: the server itself would refuse one whose answer is late.
func (b *Broker) answer(m *nats.Msg, places chan struct{}) {
	ctx, cancel := context.WithTimeout(b.ctx, authorizeTimeout) // from the receipt, because the server's time has begun
	defer cancel()
	ask, err := jwt.DecodeAuthorizationRequestClaims(string(m.Data))
	if err != nil {
		b.cfg.Logger.Warn("a server's question who may come in cannot be read", "err", err)
		return
	}
	says := jwt.NewAuthorizationResponseClaims(ask.UserNkey)
	says.Audience = ask.Server.ID
	if says.Jwt, err = b.authorize(ctx, ask, places); err != nil && !refuses(err) {
		b.cfg.Logger.Info("a session could not be judged and has to try again", "name", clip(ask.ConnectOptions.Name), "err", err)
		if err := b.Disconnect(b.ctx, fmt.Sprintf("%s.%d", ask.Server.ID, ask.ClientInformation.ID)); err != nil {
			b.cfg.Logger.Debug("a session that could not be judged was not disconnected", "err", err)
		}
		return
	}
	if err != nil {
		says.Error = "refused"
		b.cfg.Logger.Info("a session was refused", "name", clip(ask.ConnectOptions.Name), "address", ask.ClientInformation.Host, "err", err)
	}
	text, err := says.Encode(b.keys.issuer)
	if err != nil {
		b.cfg.Logger.Error("an answer who may come in cannot be signed", "err", err)
		return
	}
	if err := m.Respond([]byte(text)); err != nil {
		b.cfg.Logger.Warn("an answer who may come in was not sent", "err", err)
	}
}

// refuses reports whether an error of authorize is a decision, which is the same on the next try.
func refuses(err error) bool {
	return slices.Contains([]capability.Code{
		capability.CodeUnauthenticated, capability.CodeDenied, capability.CodeConflict, capability.CodeInvalidInput,
	}, capability.CodeOf(err))
}

func clip(s string) string { return s[:min(len(s), 128)] }

// authorize returns a session's permissions as a signed JWT for the server, or why it has none.
func (b *Broker) authorize(ctx context.Context, ask *jwt.AuthorizationRequestClaims, places chan struct{}) (string, error) {
	if b.cfg.Authorize == nil {
		return "", messaging.ErrRefused(errors.New("no client is let in"))
	}
	cred, err := proven(ask)
	if err != nil {
		return "", messaging.ErrRefused(err)
	}
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	id, err := b.cfg.Authorize(ctx, cred)
	if err != nil {
		return "", err
	}
	if id.ID == "" || len(id.ID) > 128 {
		return "", fmt.Errorf("an identity has 1 to 128 bytes, this one %d", len(id.ID))
	}
	user := jwt.NewUserClaims(ask.UserNkey)
	user.Name = id.ID
	user.Audience = account
	user.Pub, user.Sub = only(id.Publish), only(id.Subscribe)
	b.direct.admit(ask.ClientInformation.ID, id)
	// Servers do not apply the limits of an answer, only its permissions; the
	// limits are in their configuration, for every session.
	return user.Encode(b.keys.issuer)
}

// only returns a permission for exactly these patterns; an empty list denies all.
func only(patterns []string) jwt.Permission {
	if len(patterns) == 0 {
		return jwt.Permission{Deny: jwt.StringList{">"}}
	}
	return jwt.Permission{Allow: patterns}
}

// proven returns the credential of a session. It fails if the session has not proven
// possession of the key that it claims.
func proven(ask *jwt.AuthorizationRequestClaims) (messaging.Credential, error) {
	o := ask.ConnectOptions
	cred := messaging.Credential{Name: clip(o.Name), Address: ask.ClientInformation.Host}
	switch {
	case o.Nkey != "":
		// Like the servers themselves: some clients, such as that for JavaScript, write standard base64.
		sig, err := base64.RawURLEncoding.DecodeString(o.SignedNonce)
		if err != nil {
			sig, err = base64.StdEncoding.DecodeString(o.SignedNonce)
		}
		if err != nil || ask.ClientInformation.Nonce == "" {
			return cred, errors.New("the challenge was not answered")
		}
		public, err := nkeys.FromPublicKey(o.Nkey)
		if err != nil || !nkeys.IsValidPublicUserKey(o.Nkey) {
			return cred, errors.New("the key is not a node's")
		}
		if err := public.Verify([]byte(ask.ClientInformation.Nonce), sig); err != nil {
			return cred, fmt.Errorf("the signature is not of the key %s", o.Nkey)
		}
		cred.Key = o.Nkey
	case o.Token != "":
		cred.Token = secret.New(o.Token)
	default:
		return cred, errors.New("neither a token nor a key was shown")
	}
	return cred, nil
}
