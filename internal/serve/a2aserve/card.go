package a2aserve

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

const (
	cardAge = "public, max-age=300"
	keysAge = "public, max-age=3600"
)

// signed is an encoded card or key set with its ETag.
type signed struct {
	body []byte
	etag string
}

// baseCard returns the part of the card that is the same for all callers.
func (s *Surface) baseCard() *a2a.AgentCard {
	at := s.cfg.URL + "/a2a"
	return &a2a.AgentCard{
		Name: "junctor", Version: s.cfg.Version,
		Description: "The capability plane of this installation: agents reach tools, devices and other agents over one governed path. Name a capability by its skill id and give its arguments.",
		SupportedInterfaces: []*a2a.AgentInterface{
			{URL: at, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: version10},
			{URL: at, ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: version10},
			{URL: at, ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: version03},
		},
		Capabilities:       a2a.AgentCapabilities{Streaming: true, PushNotifications: s.cfg.Push != nil, ExtendedAgentCard: true},
		DefaultInputModes:  []string{"application/json", "text/plain"},
		DefaultOutputModes: []string{"application/json", "text/plain"},
		SecuritySchemes: a2a.NamedSecuritySchemes{
			"bearer": a2a.HTTPAuthSecurityScheme{Scheme: "Bearer", Description: "a token of this server: junctor tokens create --role agent"},
		},
		SecurityRequirements: a2a.SecurityRequirementsOptions{{"bearer": {}}},
	}
}

// publicCard returns the card for anonymous callers, which only shows that there is a server.
func (s *Surface) publicCard() (signed, error) {
	card := s.baseCard()
	card.Skills = []a2a.AgentSkill{{
		ID: "call", Name: "Call a capability", Tags: []string{"capabilities", "tools"},
		Description: "Carries out one capability. The authenticated extended card lists those of the caller.",
		Examples:    []string{`{"capability": "fs_list", "arguments": {"path": "."}}`},
	}}
	body, err := s.sign(card)
	if err != nil {
		return signed{}, err
	}
	sum := sha256.Sum256(body)
	return signed{body: body, etag: `"` + hex.EncodeToString(sum[:16]) + `"`}, nil
}

// extendedCard returns the card with the skills that the caller may use.
func (s *Surface) extendedCard(c *caller) (jsonx.Raw, error) {
	agent, permitted, err := s.cfg.Engine.Agent(c.invocation())
	if err != nil {
		return nil, err
	}
	shown, err := agent.Expose(compile.Limits{View: s.cfg.Exposure, Exposure: agent.Snapshot().Settings().Exposure, ByName: true})
	if err != nil {
		return nil, capability.Wrap(capability.CodeInternal, "a2a.card", "the catalog's exposure cannot be used", err)
	}
	card := s.baseCard()
	var listed []*compile.Action
	for _, a := range shown.Direct {
		i := slices.IndexFunc(a.Entries, func(e *catalog.Entry) bool { return e.Provider != nil && permitted(e) })
		if i < 0 || len(listed) == maxSkills {
			continue
		}
		listed = append(listed, a)
		card.Skills = append(card.Skills, skillOf(agent, a, a.Entries[i]))
	}
	slices.SortFunc(card.Skills, func(a, b a2a.AgentSkill) int { return strings.Compare(a.ID, b.ID) })
	s.leases.Record(c.lease(), agent, spelling(), listed)
	body, err := s.sign(card)
	return body, err
}

func skillOf(agent *compile.Agent, a *compile.Action, e *catalog.Entry) a2a.AgentSkill {
	id := spelling().Write(agent, a)
	name := a.Title
	if name == "" {
		name = e.DisplayName()
	}
	name = cmp.Or(name, id)
	description := a.Description
	description = cmp.Or(description, name)
	return a2a.AgentSkill{ID: id, Name: name, Description: description, Tags: []string{string(a.Canonical), "effect:" + string(e.Effect)}}
}

