package policy

import (
	"context"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// The kinds of approvals.
const (
	KindCall     = "call"     // a call waits for it
	KindTerminal = "terminal" // a program waits for a permission, a login or trust
	KindQuestion = "question" // a program asks a person something, or shows a plan
)

// Waits reports whether a program waits for the answer to a. Such an approval grants nothing in
// itself: its answer is passed to the program.
func (a Approval) Waits() bool { return a.Kind == KindTerminal || a.Kind == KindQuestion }

// Reply is an answer to an approval. For a call it is a decision. For an approval that a program
// waits for, it is a decision or an answer that the program takes.
type Reply struct {
	Decision Decision
	Text     string              // a number or label of the list, yes or no, or a text
	Free     bool                // Text is a text, also if it is a number or a label
	Values   map[string][]string // answers to the questions of a form, by their ids
}

func (r Reply) answers() bool { return r.Text != "" || len(r.Values) > 0 }

// Programs passes answers to the programs that wait for them.
type Programs interface {
	// AnswerApproval answers a and stores the decision with [Policy.SettleBlocker]. Errors:
	// conflict if the program does not wait any more, and invalid_input if it does not take the
	// answer.
	AnswerApproval(ctx context.Context, by capability.Principal, a Approval, r Reply) error
}

// Carry sets the receiver of answers to approvals that programs wait for.
func (p *Policy) Carry(programs Programs) { p.programs.Store(&programs) }

// Reply is like [Policy.Decide], also with an answer that only a waiting program understands.
func (p *Policy) Reply(ctx context.Context, by capability.Principal, id string, r Reply) (Approval, *Grant, error) {
	const op = "approvals.decide"
	if !r.answers() {
		return p.Decide(ctx, by, id, r.Decision)
	}
	if err := p.Require(ctx, by, op, capability.RoleAdmin, capability.RoleOperator); err != nil {
		return Approval{}, nil, err
	}
	if err := p.ready(); err != nil {
		return Approval{}, nil, err
	}
	a, err := p.store.Approval(ctx, id)
	switch {
	case err != nil:
		return Approval{}, nil, err
	case !a.Waits():
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op,
			"%s is about a call, which takes a decision and not an answer", a.ID).
			With("", "approve or deny it")
	case r.Decision != "":
		return Approval{}, nil, capability.Errorf(capability.CodeInvalidInput, op, "give a decision or an answer, not both")
	}
	a, err = p.pass(ctx, by, a, r)
	return a, nil, err
}

// pass passes an answer to the program that waits for it, and returns the approval as it is then.
func (p *Policy) pass(ctx context.Context, by capability.Principal, a Approval, r Reply) (Approval, error) {
	programs := p.programs.Load()
	if a.State != ApprovalPending || programs == nil {
		return Approval{}, capability.Errorf(capability.CodeConflict, "approvals.decide", "%s is %s: the program does not wait for it any more",
			a.ID, a.State)
	}
	if err := verify(ctx, by, a, r.Decision); err != nil {
		return Approval{}, err
	}
	if err := (*programs).AnswerApproval(ctx, by, a, r); err != nil {
		return Approval{}, err
	}
	return p.store.Approval(ctx, a.ID)
}

// OpenBlocker adds an approval that a program waits for. It does nothing if the approval is stored
// already. a.ContentHash is a.ID, so that the approval fits nothing else.
func (p *Policy) OpenBlocker(ctx context.Context, a Approval) error {
	a.ContentHash, a.State, a.Channel = a.ID, ApprovalPending, ChannelClient
	_, created, err := p.store.AskApproval(ctx, a, maxOpenBlockers)
	if err != nil || !created {
		return err
	}
	p.record(ctx, audit.ConfirmationRequested, capability.Principal{ID: a.Principal}, true, audit.Written,
		audit.Attr{Key: "approval", Value: a.ID}, audit.Attr{Key: "kind", Value: a.Kind}, audit.Attr{Key: "session", Value: a.Session})
	return nil
}

// SettleBlocker stores the decision that a program has received. If d is "", the program went on
// without an answer from here, and the approval is ended.
func (p *Policy) SettleBlocker(ctx context.Context, by capability.Principal, module, id string, d Decision) error {
	now := p.now().UTC()
	defer p.decisions.begin(id)()
	if d == "" {
		n, err := p.store.EndApprovals(ctx, module, id, now)
		if n > 0 && p.publish != nil {
			p.publish(EventApprovalExpired, map[string]string{"approval": id})
		}
		return err
	}
	if _, err := p.store.DecideApproval(ctx, id, d, by.ID, now, now); err != nil {
		return err
	}
	p.record(ctx, audit.ConfirmationAnswered, by, true, audit.Synced,
		audit.Attr{Key: "approval", Value: id}, audit.Attr{Key: "answer", Value: string(d)})
	return nil
}

// EndBlockers ends all approvals that programs of a module waited for, because they have ended with
// an earlier server process.
func (p *Policy) EndBlockers(ctx context.Context, module string) error {
	_, err := p.store.EndApprovals(ctx, module, "", p.now().UTC())
	return err
}
