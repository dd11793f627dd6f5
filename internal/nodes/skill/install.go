package skill

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// Order is a request to install.
type Order struct {
	Payload        json.RawMessage // an object, a text or bytes
	Keep           bool            // replace_existing_skill is false
	ExpectedSHA256 string          // "": any
	DryRun         bool
	Source         string        // "": DefaultSource
	Caller         string        // for records
	Wait           time.Duration // for consent; 0: asking.AskTimeout
}

// work is the state of one running install.
type work struct {
	Order
	p        *payload.Payload
	digest   string
	signer   string // the id of the key whose signature was checked; "" if unsigned
	old      *installed
	sources  []payload.Source
	planned  []*Binding
	program  Program
	consent  wire.Consent
	code     map[string][]byte
	warnings []wire.Warning
}

// Install installs a skill or replaces the installed version, completely or not at all. The
// same payload again changes nothing, and with DryRun Install only checks. It returns errors of the payload, the bindings, the
// consent and the store.
func (h *Host) Install(ctx context.Context, o Order) (*wire.Installed, error) {
	p, err := payload.Decode(o.Payload, h.limits.Payload)
	if err != nil {
		return nil, err
	}
	w := &work{Order: o, p: p, code: make(map[string][]byte)}
	if w.digest, err = payload.Digest(p.Raw); err != nil {
		return nil, err
	}
	if o.ExpectedSHA256 != "" && o.ExpectedSHA256 != w.digest {
		return nil, wire.Errorf(wire.ReasonDigest, "the payload's digest is %s, not the one that was expected", w.digest)
	}
	if w.signer, err = h.signer(p); err != nil {
		return nil, err
	}
	if h.has(p.SkillName, w.digest) {
		return h.installedAnswer(p.SkillName, nil, false), nil
	}
	unlock, err := h.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if h.has(p.SkillName, w.digest) { // installed meanwhile by another operation
		return h.installedAnswer(p.SkillName, nil, false), nil
	}
	w.old = h.get(p.SkillName)
	if w.old == nil && len(h.Installed()) >= MaxSkills {
		return nil, wire.Errorf(wire.ReasonTooLarge, "a device has at most %d skills", MaxSkills)
	}
	if err := h.prepare(w); err != nil {
		return nil, err
	}
	if o.DryRun {
		_, next := h.settle(w)
		answer := h.installedAnswer(p.SkillName, w.warnings, true)
		answer.InstalledSkills[p.SkillName], answer.DryRun = next.Record.Clone(), true
		return answer, nil
	}
	if err := h.carryOut(ctx, w); err != nil {
		return nil, err
	}
	w.warnings = append(w.warnings, h.refresh(ctx)...)
	return h.installedAnswer(p.SkillName, w.warnings, true), nil
}

// has reports whether exactly that payload is installed, and works.
func (h *Host) has(skill, digest string) bool {
	s := h.get(skill)
	return s != nil && s.Record.SHA256 == digest && s.Record.State == wire.StateActive
}

// signer returns the id of the known key that signed a payload. A wrong signature of a known
// key is an error; one of an unknown key is ignored.
func (h *Host) signer(p *payload.Payload) (string, error) {
	if p.Signature == nil || h.cfg.Keys == nil || h.cfg.Keys(p.Signature.KeyID) == nil {
		return "", nil
	}
	return p.Signature.KeyID, p.Verify(h.cfg.Keys)
}

// prepare plans, and checks the code that is planned for. Nothing is run.
func (h *Host) prepare(w *work) (err error) {
	of := w.p.Capabilities
	if w.keeps() {
		of = slices.DeleteFunc(slices.Clone(of), func(c payload.Capability) bool { return w.works(c.Alias) })
		for _, c := range w.p.Capabilities {
			if w.works(c.Alias) {
				w.warnings = append(w.warnings, wire.Warning{
					Code: "kept", Alias: c.Alias, FunctionName: c.FunctionName,
					Message: "it is installed already and stays as it is",
				})
			}
		}
		if _, known := w.old.Payloads[w.digest]; !known && len(w.old.Payloads) >= maxLayers {
			return wire.Errorf(wire.ReasonTooLarge, "the skill %s is made of %d payloads; replace it by one", w.p.SkillName, maxLayers)
		}
	}
	var warnings []wire.Warning
	if w.planned, warnings, err = h.binder.Plan(w.p, of); err != nil {
		return err
	}
	w.warnings = append(w.warnings, warnings...)
	if NeedsCode(w.planned) {
		if w.sources, err = w.p.Sources(h.limits); err != nil {
			return err
		}
		return h.binder.Runnable(w.sources)
	}
	return nil
}

