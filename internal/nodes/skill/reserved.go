package skill

// This file makes the five functions of the capability management protocol
// callable on a node: what they take and answer is the original's, to the name.

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	wire "github.com/junctor-run/junctor/protocol/cmp"
)

// endpoints carry the calls to a host.
type endpoints struct {
	host   *Host
	source string
}

// RegisterReserved makes the five reserved functions callable. source is written
// into each record that is installed through them; "" is DefaultSource. Doing it
// twice is a conflict, unless replace is true.
func RegisterReserved(host *Host, table *functions.Registry, source string, replace bool) error {
	h := &endpoints{host: host, source: source}
	handlers := map[string]func(ctx context.Context, c functions.Call) (any, error){
		wire.InstallSkill:   h.install,
		wire.UninstallSkill: h.uninstall,
		wire.ListSkills:     h.listSkills,
		wire.ListFunctions:  h.listFunctions,
		wire.HostStatus:     h.status,
	}
	var all []functions.Function
	for _, r := range wire.Reserved() {
		handle := handlers[r.Name]
		all = append(all, functions.Function{
			Name: r.Name, Tags: r.Tags, Effect: r.Effect, Owner: functions.OwnerHost, Description: described(r.Name),
			Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
				v, err := handle(ctx, c)
				if err != nil {
					return nil, err
				}
				return jsonx.Marshal(v)
			},
		})
	}
	for {
		owners, revision := table.Owners()
		for _, f := range all {
			if _, taken := owners[f.Name]; taken && !replace {
				return capability.Errorf(capability.CodeConflict, "skill", "the function %s is registered already", f.Name)
			}
		}
		if done, err := table.Apply(functions.Change{Put: all}, revision); done || err != nil {
			return err
		}
	}
}

func described(name string) string {
	return map[string]string{
		wire.InstallSkill:   "Install a skill on this device, or update it.",
		wire.UninstallSkill: "Remove a skill and the functions it registered from this device.",
		wire.ListSkills:     "List the skills that are installed on this device.",
		wire.ListFunctions:  "List the functions that can be called on this device.",
		wire.HostStatus:     "Say what this device accepts: flags, actions, limits, languages.",
	}[name]
}

const (
	argPayload, argReplace, argDigest, argDry, argKey, argWait = "skill_payload", "replace_existing_skill", "expected_sha256", "dry_run",
		"idempotency_key", "wait_for_consent_seconds"

	argSkill, argUnregister = "skill_name", "unregister_functions"
	argActions, argSkills   = "include_actions", "include_installed_skills"
)

// install takes idempotency_key and needs it not: installs are idempotent by
// their digest.
func (h *endpoints) install(ctx context.Context, c functions.Call) (any, error) {
	args, err := c.Args.Bind(1, argPayload, argReplace, argDigest, argDry, argKey, argWait)
	if err != nil {
		return nil, err
	}
	o := Order{Payload: args[argPayload], Source: h.source, Caller: c.Caller}
	if o.Payload == nil {
		return nil, wire.Errorf(wire.ReasonParams, "%s is needed", argPayload)
	}
	replace, err1 := wire.Bool(args[argReplace], argReplace, true)
	dry, err2 := wire.Bool(args[argDry], argDry, false)
	digest, err3 := wire.String(args[argDigest], argDigest)
	_, err4 := wire.String(args[argKey], argKey)
	var seconds float64
	if v := args[argWait]; v != nil && (jsonx.Unmarshal(v, &seconds) != nil || seconds < 0) {
		return nil, wire.Errorf(wire.ReasonParams, "%s must be a number of seconds", argWait)
	}
	if err := cmp.Or(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	o.Keep, o.DryRun, o.ExpectedSHA256 = !replace, dry, digest
	o.Wait = min(time.Duration(min(seconds, AskTimeout.Seconds())*float64(time.Second)), AskTimeout)
	return h.host.Install(ctx, o)
}

func (h *endpoints) uninstall(ctx context.Context, c functions.Call) (any, error) {
	args, err := c.Args.Bind(2, argSkill, argUnregister)
	if err != nil {
		return nil, err
	}
	name, err1 := wire.String(args[argSkill], argSkill)
	unregister, err2 := wire.Bool(args[argUnregister], argUnregister, true)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	return h.host.Uninstall(ctx, name, !unregister, c.Caller)
}

func (h *endpoints) listSkills(_ context.Context, c functions.Call) (any, error) {
	if _, err := c.Args.Bind(0); err != nil {
		return nil, err
	}
	return h.host.Installed(), nil
}

func (h *endpoints) listFunctions(_ context.Context, c functions.Call) (any, error) {
	if _, err := c.Args.Bind(0); err != nil {
		return nil, err
	}
	return h.host.ListFunctions(), nil
}

func (h *endpoints) status(_ context.Context, c functions.Call) (any, error) {
	args, err := c.Args.Bind(2, argActions, argSkills)
	if err != nil {
		return nil, err
	}
	actions, err1 := wire.Bool(args[argActions], argActions, false)
	skills, err2 := wire.Bool(args[argSkills], argSkills, false)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	return h.host.Status(actions, skills), nil
}
