// Package admission decides which devices may join. With a node token, a device claims an
// id of its choice, which then belongs to that credential: the device enrols its key once
// and signs with it, or, without a key, presents its token each time. Revoking the token or
// removing the row ends the device's access.
package admission

import (
	"context"
	"crypto/ed25519"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// Node is the row of one admitted device.
type Node struct {
	ID      string    `json:"node_id"`
	Key     string    `json:"public_key,omitempty"` // NKey form; "": it shows its token
	Token   string    `json:"token"`                // id of the node token
	Created time.Time `json:"created"`
}

// Store keeps the rows.
type Store interface {
	// ClaimNode adds n and returns it; if its id or key is taken, it returns the row that has
	// it. It is atomic: of two nodes that claim an id, one gets it.
	ClaimNode(ctx context.Context, n Node) (Node, error)
	// MoveNode changes the token of a row from from to to, if it still has from.
	MoveNode(ctx context.Context, id, from, to string) (moved bool, err error)
	// Node returns a row by its id, NodeByKey by its key; ok is false if the row does not exist.
	Node(ctx context.Context, id string) (n Node, ok bool, err error)
	NodeByKey(ctx context.Context, key string) (n Node, ok bool, err error)
	// Nodes returns all, by id.
	Nodes(ctx context.Context) ([]Node, error)
	// RemoveNode removes a row and reports whether it was there.
	RemoveNode(ctx context.Context, id string) (bool, error)
}

// Tokens looks up tokens; policy.Policy implements it.
type Tokens interface {
	// Token returns a live token by its value.
	Token(value string) (policy.Token, error)
	// StandingToken returns a token by its id, if it was not revoked; it may have expired.
	StandingToken(id string) (policy.Token, bool)
	// Refresh loads the tokens that other gateways have created or revoked.
	Refresh(ctx context.Context) error
}

// Admission admits nodes for one gateway. It is safe for concurrent use.
type Admission struct {
	store  Store
	tokens Tokens
	now    func() time.Time
	writer chan struct{} // held while a claim is written
	sought atomic.Int64  // when a token was last looked for, in Unix nanoseconds
}

// New returns an Admission.
func New(store Store, tokens Tokens, now func() time.Time) *Admission {
	return &Admission{store: store, tokens: tokens, now: now, writer: make(chan struct{}, 1)}
}

// nodeToken returns the live node token with a value.
func (a *Admission) nodeToken(value string) (policy.Token, error) {
	t, err := a.tokens.Token(value)
	if err == nil && t.Role != capability.RoleNode {
		err = capability.Errorf(capability.CodeDenied, "nodes.join", "this token has the role %s, and devices join with one of role node",
			t.Role).
			With("denied", "make one with: junctor tokens create --role node")
	}
	return t, err
}

// Enrol admits a device with an id and its key and returns the labels that the token
// grants. Repeating it changes nothing. Errors: unauthenticated and denied for
// tokens that do not belong to a node, conflict for an id or key that belongs to another.
func (a *Admission) Enrol(ctx context.Context, token string, e wire.Enrol) (wire.EnrolReply, error) {
	t, err := a.nodeToken(token)
	if err != nil {
		return wire.EnrolReply{}, err
	}
	got, err := a.claim(ctx, Node{ID: e.NodeID, Key: e.PublicKey, Token: t.ID, Created: a.now().UTC()})
	if err != nil {
		return wire.EnrolReply{}, err
	}
	return wire.EnrolReply{NodeID: got.ID, Labels: append([]string{}, t.Labels...)}, nil
}

// claim returns the row of n's id, which it adds if needed. If the row's token is no longer
// valid, claim replaces it by n's; the node must prove its key when it connects.
func (a *Admission) claim(ctx context.Context, n Node) (Node, error) {
	if err := cmp.CheckNode(n.ID); err != nil {
		return Node{}, err
	}
	got, err := a.written(ctx, n)
	if err != nil {
		return Node{}, err
	}
	if got.ID == n.ID && got.Key == n.Key && got.Token != n.Token && n.Key != "" {
		_, stands, err := a.standing(ctx, got)
		if err != nil {
			return Node{}, err
		}
		if !stands {
			moved, err := a.store.MoveNode(ctx, n.ID, got.Token, n.Token)
			if err != nil {
				return Node{}, err
			}
			if moved {
				got.Token = n.Token
			}
		}
	}
	switch {
	case got.ID != n.ID:
		return Node{}, capability.Errorf(capability.CodeConflict, "nodes.join", "this key is enrolled as another node").
			With("key_taken", "join under the id it has, or remove the device's key file to make a new one")
	case got.Key != n.Key, got.Token != n.Token:
		return Node{}, capability.Errorf(capability.CodeConflict, "nodes.join", "the node id %s belongs to another credential", n.ID).
			With("node_taken", "choose another with --id, or on the gateway: junctor nodes remove "+n.ID)
	}
	return got, nil
}

// written returns the row that has n's id or key. Most nodes already have a row and need no
// write. New rows are written one after the other, because many concurrent writers could
// exceed the database's lock timeout.
func (a *Admission) written(ctx context.Context, n Node) (Node, error) {
	got, ok, err := a.store.Node(ctx, n.ID)
	if err != nil || ok && got.Key == n.Key && got.Token == n.Token {
		return got, err
	}
	select {
	case a.writer <- struct{}{}:
	case <-ctx.Done():
		return Node{}, ctx.Err()
	}
	defer func() { <-a.writer }()
	return a.store.ClaimNode(ctx, n)
}

// Authorize is a messaging.Authorizer: it returns the node of a session's credential and the
// subjects it may use.
func (a *Admission) Authorize(ctx context.Context, c messaging.Credential) (messaging.Identity, error) {
	var n Node
	if c.Key != "" {
		var ok bool
		var err error
		if n, ok, err = a.store.NodeByKey(ctx, c.Key); err != nil {
			return messaging.Identity{}, err
		}
		if !ok {
			return messaging.Identity{}, capability.Errorf(capability.CodeUnauthenticated, "nodes.join",
				"this key is not enrolled").With("unknown_key", "")
		}
	} else {
		t, err := a.nodeToken(c.Token.Reveal())
		if err != nil {
			return messaging.Identity{}, err
		}
		if n, err = a.claim(ctx, Node{ID: c.Name, Token: t.ID, Created: a.now().UTC()}); err != nil {
			return messaging.Identity{}, err
		}
	}
	if _, ok, err := a.standing(ctx, n); err != nil {
		return messaging.Identity{}, err
	} else if !ok {
		return messaging.Identity{}, capability.Errorf(capability.CodeUnauthenticated, "nodes.join", "the token that let %s in has ended",
			n.ID).With("invalid_token", "")
	}
	subscribe, publish := wire.Permissions(n.ID)
	return messaging.Identity{ID: n.ID, Subscribe: subscribe, Publish: publish}, nil
}

// Granted returns the labels that a node's credential grants. It fails with unauthenticated
// if the node is no longer admitted; any other error means that the answer is unknown.
func (a *Admission) Granted(node string) (labels []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	t, err := a.token(ctx, node)
	return t.Labels, err
}

// Principal returns the principal for calls by a node.
func (a *Admission) Principal(ctx context.Context, node string) (capability.Principal, error) {
	t, err := a.token(ctx, node)
	return t.Principal(), err
}

func (a *Admission) token(ctx context.Context, node string) (policy.Token, error) {
	n, ok, err := a.store.Node(ctx, node)
	if err != nil {
		return policy.Token{}, err
	}
	t, stands, err := a.standing(ctx, n)
	if err != nil || ok && stands {
		return t, err
	}
	return policy.Token{}, capability.Errorf(capability.CodeUnauthenticated, "nodes", "the node %s is not admitted any more",
		node).With("invalid_token", "")
}

// Gone reports whether a node is certainly no longer admitted, because its row or its token
// is no longer valid. It is false if the store fails.
func (a *Admission) Gone(ctx context.Context, node string) bool {
	n, ok, err := a.store.Node(ctx, node)
	if err != nil {
		return false
	}
	_, stands, err := a.standing(ctx, n)
	return err == nil && (!ok || !stands)
}

// Ended is Gone for many nodes: it reads the store once and returns a function that answers
// from that data. A token that this gateway does not know yet counts as ended.
func (a *Admission) Ended(ctx context.Context) (func(node string) bool, error) {
	rows, err := a.store.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	stands := make(map[string]bool, len(rows))
	for _, n := range rows {
		t, ok := a.tokens.StandingToken(n.Token)
		stands[n.ID] = ok && a.good(n, t)
	}
	return func(node string) bool { return !stands[node] }, nil
}

// standing returns the token of a node; ok is false if it is no longer valid. An unknown
// token may be new from another gateway, so standing then refreshes the tokens.
func (a *Admission) standing(ctx context.Context, n Node) (t policy.Token, ok bool, err error) {
	if t, ok = a.tokens.StandingToken(n.Token); !ok && n.Token != "" && a.seeks(n) {
		if err := a.tokens.Refresh(ctx); err != nil {
			return t, false, err
		}
		t, ok = a.tokens.StandingToken(n.Token)
	}
	return t, ok && a.good(n, t), nil
}

func (a *Admission) seeks(n Node) bool {
	now, last := a.now(), a.sought.Load()
	if now.Sub(n.Created) < newRowGrace {
		return true
	}
	since := time.Duration(now.UnixNano() - last)
	return (since < 0 || since >= seekInterval) && a.sought.CompareAndSwap(last, now.UnixNano())
}

func (a *Admission) good(n Node, t policy.Token) bool { return n.Key != "" || t.Live(a.now()) }

// Key returns the public key with which a node signs its requests.
func (a *Admission) Key(ctx context.Context, node string) (ed25519.PublicKey, error) {
	if _, err := a.token(ctx, node); err != nil {
		return nil, err
	}
	n, ok, err := a.store.Node(ctx, node)
	if err != nil {
		return nil, err
	}
	if !ok || n.Key == "" {
		return nil, capability.Errorf(capability.CodeUnauthenticated, "nodes", "the node %s has no key", node).With("unknown_key",
			"it shows its token instead")
	}
	return wire.PublicKey(n.Key)
}

// TokenNode fails unless the node has no key and token is its node token.
func (a *Admission) TokenNode(ctx context.Context, token, node string) error {
	t, err := a.nodeToken(token)
	if err != nil {
		return err
	}
	n, ok, err := a.store.Node(ctx, node)
	if err == nil && (!ok || n.Token != t.ID || n.Key != "") {
		err = capability.Errorf(capability.CodeDenied, "nodes", "this token does not speak for %s", node).With("denied", "")
	}
	return err
}

// List returns all admitted nodes.
func (a *Admission) List(ctx context.Context) ([]Node, error) { return a.store.Nodes(ctx) }

// Remove deletes a node's row, after which the node must enrol again. A missing node is not_found.
func (a *Admission) Remove(ctx context.Context, node string) error {
	was, err := a.store.RemoveNode(ctx, node)
	if err == nil && !was {
		err = cmp.Errorf(cmp.ReasonNodeNotFound, "there is no node %q", node)
	}
	return err
}
