package store

import (
	"context"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/nodes/admission"
)

// turns is a store that is asked through one gateway's connections and then
// another's.
type turns struct {
	a, b *DB
	mu   sync.Mutex
	odd  bool
}

var (
	_ policy.Store        = (*turns)(nil)
	_ invoke.OutcomeStore = (*turns)(nil)
	_ admission.Store     = (*turns)(nil)
)

func (s *turns) next() *DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.odd = !s.odd; s.odd {
		return s.a
	}
	return s.b
}

func (s *turns) CreateToken(ctx context.Context, t policy.Token) error {
	return s.next().CreateToken(ctx, t)
}

func (s *turns) Tokens(ctx context.Context) ([]policy.Token, error) {
	return s.next().Tokens(ctx)
}

func (s *turns) RevokeToken(ctx context.Context, id string, at time.Time) (policy.Token, error) {
	return s.next().RevokeToken(ctx, id, at)
}

func (s *turns) ProlongToken(ctx context.Context, id string, until time.Time) (policy.Token, error) {
	return s.next().ProlongToken(ctx, id, until)
}

func (s *turns) AskApproval(ctx context.Context, a policy.Approval, maxOpen int) (policy.Approval, bool, error) {
	return s.next().AskApproval(ctx, a, maxOpen)
}

func (s *turns) Approval(ctx context.Context, id string) (policy.Approval, error) {
	return s.next().Approval(ctx, id)
}

func (s *turns) Approvals(ctx context.Context, state policy.ApprovalState, after string, limit int) ([]policy.Approval, error) {
	return s.next().Approvals(ctx, state, after, limit)
}

func (s *turns) ApprovalInput(ctx context.Context, id string) ([]byte, error) {
	return s.next().ApprovalInput(ctx, id)
}

func (s *turns) DeniedApproval(ctx context.Context, b policy.Binding, now time.Time) (policy.Approval, bool, error) {
	return s.next().DeniedApproval(ctx, b, now)
}

func (s *turns) DecideApproval(ctx context.Context, id string, d policy.Decision, by string, at, until time.Time) (policy.Approval, error) {
	return s.next().DecideApproval(ctx, id, d, by, at, until)
}

func (s *turns) ConsumeApproval(ctx context.Context, b policy.Binding, now time.Time) (string, bool, error) {
	return s.next().ConsumeApproval(ctx, b, now)
}

func (s *turns) ReturnApproval(ctx context.Context, id string, now time.Time) (bool, error) {
	return s.next().ReturnApproval(ctx, id, now)
}

func (s *turns) SupersedeApprovals(ctx context.Context, module, content string) (int, error) {
	return s.next().SupersedeApprovals(ctx, module, content)
}

func (s *turns) EndApprovals(ctx context.Context, module, id string, at time.Time) (int, error) {
	return s.next().EndApprovals(ctx, module, id, at)
}

func (s *turns) ExpireApprovals(ctx context.Context, now time.Time) ([]string, error) {
	return s.next().ExpireApprovals(ctx, now)
}

func (s *turns) UseToken(ctx context.Context, id string, at time.Time) error {
	return s.next().UseToken(ctx, id, at)
}

func (s *turns) CreateGrant(ctx context.Context, g policy.Grant) error {
	return s.next().CreateGrant(ctx, g)
}

func (s *turns) Grants(ctx context.Context) ([]policy.Grant, error) {
	return s.next().Grants(ctx)
}

func (s *turns) RevokeGrant(ctx context.Context, id string, at time.Time) (policy.Grant, error) {
	return s.next().RevokeGrant(ctx, id, at)
}

func (s *turns) UseGrant(ctx context.Context, id string, now time.Time) (bool, error) {
	return s.next().UseGrant(ctx, id, now)
}

func (s *turns) AddUses(ctx context.Context, id string, uses int) error {
	return s.next().AddUses(ctx, id, uses)
}

func (s *turns) BeginOutcome(ctx context.Context, o invoke.Outcome, keep time.Duration, limit int) (invoke.Outcome, bool, error) {
	return s.next().BeginOutcome(ctx, o, keep, limit)
}

func (s *turns) FinishOutcome(ctx context.Context, o invoke.Outcome) error {
	return s.next().FinishOutcome(ctx, o)
}

func (s *turns) DropOutcome(ctx context.Context, principal, key string) error {
	return s.next().DropOutcome(ctx, principal, key)
}

func (s *turns) ClaimNode(ctx context.Context, n admission.Node) (admission.Node, error) {
	return admission.NewSQLStore(s.next()).ClaimNode(ctx, n)
}

func (s *turns) MoveNode(ctx context.Context, id, from, to string) (bool, error) {
	return admission.NewSQLStore(s.next()).MoveNode(ctx, id, from, to)
}

func (s *turns) Node(ctx context.Context, id string) (admission.Node, bool, error) {
	return admission.NewSQLStore(s.next()).Node(ctx, id)
}

func (s *turns) NodeByKey(ctx context.Context, key string) (admission.Node, bool, error) {
	return admission.NewSQLStore(s.next()).NodeByKey(ctx, key)
}

func (s *turns) Nodes(ctx context.Context) ([]admission.Node, error) {
	return admission.NewSQLStore(s.next()).Nodes(ctx)
}

func (s *turns) RemoveNode(ctx context.Context, id string) (bool, error) {
	return admission.NewSQLStore(s.next()).RemoveNode(ctx, id)
}