// keeps reports whether what is installed stays and only new aliases are added.
func (w *work) keeps() bool {
	return w.Keep && w.old != nil && w.old.Record.State != wire.StateDisabled
}

// works reports whether an alias is installed and was bound.
func (w *work) works(alias string) bool {
	r, there := w.old.Record.Capabilities[alias]
	return there && r.Error == nil
}

// carryOut asks for consent, loads the code, stores the skill and makes it callable, in that order.
func (h *Host) carryOut(ctx context.Context, w *work) (err error) {
	if err := h.agree(ctx, w); err != nil {
		return err
	}
	if w.old != nil {
		maps.Copy(w.code, w.old.Code)
	}
	var warnings []wire.Warning
	if w.program, warnings, err = h.binder.Load(ctx, w.planned, w.sources, w.code); err != nil {
		return err
	}
	w.warnings = append(w.warnings, warnings...)
	defer func() {
		if err != nil && w.program != nil {
			w.program.Release()
		}
	}()
	for _, b := range w.planned {
		if err := h.binder.Bind(b); err != nil {
			return err
		}
		if b.Streams != b.Capability.Stream {
			w.warnings = append(w.warnings, wire.Warning{
				Code: "stream_mismatch", Alias: b.Capability.Alias,
				FunctionName: b.Capability.FunctionName, Message: "what it is bound to streams, or does not, other than declared",
			})
		}
	}
	return h.commit(ctx, w)
}

// agree asks the owner for consent, unless no bound capability requires it or the owner has
// already agreed to this payload.
func (h *Host) agree(ctx context.Context, w *work) error {
	if w.keeps() {
		w.consent = w.old.Record.Consent
	}
	q := question(w.p, w.digest, w.planned, w.sources)
	q.SignedBy = w.signer
	if len(q.Capabilities) == 0 {
		return nil
	}
	if old := w.old; old != nil && old.Record.State != wire.StateDisabled && old.Record.Consent.Digest == w.digest {
		w.consent = old.Record.Consent
		return nil
	}
	answer, err := h.asker.Ask(ctx, q, w.Wait, w.Caller)
	if err != nil {
		return err
	}
	w.consent = wire.Consent{Required: true, GrantedAt: wire.Time(h.cfg.Now()), By: answer.By}
	if answer.Decision == Grant && len(q.Capabilities) == w.consenting() { // consent to a part is not consent to the whole
		w.consent.Digest = w.digest
	}
	return nil
}

// consenting counts the capabilities of the payload that need consent.
func (w *work) consenting() (n int) {
	for i := range w.p.Capabilities {
		if w.p.Capabilities[i].NeedsConsent() {
			n++
		}
	}
	return n
}

// question returns the question about the planned capabilities that need consent.
func question(p *payload.Payload, digest string, of []*Binding, sources []payload.Source) Question {
	q := Question{SkillName: p.SkillName, SHA256: digest, Publisher: p.Publisher, Permissions: p.Permissions, Code: []QuestionCode{}}
	for _, b := range of {
		if b.Capability.NeedsConsent() {
			q.Capabilities = append(q.Capabilities, About(&b.Capability))
		}
	}
	for _, s := range sources {
		q.Code = append(q.Code, QuestionCode{ModuleID: s.ModuleID, Language: s.Language, SHA256: s.SHA256, Bytes: s.Bytes})
	}
	return q
}

// function returns the function to register for a binding.
func (h *Host) function(skill, digest string, b *Binding) functions.Function {
	f := b.Function(skill)
	if b.Capability.NeedsConsentEachCall() {
		f.Handle = h.asker.EachCall(skill, digest, b.Capability, f.Handle)
	}
	return f
}
