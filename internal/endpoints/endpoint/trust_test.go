package endpoint_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/protocol/router"
)

// signer signs manifests as issuer "builder".
type signer struct {
	private ed25519.PrivateKey
	pem     string
}

func newSigner(t testing.TB) signer {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))}
}

// sign returns the manifest with its provenance; tamper changes it afterwards.
func (s signer) sign(t testing.TB, id, members, tamper string) string {
	t.Helper()
	m, err := router.ParseModule(json.RawMessage(manifest(id, members)))
	if err != nil {
		t.Fatal(err)
	}
	digest, _, err := m.Digests()
	if err != nil {
		t.Fatal(err)
	}
	p := router.Provenance{Issuer: "builder", Subject: id, DigestSHA256: digest, SignatureAlgorithm: "ed25519"}
	p.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, p.SignedBytes()))
	doc, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return manifest(id, members+tamper+`,"provenance":`+string(doc))
}

func (s signer) policy() *router.TrustPolicy {
	return &router.TrustPolicy{RequireVerifiedProvenance: true, TrustedProvenancePublicKeys: map[string]string{"builder": s.pem}}
}

func TestTrustPoliciesAreReadStrictly(t *testing.T) {
	t.Parallel()
	for doc, says := range map[string]string{
		`null`: "object", `[]`: "object", `"x"`: "object", `{`: "object",
		`{"allowedModuleIds":"a"}`:                              "trustPolicy.allowedModuleIds must be a list",
		`{"allowedModuleIds":null}`:                             "must be a list",
		`{"allowedModuleIds":["a",null]}`:                       "must be a list",
		`{"allowedModuleIds":["a",1]}`:                          "must be a list",
		`{"allowedModuleIds":[]}`:                               "empty",
		`{"allowedEndpointIds":[" "]}`:                          "empty",
		`{"allowedProvenanceIssuers":{}}`:                       "trustPolicy.allowedProvenanceIssuers",
		`{"trustedProvenancePublicKeys":[]}`:                    "trustedProvenancePublicKeys must be an object",
		`{"trustedProvenancePublicKeys":{"a":1}}`:               "trustedProvenancePublicKeys must be an object",
		`{"trustedProvenancePublicKeys":{"a":null}}`:            `"a"`,
		`{"trustedProvenancePublicKeys":{" ":"k"}}`:             "PEM",
		`{"requireSignedProvenance":"true"}`:                    "trustPolicy.requireSignedProvenance must be true or false",
		`{"requireVerifiedProvenance":1}`:                       "requireVerifiedProvenance",
		`{"requireProvenanceDigestMatch":null}`:                 "requireProvenanceDigestMatch",
		`{"requireEndpointId":[]}`:                              "requireEndpointId",
		`{"allowSharedModelTypes":"yes"}`:                       "allowSharedModelTypes",
		`{"strictNames":0}`:                                     "strictNames",
		`{"strictNames":true,"strictNames":false}`:              "object",
		`{"requireSignedProvenance":true,"allowedModuleIds":5}`: "allowedModuleIds",
	} {
		_, _, err := endpoint.ParseTrustPolicy([]byte(doc))
		if e := capability.AsError(err); err == nil || e.Code != capability.CodeInvalidInput || !strings.Contains(e.Message, says) {
			t.Errorf("%s: %v, want %q", doc, err, says)
		}
	}
	got, warnings, err := endpoint.ParseTrustPolicy([]byte(`{"allowedModuleIds":[" a ","a","b"],"requireVerifiedProvenance":true,"z":1,"strictNames":false,"allowedModules":[]}`))
	want := &router.TrustPolicy{
		AllowedModuleIDs: []string{"a", "b"}, RequireVerifiedProvenance: true, RequireProvenanceDigestMatch: true,
		RequireSignedProvenance: true,
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("err = %v, want nil; diff (-want +got):\n%s", err, d)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "allowedModules") || !strings.Contains(warnings[1], "trustPolicy.z") {
		t.Errorf("warnings = %q, want one of allowedModules and one of trustPolicy.z", warnings)
	}
}

