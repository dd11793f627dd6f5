package payload

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// DefaultLanguage is the language of a module that sets none.
const DefaultLanguage = "python"

// Module is a piece of transferred code. Exactly one of Source, SourceBase64
// and Asset holds it.
type Module struct {
	ModuleID     string          `json:"module_id"`
	Language     string          `json:"language"` // lower case
	Source       string          `json:"source,omitzero"`
	SHA256       string          `json:"sha256,omitzero"`
	SourceBase64 string          `json:"source_base64,omitzero"`
	Asset        *cmp.Asset      `json:"asset,omitzero"`
	Entry        string          `json:"entry,omitzero"`
	Permissions  []string        `json:"permissions,omitempty"`
	Signature    json.RawMessage `json:"signature,omitzero"`
}

func readModule(raw json.RawMessage) (Module, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return Module{}, invalid("it is no object")
	}
	var m Module
	if err := jsonx.Unmarshal(raw, &m); err != nil {
		return Module{}, err
	}
	m.ModuleID = strings.TrimSpace(m.ModuleID)
	m.Language = strings.ToLower(strings.TrimSpace(m.Language))
	m.SHA256 = strings.TrimSpace(m.SHA256)
	if m.Language == "" {
		m.Language = DefaultLanguage
	}
	if err := printable("module_id", m.ModuleID); err != nil {
		return Module{}, err
	}
	return m, printable("language", m.Language)
}

// Source is a checked module. Code is nil while the code is in an asset.
type Source struct {
	ModuleID string
	Language string // as it was sent, lower case
	Code     []byte
	Asset    *cmp.Asset
	SHA256   string // lower-case hex, of Code
	Bytes    int
	Entry    string
}

// Sources checks the modules against the limits and returns them. A limit of 0 permits nothing.
// Errors: invalid_payload, code_too_large, digest_mismatch. The host checks the languages.
func (p *Payload) Sources(limits cmp.Limits) ([]Source, error) {
	if len(p.Modules) > limits.Modules {
		return nil, cmp.Errorf(cmp.ReasonCodeTooLarge, "there are %d modules of code; the limit is %d", len(p.Modules), limits.Modules)
	}
	out := make([]Source, 0, len(p.Modules))
	seen := make(map[string]bool)
	total := 0
	for i := range p.Modules {
		m := &p.Modules[i]
		switch {
		case m.ModuleID == "" || len(m.ModuleID) > cmp.MaxName:
			return nil, invalid("runtime_modules[%d]: module_id must be 1 to %d bytes", i, cmp.MaxName)
		case seen[m.ModuleID]:
			return nil, invalid("the module %.80q is given twice", m.ModuleID)
		}
		seen[m.ModuleID] = true
		s, err := m.source(limits.ModuleSource)
		if err != nil {
			return nil, err
		}
		if total += s.Bytes; total > limits.TotalSource {
			return nil, cmp.Errorf(cmp.ReasonCodeTooLarge, "all modules of code together have more than %d bytes", limits.TotalSource)
		}
		out = append(out, s)
	}
	return out, nil
}

// source checks one module, decodes its code, and verifies the digest of code that is not in an asset.
func (m *Module) source(limit int) (Source, error) {
	s := Source{ModuleID: m.ModuleID, Language: m.Language, SHA256: m.SHA256, Entry: m.Entry}
	ways := 0
	for _, there := range []bool{strings.TrimSpace(m.Source) != "", m.SourceBase64 != "", m.Asset != nil} {
		if there {
			ways++
		}
	}
	if ways != 1 {
		return Source{}, invalid("the module %.80q must have one of source, source_base64 and asset, and it must not be blank", m.ModuleID)
	}
	switch {
	case m.Asset != nil:
		if err := m.Asset.Check(); err != nil {
			return Source{}, err
		}
		s.Asset, s.Bytes = m.Asset, int(m.Asset.Size)
		digest := strings.TrimPrefix(m.Asset.Digest, "sha256:")
		if s.SHA256 != "" && s.SHA256 != digest {
			return Source{}, mismatch(m.ModuleID)
		}
		s.SHA256 = digest
	case m.SourceBase64 != "":
		code, err := base64.StdEncoding.Strict().DecodeString(m.SourceBase64)
		if err != nil {
			return Source{}, invalid("source_base64 of the module %.80q is no standard base64 with padding", m.ModuleID)
		}
		if s.SHA256 == "" {
			return Source{}, invalid("the module %.80q needs sha256, since its code is in source_base64", m.ModuleID)
		}
		s.Code, s.Bytes = code, len(code)
	default:
		s.Code, s.Bytes = []byte(m.Source), len(m.Source)
	}
	if s.Bytes > limit {
		return Source{}, cmp.Errorf(cmp.ReasonCodeTooLarge, "the module %.80q has %d bytes; the limit is %d", m.ModuleID, s.Bytes, limit)
	}
	if s.Code != nil {
		return s, s.Verify()
	}
	return s, nil
}

// Fill sets the code that was in an asset. The error is digest_mismatch if size or digest differ.
func (s *Source) Fill(code []byte) error {
	if s.Asset == nil || int64(len(code)) != s.Asset.Size {
		return mismatch(s.ModuleID)
	}
	s.Code = code
	return s.Verify()
}

// Verify compares the code with its digest, or sets a missing digest. The error is digest_mismatch.
func (s *Source) Verify() error {
	sum := sha256.Sum256(s.Code)
	digest := hex.EncodeToString(sum[:])
	if s.SHA256 == "" {
		s.SHA256 = digest
	}
	if s.SHA256 != digest {
		return mismatch(s.ModuleID)
	}
	return nil
}

func mismatch(module string) error {
	return cmp.Errorf(cmp.ReasonDigest, "the code of the module %.80q does not have the digest that it is sent with", module)
}
