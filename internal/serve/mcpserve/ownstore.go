package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/store/blob"
)

const (
	resultName  = ".result" // no artifact begins with a dot
	latestCalls = 100
)

// OwnStore implements [Own]. Results are blobs that belong to their calls, and calls are
// read from the audit log. All fields are required.
type OwnStore struct {
	Blobs  *blob.Store
	Log    *audit.Log
	Usages func(extension string) (string, error) // returns the usage document of an extension
	Limit  int64                                  // of a result, in bytes
}

// KeepResult stores a result as a blob of its call, once. A client that polls its task
// neither writes it again nor extends its lifetime.
func (o OwnStore) KeepResult(ctx context.Context, principal, invocation string, result []byte) error {
	refs, err := o.Blobs.List(ctx, invocation)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(refs, func(r blob.Ref) bool {
		return r.Name == resultName && r.Principal == principal && r.Size == int64(len(result))
	}) {
		return nil
	}
	ref := blob.Ref{Principal: principal, Run: invocation, Name: resultName, MIME: "application/json", Expires: time.Now().Add(resultTTL)}
	_, err = o.Blobs.Put(ctx, ref, bytes.NewReader(result), o.Limit)
	return err
}

// Result returns a stored result, for its own principal only.
func (o OwnStore) Result(ctx context.Context, principal, invocation string) ([]byte, error) {
	refs, err := o.Blobs.List(ctx, invocation)
	if err != nil {
		return nil, err
	}
	for _, ref := range refs {
		if ref.Name != resultName || ref.Principal != principal {
			continue
		}
		f, err := o.Blobs.Read(ref)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, o.Limit))
	}
	return nil, capability.Errorf(capability.CodeNotFound, "result", "there is no kept result of %q", invocation)
}

// Calls returns the principal's calls from the audit log. It omits calls that were denied,
// because the principal may not see the names of their capabilities.
func (o OwnStore) Calls(ctx context.Context, principal string) ([]byte, error) {
	type call struct {
		At         time.Time `json:"at"`
		Event      string    `json:"event"`
		Invocation string    `json:"invocation"`
		Action     string    `json:"action"`
		Provider   string    `json:"provider,omitempty"`
		Success    bool      `json:"success"`
		Millis     float64   `json:"duration_ms"`
	}
	calls := []call{}
	for _, event := range []audit.Event{audit.CapabilityExecuted, audit.CapabilityFailed, audit.CapabilityTimeout, audit.CapabilityCancelled} {
		records, err := o.Log.Query(ctx, audit.Query{User: principal, Event: event, Limit: latestCalls})
		if err != nil {
			return nil, err
		}
		for _, line := range records {
			var r struct {
				Timestamp time.Time `json:"timestamp"`
				Event     string    `json:"event"`
				Action    string    `json:"action"`
				Success   bool      `json:"success"`
				Seconds   float64   `json:"duration_seconds"`
				Metadata  struct {
					Run      string `json:"run_id"`
					Provider string `json:"provider"`
				} `json:"metadata"`
			}
			if json.Unmarshal(line, &r) == nil {
				calls = append(calls, call{r.Timestamp, r.Event, r.Metadata.Run, r.Action, r.Metadata.Provider, r.Success, r.Seconds * 1000})
			}
		}
	}
	slices.SortStableFunc(calls, func(a, b call) int { return b.At.Compare(a.At) })
	return jsonx.Marshal(map[string]any{"calls": calls[:min(len(calls), latestCalls)]})
}

// Usage returns an extension's usage document.
func (o OwnStore) Usage(extension string) (string, error) {
	text, err := o.Usages(extension)
	if err != nil || text == "" {
		return "", capability.Errorf(capability.CodeNotFound, "usage", "%s has no usage document", extension)
	}
	return text, nil
}