func TestAPolicyDecidesForItsEndpointAndNoOther(t *testing.T) {
	t.Parallel()
	s, stranger := newSigner(t), newSigner(t)
	for name, c := range map[string]struct {
		manifests []string
		policy    *router.TrustPolicy
		allowed   []string
		reason    string // of the refusal; "" let in
	}{
		"signed":                {[]string{s.sign(t, "m", oneAction, "")}, s.policy(), nil, ""},
		"unsigned":              {[]string{manifest("m", oneAction)}, s.policy(), nil, router.TrustUnsigned},
		"by a stranger":         {[]string{stranger.sign(t, "m", oneAction, "")}, s.policy(), nil, router.TrustInvalidSignature},
		"changed after signing": {[]string{s.sign(t, "m", oneAction, `,"priority":9`)}, s.policy(), nil, router.TrustInvalidDigest},
		"no key": {
			[]string{s.sign(t, "m", oneAction, "")},
			&router.TrustPolicy{RequireVerifiedProvenance: true}, nil,
			router.TrustNoKey,
		},
		"another issuer": {
			[]string{s.sign(t, "m", oneAction, "")},
			&router.TrustPolicy{AllowedProvenanceIssuers: []string{"x"}}, nil,
			router.TrustIssuer,
		},
		"another endpoint's policy": {
			[]string{manifest("m", oneAction)},
			&router.TrustPolicy{AllowedEndpointIDs: []string{"other"}}, nil,
			router.TrustEndpoint,
		},
		"one of two is unsigned":    {[]string{s.sign(t, "m", oneAction, ""), manifest("n", oneAction)}, s.policy(), nil, router.TrustUnsigned},
		"the unsigned one left out": {[]string{s.sign(t, "m", oneAction, ""), manifest("n", oneAction)}, s.policy(), []string{"m"}, ""},
		"with a bundle path": {
			[]string{s.sign(t, "m", oneAction+`,"views":[{"id":"v","label":"v","bundlePath":"/v.js"}]`, "")},
			s.policy(), nil, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			free, _ := scripted(t, manifest("free", oneAction))
			r.connect("free", free)
			h, _ := scripted(t, c.manifests...)
			before := r.catalog.Snapshot().Etag
			_, _, err := r.Connect(t.Context(), endpoint.Request{
				ID: "e", BaseURL: h.url(), TrustPolicy: c.policy, AllowedModules: c.allowed,
				Persist: true, By: admin(),
			})
			r.must("free:action:GO", `{}`)
			if c.reason == "" {
				if err != nil {
					t.Fatal(err)
				}
				r.must("m:action:GO", `{}`)
				st, _ := r.Show("e")
				if len(st.TrustDecisions) != len(c.manifests) || !st.TrustDecisions[0].Trusted || st.TrustDecisions[0].Reason != router.TrustAllowed {
					t.Errorf("%+v; want len(st.TrustDecisions) = %v, st.TrustDecisions[0].Trusted = true, "+
						"st.TrustDecisions[0].Reason = router.TrustAllowed", st.TrustDecisions, len(c.manifests))
				}
				return
			}
			e := fails(t, err, capability.CodeDenied, "module_not_trusted")
			if d, ok := e.Details["trustDecision"].(router.TrustDecision); !ok || d.Reason != c.reason || d.EndpointID != "e" {
				t.Errorf(`%+v; want ok = true, d.Reason = %v, d.EndpointID = "e"`, e.Details, c.reason)
			}
			if r.catalog.Snapshot().Etag != before || len(r.List()) != 1 {
				t.Errorf("something stayed behind; want r.catalog.Snapshot().Etag = %v, len(r.List()) = 1", before)
			}
			lines, err := r.log.Query(t.Context(), audit.Query{Event: audit.TrustDecided, Limit: 100})
			if err != nil || !slices.ContainsFunc(lines, func(l json.RawMessage) bool { return strings.Contains(string(l), c.reason) }) {
				t.Errorf("the refusal is not on record: %s %v", lines, err)
			}
		})
	}
}

func TestAModuleThatLosesItsTrustIsUnloadedAndComesBackWithIt(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	r := newRig(t, nil)
	h, a := scripted(t, s.sign(t, "m", oneAction, ""), s.sign(t, "n", oneAction, ""))
	if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "e", BaseURL: h.url(), TrustPolicy: s.policy(), Persist: true}); err != nil {
		t.Fatal(err)
	}
	a.offer(s.sign(t, "m", oneAction, `,"priority":1`), s.sign(t, "n", oneAction, ""))
	reports, err := r.Sync(t.Context(), admin(), "e")
	if err != nil || reports[0].Error != nil || !slices.Equal(reports[0].Sync.Unloaded, []string{"m"}) ||
		!slices.Equal(reports[0].Sync.Skipped, []string{"n"}) {
		t.Fatalf(`%+v %v; want no error, reports[0].Error = nil, reports[0].Sync.Unloaded = []string{"m"}, `+
			`reports[0].Sync.Skipped = []string{"n"}`, reports[0], err)
	}
	_, err = r.call("m:action:GO", `{}`)
	fails(t, err, capability.CodeUnknownCapability, "")
	r.must("n:action:GO", `{}`)
	st, _ := r.Show("e")
	if d := st.TrustDecisions[1]; d.ModuleID != "m" || d.Trusted || d.Reason != router.TrustInvalidDigest || d.Detail == "" {
		t.Errorf(`%+v; want d.ModuleID = "m", d.Trusted = false, d.Reason = router.TrustInvalidDigest, d.Detail other than ""`,
			st.TrustDecisions)
	}
	a.offer(s.sign(t, "m", oneAction+`,"priority":1`, ""), s.sign(t, "n", oneAction, ""))
	if _, err := r.Sync(t.Context(), admin(), "e"); err != nil {
		t.Fatal(err)
	}
	r.must("m:action:GO", `{}`)
}

