package invoke

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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
	shown, whole, err := r.shown()
	if err != nil {
		return err
	}
	consent, err := r.engine.cfg.Policy.Consent(ctx, policy.Asked{
		Principal: r.inv.Principal, Entry: r.entry, Session: r.inv.Session, Run: r.inv.ID, InputDigest: r.bound(), Channel: channel,
		Summary: r.summary(shown), Shown: shown, Input: whole,
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

// bound returns the digest that an approval is bound to: that of the input and, if there are any, of
// what the call has beside it and of the preview's binding.
func (r *run) bound() string {
	digest := inputDigest(r.inv.Input)
	binds := r.preview.Binds
	if extras := r.extras(); len(extras) > 0 {
		data, _ := jsonx.Marshal(extras) // of valid JSON
		binds += "\n" + inputDigest(data)
	}
	if binds != "" {
		sum := sha256.Sum256([]byte(digest + binds))
		digest = hex.EncodeToString(sum[:])
	}
	return digest
}

// extras returns what the caller chose beside the input and the provider acts on.
func (r *run) extras() map[string]any {
	out := make(map[string]any)
	if c := r.context; c != nil {
		if c.Workspace != defaultWorkspace {
			out["workspace"] = c.Workspace
		}
		if c.Route != nil {
			out["conversation"] = c.Route
		}
		if c.Adapter != nil {
			out["adapter"] = c.Adapter
		}
	}
	return out
}

// meta returns the metadata for the provider. With an approval that does not cover it, only what tracing uses is
// left, because a client has more in it than what the approver was shown.
func (r *run) meta() json.RawMessage {
	if r.consent.Approval == "" || r.preview.Metadata || len(r.inv.Meta) == 0 {
		return r.inv.Meta
	}
	out := json.RawMessage("{")
	_ = jsonx.Members(r.inv.Meta, func(name string, value []byte) {
		if name == "traceparent" || name == "tracestate" || name == "baggage" {
			out = jsonx.AppendMember(out, name, value)
		}
	})
	return append(out, '}')
}

// shown returns the view of the call for the approver: the words that would run, what the call has beside the
// input, what the preview declares, and the input. whole is what the approver can read whole: the input, in an
// object with the details if the view has only the beginning of one.
func (r *run) shown() (view policy.Shown, whole json.RawMessage, err error) {
	details := make(map[string]any)
	maps.Copy(details, r.preview.Details)
	for _, repeated := range []string{
		"argv",        // the words
		"permissions", // a field of the approval
		"sandbox",     // chosen by the server; a weaker one than asked for is in the reason
	} {
		delete(details, repeated)
	}
	maps.Copy(details, r.extras())
	var raw json.RawMessage
	if len(details) > 0 {
		if raw, err = jsonx.Marshal(details); err != nil {
			return view, nil, err
		}
	}
	view, err = policy.Show(r.preview.What, raw, r.inv.Input)
	if err != nil || !slices.ContainsFunc(view.Details, func(v policy.ShownValue) bool { return v.Bytes > 0 }) {
		return view, r.inv.Input, err
	}
	whole, err = jsonx.Marshal(map[string]any{"details": raw, "input": json.RawMessage(cmp.Or(string(r.inv.Input), "null"))})
	return view, whole, err
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