// sign encodes a card that clients of both versions can read, with a signature over its
// v1.0 form (JWS, ES256, RFC 8785; without empty members, as A2A v1.0 requires).
func (s *Surface) sign(card *a2a.AgentCard) ([]byte, error) {
	doc, err := json.Marshal(card)
	if err != nil {
		return nil, err
	}
	var form map[string]any
	if err := json.Unmarshal(doc, &form); err != nil {
		return nil, err
	}
	delete(form, "signatures")
	bare, err := jsonx.Marshal(jsonx.Pruned(form))
	if err != nil {
		return nil, err
	}
	payload, err := jsonx.Canonical(bare)
	if err != nil {
		return nil, err
	}
	signature, err := s.jws(payload)
	if err != nil {
		return nil, err
	}
	form["signatures"] = []any{signature}
	return jsonx.Marshal(alsoLegacy(form))
}

// alsoLegacy adds the members that clients of v0.3 read. No member of v1.0 changes its
// meaning, and clients of each version ignore the members of the other.
func alsoLegacy(form map[string]any) map[string]any {
	interfaces, _ := form["supportedInterfaces"].([]any)
	for _, one := range interfaces {
		if i, _ := one.(map[string]any); i["protocolVersion"] == version03 {
			form["url"], form["preferredTransport"], form["protocolVersion"] = i["url"], i["protocolBinding"], "0.3.0"
		}
	}
	form["supportsAuthenticatedExtendedCard"] = true
	form["security"] = []any{map[string]any{"bearer": []any{}}}
	if schemes, _ := form["securitySchemes"].(map[string]any); schemes != nil {
		if bearer, _ := schemes["bearer"].(map[string]any); bearer != nil {
			bearer["type"], bearer["scheme"] = "http", "bearer"
		}
	}
	return form
}

func (s *Surface) jws(payload []byte) (map[string]any, error) {
	header, err := jsonx.Marshal(map[string]string{
		"alg": "ES256", "typ": "JOSE", "kid": keyID(&s.cfg.Key.PublicKey),
		"jku": s.cfg.URL + "/.well-known/jwks.json",
	})
	if err != nil {
		return nil, err
	}
	protected := base64.RawURLEncoding.EncodeToString(header)
	sum := sha256.Sum256([]byte(protected + "." + base64.RawURLEncoding.EncodeToString(payload)))
	r, v, err := ecdsa.Sign(rand.Reader, s.cfg.Key, sum[:])
	if err != nil {
		return nil, err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	v.FillBytes(signature[32:])
	return map[string]any{"protected": protected, "signature": base64.RawURLEncoding.EncodeToString(signature)}, nil
}

// jwk returns the public key as a JWK (RFC 7517).
func jwk(k *ecdsa.PublicKey) map[string]string {
	point, err := k.Bytes() // 4, x, y
	if err != nil || len(point) != 65 {
		return nil
	}
	return map[string]string{
		"crv": "P-256", "kty": "EC",
		"x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:]),
	}
}

// keyID returns the thumbprint of the key (RFC 7638).
func keyID(k *ecdsa.PublicKey) string {
	doc, err := jsonx.Marshal(jwk(k)) // deterministic: sorted, without spaces
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(doc)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (s *Surface) serveCard(w http.ResponseWriter, r *http.Request) {
	card, err := s.card()
	if err != nil {
		s.cfg.Logger.Error("the agent card cannot be written", "err", err)
		httpapi.WriteError(w, capability.Wrap(capability.CodeInternal, "a2a.card", "the card cannot be written", err))
		return
	}
	serveCached(w, r, card, cardAge)
}

func (s *Surface) serveKeys(w http.ResponseWriter, r *http.Request) {
	key := jwk(&s.cfg.Key.PublicKey)
	key["kid"], key["use"], key["alg"] = keyID(&s.cfg.Key.PublicKey), "sig", "ES256"
	body, err := jsonx.Marshal(map[string]any{"keys": []any{key}})
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	serveCached(w, r, signed{body: body, etag: `"` + key["kid"] + `"`}, keysAge)
}

func serveCached(w http.ResponseWriter, r *http.Request, c signed, age string) {
	h := w.Header()
	h.Set("Cache-Control", age)
	h.Set("ETag", c.etag)
	h.Set("Access-Control-Allow-Origin", "*") // it is public, and pages read it too
	for tag := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/"); tag == c.etag || tag == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(c.body)
}