func TestAPolicyThatCannotBeReadDeniesEverything(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"no object":                  `json_set(doc, '$.trust_policy', 'lost')`,
		"another type":               `json_set(doc, '$.trust_policy', json('{"requireVerifiedProvenance":"true"}'))`,
		"an unknown rule":            `json_set(doc, '$.trust_policy', json('{"requireTwoSignatures":true}'))`,
		"an empty allow-list":        `json_set(doc, '$.allowed_modules', json('[]'))`,
		"an allow-list that is none": `json_set(doc, '$.allowed_modules', 'm')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSigner(t)
			r := newRig(t, nil)
			h := device(t)
			r.connect("other", h)
			bad, _ := scripted(t, s.sign(t, "m", oneAction, ""))
			if _, _, err := r.Connect(t.Context(), endpoint.Request{
				ID: "bad", BaseURL: bad.url(), TrustPolicy: s.policy(),
				Persist: true,
			}); err != nil {
				t.Fatal(err)
			}
			good, _ := scripted(t, manifest("g", oneAction))
			if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: "good", BaseURL: good.url(), Persist: true}); err != nil {
				t.Fatal(err)
			}
			r.halt()
			if _, err := r.db.SQL().ExecContext(t.Context(), fmt.Sprintf(`UPDATE endpoints SET doc = %s WHERE id = 'bad'`, damage)); err != nil {
				t.Fatal(err)
			}
			again := newRigOn(t, r.db, r.vault, nil)
			again.eventually("both were asked", func() bool {
				st, err := again.Show("bad")
				return err == nil && !st.Synced.IsZero() && again.state("good") == capability.StateReady
			})
			again.must("g:action:GO", `{}`)
			_, err := again.call("m:action:GO", `{}`)
			fails(t, err, capability.CodeUnknownCapability, "")
			st, _ := again.Show("bad")
			if len(st.Modules) != 0 || len(st.TrustDecisions) != 1 || st.TrustDecisions[0].Trusted {
				t.Errorf("%+v; want len(st.Modules) = 0, len(st.TrustDecisions) = 1, st.TrustDecisions[0].Trusted = false", st)
			}
			if name != "an empty allow-list" && (st.State != capability.StateUnconfigured ||
				st.TrustDecisions[0].Reason != endpoint.TrustUnreadable || !strings.Contains(st.Reason, "cannot be read")) {
				t.Errorf("it does not show: %+v", st)
			}
			// Connecting it again repairs it.
			if _, _, err := again.Connect(t.Context(), endpoint.Request{
				ID: "bad", BaseURL: bad.url(), TrustPolicy: s.policy(),
				Persist: true,
			}); err != nil {
				t.Fatal(err)
			}
			again.must("m:action:GO", `{}`)
		})
	}
}

func TestConnectingAgainNeverCollidesWithItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	everything := oneAction + `,"services":[{"serviceType":"s","methods":["run"]}],"models":[{"modelType":"TEXT"}],"routes":[{"method":"GET","path":"/x"}],` +
		`"widgets":[{"id":"w","slot":"wallet","label":"w"}],"views":[{"id":"v","label":"v","bundlePath":"/v.js"}],` +
		`"app":{"navTabs":[{"id":"t","label":"t","path":"/t"}]},"appBridge":{"hooks":["resolveLaunchSession"]}`
	h, a := scripted(t, manifest("m", everything))
	r.connect("e", h)
	etag := r.catalog.Snapshot().Etag
	generation := r.catalog.Snapshot().Generation
	if reports, err := r.Sync(t.Context(), admin(), "e"); err != nil || reports[0].Error != nil ||
		!slices.Equal(reports[0].Sync.Skipped, []string{"m"}) {
		t.Errorf(`%+v %v; want no error, reports[0].Error = nil, reports[0].Sync.Skipped = []string{"m"}`, reports, err)
	}
	if s := r.catalog.Snapshot(); s.Etag != etag || s.Generation != generation {
		t.Errorf("a sync of what has not changed changed the catalog; got s.Etag = %v, s.Generation = %v; want s.Etag = %v, "+
			"s.Generation = %v", s.Etag, s.Generation, etag, generation)
	}
	if s := r.connect("e", h); !slices.Equal(s.Skipped, []string{"m"}) || s.Registered == nil ||
		len(s.Registered)+len(s.Unloaded)+len(s.Reloaded) != 0 {
		t.Errorf(`%+v; want s.Skipped = []string{"m"}, s.Registered not nil, len(s.Registered) + len(s.Unloaded) + len(s.Reloaded) = 0`,
			s)
	}
	r.connect("f", h) // by its URL
	for members, kind := range map[string]string{
		`"services":[{"serviceType":"s","methods":["run"]}]`: "service type", `"models":[{"modelType":"TEXT"}]`: "model type",
		`"routes":[{"method":"GET","path":"/x"}]`: "route", `"views":[{"id":"v","label":"v","bundlePath":"/v.js"}]`: "view",
		`"app":{"navTabs":[{"id":"t","label":"t","path":"/t"}]}`: "nav tab",
	} {
		other, _ := scripted(t, manifest("other", members), manifest("fine", ""))
		before := r.catalog.Snapshot().Etag
		_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "o", BaseURL: other.url(), Persist: true})
		if e := fails(t, err, capability.CodeConflict, "registration_conflict"); e.Details["kind"] != kind ||
			!strings.Contains(e.Message, "endpoint/f") || !strings.Contains(e.Message, "endpoint/o") {
			t.Errorf(`%s: %v; want e.Details["kind"] = %v, e.Message with "endpoint/f", e.Message with "endpoint/o"`, kind, e, kind)
		}
		if r.catalog.Snapshot().Etag != before || len(r.List()) != 1 {
			t.Errorf("%s: something stayed behind; want r.catalog.Snapshot().Etag = %v, len(r.List()) = 1", kind, before)
		}
	}
	stacked, _ := scripted(t, manifest("other", `"models":[{"modelType":"TEXT","priority":7}]`))
	if _, _, err := r.Connect(t.Context(), endpoint.Request{
		ID: "o", BaseURL: stacked.url(),
		TrustPolicy: &router.TrustPolicy{AllowSharedModelTypes: true},
	}); err != nil {
		t.Error(err)
	}
	strict, _ := scripted(t, manifest("strict", oneAction))
	_, _, err := r.Connect(t.Context(), endpoint.Request{ID: "p", BaseURL: strict.url(), TrustPolicy: &router.TrustPolicy{StrictNames: true}})
	fails(t, err, capability.CodeConflict, "registration_conflict")
	// A manifest that changes into a collision keeps what it had.
	late, l := scripted(t, manifest("late", oneAction))
	r.connect("late", late)
	l.offer(manifest("late", oneAction+`,"routes":[{"method":"GET","path":"/x"}]`))
	if reports, err := r.Sync(t.Context(), admin(), "late"); err != nil || reports[0].Error == nil ||
		reports[0].Error.Code != capability.CodeConflict {
		t.Errorf("%+v %v; want no error, reports[0].Error not nil, reports[0].Error.Code = capability.CodeConflict", reports, err)
	}
	r.must("late:action:GO", `{}`)
	a.offer(manifest("m", oneAction))
	if _, err := r.Sync(t.Context(), admin(), "f"); err != nil {
		t.Error(err)
	}
	r.eventually("the route is free and taken", func() bool {
		return len(r.catalog.Snapshot().Member(capability.Member{Module: "late", Kind: "route", Name: "GET /x"})) == 1
	})
}

func TestALocalModuleIsNotShadowed(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *endpoint.Config) {
		c.Local = func() []capability.Module { return []capability.Module{{ID: "local", Name: "local", Origin: "local"}} }
	})
	h, _ := scripted(t, `{"id":"x","name":"local"}`)
	_, _, err := r.Connect(t.Context(), endpoint.Request{BaseURL: h.url()})
	if e := fails(t, err, capability.CodeConflict, "registration_conflict"); !strings.Contains(e.Message, "module local (local)") {
		t.Errorf(`e.Message = %q, want it to contain "module local (local)"`, e.Message)
	}
}
