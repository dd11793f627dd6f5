package endpoint_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/protocol/router"
)

func TestDecisionsCanBeRead(t *testing.T) {
	t.Parallel()
	seed := `[{"recordedAt":"2026-05-01T10:00:00.000Z","mode":"endpoint","provider":"direct","endpoint":{"id":"old","baseUrl":"http://old","hasToken":true},` +
		`"registered":["a"],"skipped":[],"unloaded":[],"trustDecisions":[{"moduleId":"a","pluginName":"a","trusted":true,"reason":"allowed"}]},7,{"mode":"x"}]`
	r := newRig(t, func(c *endpoint.Config) { c.TrustAudit = []byte(seed) })
	if list := r.TrustAudit(); len(list) != 1 || list[0].Endpoint.ID != "old" || !list[0].TrustDecisions[0].Trusted {
		t.Fatalf(`%+v; want len(list) = 1, list[0].Endpoint.ID = "old", list[0].TrustDecisions[0].Trusted = true`, list)
	}
	one, a := scripted(t, manifest("m", oneAction+`,"routes":[{"method":"GET","path":"/x"}]`), manifest("left-out", oneAction))
	if _, _, err := r.Connect(t.Context(), endpoint.Request{
		ID: "one", BaseURL: one.url(),
		AllowedModules: []string{"m", "late"},
	}); err != nil {
		t.Fatal(err)
	}
	two, _ := scripted(t, manifest("other", `"routes":[{"method":"GET","path":"/x"}]`))
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "two", BaseURL: two.url(), Provider: "e2b"})
	fails(t, err, capability.CodeConflict, "registration_conflict")
	strict, _ := scripted(t, manifest("strict", oneAction))
	_, _, err = r.Connect(t.Context(), endpoint.Request{
		ID: "three", BaseURL: strict.url(),
		TrustPolicy: &router.TrustPolicy{StrictNames: true},
	})
	fails(t, err, capability.CodeConflict, "registration_conflict")
	_, _, err = r.Connect(t.Context(), endpoint.Request{
		ID: "four", BaseURL: strict.url(),
		TrustPolicy: &router.TrustPolicy{RequireSignedProvenance: true},
	})
	fails(t, err, capability.CodeDenied, "module_not_trusted")
	list := r.TrustAudit()
	if len(list) != 5 {
		t.Fatalf("%+v; want len(list) = 5", list)
	}
	if rec := list[2]; rec.Mode != "e2b" || rec.Collision == nil || rec.Collision.Kind != "route" || rec.Collision.Key != "GET /x" ||
		len(rec.Collision.Owners) != 2 || len(rec.Registered) != 0 {
		t.Errorf(`%+v; want rec.Mode = "e2b", rec.Collision not nil, rec.Collision.Kind = "route", rec.Collision.Key = "GET `+
			`/x", len(rec.Collision.Owners) = 2, len(rec.Registered) = 0`, rec)
	}
	if rec := list[3]; rec.Collision == nil || rec.Collision.Kind != "action" {
		t.Errorf(`%+v; want rec.Collision not nil, rec.Collision.Kind = "action"`, rec)
	}
	if rec := list[4]; rec.Collision != nil || rec.Error.Code != capability.CodeDenied ||
		rec.TrustDecisions[0].Reason != "missing-provenance" {
		t.Errorf("%+v; want rec.Collision = nil, rec.Error.Code = capability.CodeDenied, rec.TrustDecisions[0].Reason = "+
			`"missing-provenance"`, rec)
	}
	// An endpoint's status has its own, a failed sync among them.
	a.offer(manifest("m", oneAction), manifest("late", oneAction+`,"events":[{"eventName":"E"},{"eventName":"E"}]`))
	for range 3 {
		if reports, err := r.Sync(t.Context(), admin(), "one"); err != nil || reports[0].Error == nil {
			t.Fatalf("%+v %v; want no error, reports[0].Error not nil", reports, err)
		}
	}
	st, err := r.Show("one")
	if err != nil || len(st.History) != 2 {
		t.Fatalf("%+v %v; want no error, len(st.History) = 2", st.History, err)
	}
	want := []router.TrustDecision{
		{ModuleID: "m", PluginName: "m", EndpointID: "one", Trusted: true, Reason: "allowed"},
		{ModuleID: "left-out", PluginName: "left-out", EndpointID: "one", Reason: "module-not-allowed"},
	}
	if d := cmp.Diff(want, st.History[0].TrustDecisions); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if last := st.History[1]; last.Mode != "sync" || last.Collision == nil || last.Collision.Kind != "event" {
		t.Errorf(`%+v; want last.Mode = "sync", last.Collision not nil, last.Collision.Kind = "event"`, last)
	}
	doc, err := json.Marshal(r.List())
	if err != nil || !strings.Contains(string(doc), `"history":[{"recordedAt":`) ||
		!strings.Contains(string(doc), `"collision":{"kind":"event"`) {
		t.Errorf(`%s %v; want no error, string(doc) with "\"history\":[{\"recordedAt\":", string(doc) with `+
			`"\"collision\":{\"kind\":\"event\""`, doc, err)
	}
}

func TestKeysThatCannotBeUsedAreRefused(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	const rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n"
	r := newRig(t, nil)
	h, _ := scripted(t, s.sign(t, "m", oneAction, ""))
	for name, key := range map[string]string{
		"no PEM": "nonsense", "escaped newlines": strings.ReplaceAll(s.pem, "\n", `\n`),
		"not a key":    "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
		"another kind": rsa, "two": s.pem + s.pem,
	} {
		doc, err := json.Marshal(map[string]any{
			"requireVerifiedProvenance":   true,
			"trustedProvenancePublicKeys": map[string]string{"builder": key},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = endpoint.ParseTrustPolicy(doc); capability.CodeOf(err) != capability.CodeInvalidInput ||
			!strings.Contains(err.Error(), `"builder"`) {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, err.Error() with "\"builder\""`, name, err)
		}
		policy := s.policy()
		policy.TrustedProvenancePublicKeys["builder"] = key
		_, _, err = r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), TrustPolicy: policy})
		fails(t, err, capability.CodeInvalidInput, "")
		if len(r.List()) != 0 {
			t.Errorf("%s: it was connected; want len(r.List()) = 0", name)
		}
		// A configured one is there, with all of it denied.
		again := newRig(t, func(c *endpoint.Config) {
			c.Configured = []endpoint.Configured{{ID: "e", BaseURL: h.url(), TrustPolicy: doc}}
		})
		again.eventually("it is denied", func() bool { return again.state("e") == capability.StateUnconfigured })
	}
	if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), TrustPolicy: s.policy()}); err != nil {
		t.Error(err)
	}
}
