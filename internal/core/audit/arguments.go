package audit

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// ArgumentMode is how much is kept of the arguments of calls.
type ArgumentMode string

// The modes. Records themselves never contain arguments.
const (
	ArgumentDigest   ArgumentMode = "digest"   // nothing but the digest in the record
	ArgumentRedacted ArgumentMode = "redacted" // the arguments, with secrets masked
	ArgumentFull     ArgumentMode = "full"     // the arguments
)

// ReasonNoArguments is the reason of not_found for a call whose arguments are not kept.
const ReasonNoArguments = "arguments_not_kept"

// Arguments stores the sealed arguments of calls beside the chain. Names are hexadecimal.
type Arguments interface {
	// Put stores a document, also in place of another one of the same name.
	Put(name string, sealed []byte) error
	// Get returns nil if the name does not exist.
	Get(name string) ([]byte, error)
	Remove(name string) error
	// Sweep removes what was put before a time.
	Sweep(before time.Time) error
}

// KeptArguments are the arguments of one call.
type KeptArguments struct {
	Run       string          `json:"run"`
	Mode      ArgumentMode    `json:"mode"`
	Bytes     int             `json:"bytes"` // of the input as it was
	Cut       bool            `json:"cut,omitempty"`
	Arguments json.RawMessage `json:"arguments"` // null if they could not be kept within the bound
}

// KeepArguments stores the input of a call under its digest, unless Config.ArgumentMode is digest. It
// is best effort: a failure is logged, because the record with the digest is what must exist.
func (l *Log) KeepArguments(digest string, input []byte) {
	if l.cfg.Arguments == nil || l.cfg.ArgumentMode != ArgumentRedacted && l.cfg.ArgumentMode != ArgumentFull {
		return
	}
	doc, err := json.Marshal(l.reduce(input))
	if err == nil {
		var box cipher.AEAD
		if box, err = l.box(); err == nil {
			nonce := make([]byte, box.NonceSize())
			_, _ = rand.Read(nonce) // never fails
			err = l.cfg.Arguments.Put(digest, box.Seal(nonce, nonce, doc, []byte(digest)))
		}
	}
	if err != nil {
		l.cfg.Logger.Warn("arguments of a call not kept", "err", err)
	}
}

// box returns the cipher of arguments. Its key is derived from the key of the home.
func (l *Log) box() (cipher.AEAD, error) {
	if len(l.cfg.Key) == 0 {
		return nil, fmt.Errorf("the key of the home is missing")
	}
	derive := hmac.New(sha256.New, l.cfg.Key)
	_, _ = derive.Write([]byte("junctor audit arguments"))
	block, err := aes.NewCipher(derive.Sum(nil))
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// reduce returns what is kept of an input: masked according to the mode, and within the bounds.
func (l *Log) reduce(input []byte) KeptArguments {
	kept := KeptArguments{Mode: l.cfg.ArgumentMode, Bytes: len(input), Arguments: json.RawMessage("null")}
	if len(input) == 0 {
		return kept
	}
	kept.Cut = true
	if len(input) > maxArgumentsInput {
		return kept
	}
	var value any
	d := json.NewDecoder(bytes.NewReader(input))
	d.UseNumber()
	if d.Decode(&value) != nil {
		return kept
	}
	if l.cfg.ArgumentMode != ArgumentFull {
		value = l.maskArguments(value)
	}
	for _, limit := range []int{maxArguments, maxArgumentText, 64} {
		doc, err := json.Marshal(shorten(value, limit))
		if err == nil && len(doc) <= maxArguments-1024 {
			kept.Arguments, kept.Cut = doc, limit != maxArguments
			return kept
		}
	}
	return kept
}

// maskArguments replaces the values of members whose names are those of credentials, and credentials
// in strings.
func (l *Log) maskArguments(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			if text, isText := member.(string); secret.NamesCredential(name) && (!isText || text != "") {
				v[name] = redacted
			} else {
				v[name] = l.maskArguments(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = l.maskArguments(v[i])
		}
	case string:
		return secret.MaskTokens(l.enc.red.clean(v))
	}
	return value
}

// shorten cuts strings to a number of bytes.
func shorten(value any, limit int) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			out[name] = shorten(member, limit)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = shorten(v[i], limit)
		}
		return out
	case string:
		if len(v) > limit {
			return fmt.Sprintf("%s… (%d bytes)", text.CutBytes(v, limit), len(v))
		}
	}
	return value
}

