package invoke

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// obtainConsent sets r.consent if the call requires an approval and has one. Otherwise it
// requests one and returns approval_required. It runs after arbitration, because an approval is
// bound to one capability. After an approval, the caller repeats the call, which passes every
// check again.
func (r *run) obtainConsent(ctx context.Context) error {
	if r.inv.Resume != "" {
		return nil // the consent was given when this call began, and the permission was checked again
	}
	if err := r.foresee(ctx); err != nil {
		return err
	}
	channel, asks := r.verdict.Consent, r.confirms()
	if channel == "" && asks != "" {
		channel = policy.ChannelOperator
		if human(r.inv.Principal) {
			channel = policy.ChannelClient // the caller may approve its own call, but has to do so explicitly
		}
	}
	fresh := r.inv.Tainted && r.entry.Effect.AtLeast(capability.EffectExternal)
	if channel == "" && fresh {
		channel = policy.ChannelOperator
	}
	if channel == "" {
		return nil
	}
	if err := r.engine.cfg.Log.Ready(true); err != nil {
		return err
	}
	shown, err := r.shown()
	if err != nil {
		return err
	}
	consent, err := r.engine.cfg.Policy.Consent(ctx, policy.Asked{
		Principal: r.inv.Principal, Entry: r.entry, Session: r.inv.Session, Run: r.inv.ID, InputDigest: r.bound(), Channel: channel,
		Summary: r.summary(shown), Shown: shown, Input: r.inv.Input,
		Exact: asks == confirmAlways || r.verdict.Consent == "", Once: asks == confirmFirst && r.verdict.Consent == "",
		Fresh: fresh, Approval: r.inv.Approval,
	})
	if err != nil {
		if capability.CodeOf(err) == capability.CodeApprovalRequired {
			r.fire(EventConfirmNeeded, "")
		}
		return err
	}
	r.consent = consent
	return nil
}

// Reasons for an approval from a contribution or a preview.
const (
	confirmFirst  = "first"
	confirmAlways = "always"
)

// confirms returns the strictest confirmation that the contribution or the preview requires, or
// "".
func (r *run) confirms() string {
	for _, asks := range []string{confirmAlways, confirmFirst} {
		if r.entry.Contribution.Confirm == asks || r.preview.Confirm == asks {
			return asks
		}
	}
	return ""
}

// foresee sets r.preview if the provider supports previews. It returns the provider's error.
func (r *run) foresee(ctx context.Context) (err error) {
	p, ok := r.entry.Provider.(capability.Previewer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, previewTimeout)
	defer cancel()
	r.preview, err = p.Preview(ctx, r.call())
	return err
}

// bound returns the digest that an approval is bound to: that of the input and, if the preview
// has one, of its binding.
func (r *run) bound() string {
	digest := inputDigest(r.inv.Input)
	if r.preview.Binds != "" {
		sum := sha256.Sum256([]byte(digest + r.preview.Binds))
		digest = hex.EncodeToString(sum[:])
	}
	return digest
}

// shown returns the view of the call for the approver: the words that would run, what the preview
// declares, and the input.
func (r *run) shown() (policy.Shown, error) {
	details := maps.Clone(r.preview.Details)
	for _, repeated := range []string{
		"argv",        // the words
		"permissions", // a field of the approval
		"sandbox",     // chosen by the server; a weaker one than asked for is in the reason
	} {
		delete(details, repeated)
	}
	if len(details) == 0 {
		return policy.Show(r.preview.What, nil, r.inv.Input)
	}
	raw, err := jsonx.Marshal(details)
	if err != nil {
		return policy.Shown{}, err
	}
	return policy.Show(r.preview.What, raw, r.inv.Input)
}

// summary returns the text for the approver: the principal, the action, the target, every
// value, and the reason for the approval.
func (r *run) summary(shown policy.Shown) string {
	who := r.inv.Principal.ID
	if r.inv.Principal.OnBehalfOf != "" {
		who += ", for " + r.inv.Principal.OnBehalfOf + ","
	}
	what := fmt.Sprintf("%s asks for %s", who, policy.NameOf(r.entry))
	if policy.ToolOf(r.entry) == "" { // otherwise the name begins with the server
		what += " on " + string(r.entry.Key())
	}
	what = text.Visible(what)
	if values := shown.String(); values != "" {
		what += " " + values
	}
	if r.preview.Why != "" {
		what += " (" + text.Visible(r.preview.Why) + ")"
	}
	return what
}

// inputDigest returns a digest of the JSON value, independent of key order and white space.
// Numbers are compared digit by digit, because two large ids could be the same float. Input
// that cannot be normalized, such as one with a lone surrogate, is digested byte for byte.
func inputDigest(input []byte) string {
	if c, err := jsonx.Sorted(input); err == nil {
		input = c
	}
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:])
}
