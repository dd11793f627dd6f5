package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

const yesHelp = "approve without being asked at the terminal"

// confirmed calls do. If the server requires an approval by the client, confirmed asks
// at the terminal, unless yes is set, and calls do again.
func (a *app) confirmed(ctx context.Context, yes bool, do func() error) error {
	err := do()
	id, asked := approvalOf(capability.AsError(err))
	if !asked {
		return err
	}
	if !yes && (a.json || !terminal(a.stdin)) {
		return err
	}
	if agreed, err := a.answer(ctx, id, capability.AsError(err), yes); err != nil || !agreed {
		return err
	}
	return do()
}

// approvalOf returns the id of the approval that an error requests from the client.
func approvalOf(e *capability.Error) (id string, asked bool) {
	if e == nil || e.Code != capability.CodeApprovalRequired || e.Details["channel"] != "client" {
		return "", false
	}
	id, asked = e.Details["approval"].(string)
	return id, asked
}

// answer asks the user to confirm, unless yes is set, and sends the decision to the server. If the
// user refuses, it fails with denied, reason confirmation_rejected.
func (a *app) answer(ctx context.Context, id string, question *capability.Error, yes bool) (bool, error) {
	if !yes {
		summary, _ := question.Details["summary"].(string)
		fmt.Fprintf(a.stderr, "%s\nGo on? [y/N] ", text.Visible(summary))
		yes = a.agrees(ctx)
	}
	decision := "deny"
	if yes {
		decision = "once"
	}
	if err := a.do(ctx, http.MethodPost, "/api/v1/approvals/"+url.PathEscape(id), map[string]string{"decision": decision},
		nil); err != nil {
		return false, err
	}
	if !yes {
		return false, capability.Errorf(capability.CodeDenied, "confirm", "you said no, so it was not done").With("confirmation_rejected", "")
	}
	return true, nil
}