// Arguments returns the arguments of a call, after a record that by has read them is on the disk.
// Errors: not_found, reason arguments_not_kept; unavailable, if the record cannot be written.
func (l *Log) Arguments(ctx context.Context, by capability.Principal, run string) (KeptArguments, error) {
	digest, err := l.digestOf(ctx, run)
	if err != nil {
		return KeptArguments{}, err
	}
	sealed, err := l.cfg.Arguments.Get(digest)
	if err != nil {
		return KeptArguments{}, capability.Wrap(capability.CodeFailed, "audit.arguments", "the arguments cannot be read", err)
	}
	if sealed == nil {
		return KeptArguments{}, noArguments(run)
	}
	if err := l.recordAccess(ctx, ArgumentsRead, by, run); err != nil {
		return KeptArguments{}, err
	}
	box, err := l.box()
	var doc []byte
	if err == nil && len(sealed) > box.NonceSize() {
		doc, err = box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], []byte(digest))
	}
	var kept KeptArguments
	if err == nil {
		err = json.Unmarshal(doc, &kept)
	}
	if err != nil {
		return KeptArguments{}, capability.Wrap(capability.CodeFailed, "audit.arguments",
			"the arguments were changed, or sealed with another key", err)
	}
	kept.Run = run
	return kept, nil
}

// RemoveArguments removes the arguments of a call, and of each call with equal ones, and records that.
// The chain holds as before.
func (l *Log) RemoveArguments(ctx context.Context, by capability.Principal, run string) error {
	digest, err := l.digestOf(ctx, run)
	if err != nil {
		return err
	}
	if err := l.recordAccess(ctx, ArgumentsRemoved, by, run); err != nil {
		return err
	}
	if err := l.cfg.Arguments.Remove(digest); err != nil {
		return capability.Wrap(capability.CodeFailed, "audit.arguments", "the arguments cannot be removed", err)
	}
	return nil
}

// digestOf returns the digest of the arguments of a call.
func (l *Log) digestOf(ctx context.Context, run string) (string, error) {
	if run == "" || l.cfg.Arguments == nil {
		return "", noArguments(run)
	}
	records, err := l.Query(ctx, Query{Run: run, Limit: maxRecordsOfRun})
	if err != nil {
		return "", err
	}
	for _, record := range records {
		var r struct {
			Metadata struct {
				ArgsHash string `json:"args_hash"`
			} `json:"metadata"`
		}
		if json.Unmarshal(record, &r) == nil && len(r.Metadata.ArgsHash) == hexLen {
			return r.Metadata.ArgsHash, nil
		}
	}
	return "", noArguments(run)
}

func (l *Log) recordAccess(ctx context.Context, event Event, by capability.Principal, run string) error {
	r := Record{Logger: "audit", Event: event, User: by.ID, Success: OutcomeSuccess, Metadata: Metadata{
		RunID: run, Principal: Principal{ID: by.ID, Role: by.Role},
	}}
	if got, err := l.Append(ctx, r, Synced); err != nil {
		return err
	} else if got.Seq == 0 {
		return capability.Errorf(capability.CodeUnavailable, "audit.arguments",
			"the audit log cannot be written, so nothing was done with the arguments").With("audit_unavailable", "see junctor doctor")
	}
	return nil
}

func noArguments(run string) error {
	return capability.Errorf(capability.CodeNotFound, "audit.arguments", "no arguments are kept of %.80q", run).
		With(ReasonNoArguments, "they were not kept (audit.arguments), were removed, or have expired")
}

// sweep removes arguments that are older than Config.RetainArguments. Caller holds keeping.
func (l *Log) sweep() {
	if l.cfg.Arguments == nil || l.cfg.RetainArguments <= 0 || time.Since(l.swept) < sweepInterval {
		return
	}
	l.swept = time.Now()
	l.warn("old arguments not removed", l.cfg.Arguments.Sweep(l.swept.Add(-l.cfg.RetainArguments)))
}
