// Package policyfiles holds the folder of policy files: it reads them, reads them again when
// they change, and edits the one that "junctor policy" manages. Rules that cannot be used
// never replace those in force.
package policyfiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

const (
	// scanInterval is how often the folder is compared with the rules in force.
	scanInterval = time.Second
	// maxFiles and maxBytes bound what is read of the folder.
	maxFiles = 1000
	maxBytes = 8 << 20
	// maxNamed bounds the files that one record names.
	maxNamed = 5
)

// ReasonFault is the reason of an error about files that cannot be used.
const ReasonFault = "policy_fault"

// Policy is the part of the policy that the files are loaded into.
type Policy interface {
	SetRules(docs []policy.Document) error
	RecordRules(ctx context.Context, by capability.Principal, attrs ...audit.Attr)
}

// Files is the folder of policy files of one home.
type Files struct {
	dir    string
	logger *slog.Logger

	mu      sync.Mutex
	policy  Policy
	changed func()
	docs    []policy.Document // that were read last; nil to load the same ones again
	fault   error             // why they are not in force; nil if they are
}

// Open returns the folder dir and its documents. If it has none, Open first writes
// default.cedar with the default rules.
func Open(dir string, logger *slog.Logger) (*Files, []policy.Document, error) {
	f := &Files{dir: dir, logger: logger}
	docs, err := f.read()
	if err != nil {
		return nil, nil, err
	}
	if len(docs) == 0 {
		if err := hostfs.WriteFile(filepath.Join(dir, "default.cedar"), []byte(policy.DefaultRules())); err != nil {
			return nil, nil, err
		}
		if docs, err = f.read(); err != nil {
			return nil, nil, err
		}
	}
	f.docs = docs
	return f, docs, nil
}

// Run loads changed files into p until ctx ends, and calls changed after each time. If they cannot be
// used, the rules in force stay, and Fault reports the reason.
func (f *Files) Run(ctx context.Context, p Policy, changed func()) {
	f.Use(p, changed)
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Reload(ctx, capability.Principal{ID: "server", Role: capability.RoleAdmin})
		}
	}
}

// Use sets the policy into which changed files are loaded, and what is called afterwards, which must
// not block.
func (f *Files) Use(p Policy, changed func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.policy, f.changed = p, changed
}

// Fault returns why the files on disk are not in force, or nil if they are.
func (f *Files) Fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// Reload loads the files if they differ from those that were read last. by is recorded as the
// author of the change.
func (f *Files) Reload(ctx context.Context, by capability.Principal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	docs, err := f.read()
	if err == nil && len(docs) == 0 {
		err = capability.Errorf(capability.CodeInvalidInput, "policy", "the folder %s has no policy file", f.dir).
			With(ReasonFault, "restore a file, or restart the server: it writes the default rules into an empty folder")
	}
	if err != nil {
		f.docs = nil // so that the same files are loaded again once they can be read
		f.failed(err)
		return
	}
	if names := difference(f.docs, docs); len(names) > 0 {
		f.docs = docs
		f.load(ctx, docs, by, "files", names)
	}
}

// load puts documents into force, or notes why it cannot. Caller holds mu.
func (f *Files) load(ctx context.Context, docs []policy.Document, by capability.Principal, what string, names []string) {
	if f.policy == nil {
		return
	}
	if err := f.policy.SetRules(docs); err != nil {
		f.failed(err)
		return
	}
	f.fault = nil
	f.changed()
	f.logger.Info("policy files loaded", "files", len(docs))
	if more := len(names) - maxNamed; more > 0 {
		names = append(slices.Clone(names[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	f.policy.RecordRules(ctx, by, audit.Attr{Key: "change", Value: what}, audit.Attr{Key: "files", Value: fmt.Sprint(len(docs))},
		audit.Attr{Key: "file", Value: strings.Join(names, ", ")})
}

func (f *Files) failed(err error) {
	if f.fault == nil || f.fault.Error() != err.Error() {
		f.logger.Error("policy files cannot be used, so the previous rules stay in force", "err", err)
	}
	f.fault = err
}

// Changed is the result of one change.
type Changed struct {
	File   string `json:"file"`
	Before string `json:"before"` // the whole file; "" if it did not exist
	After  string `json:"after"`
	Rule   string `json:"rule"` // the rule that was written; "" if one was removed
}

// Change makes one change in the managed file and loads it. With dry, it only returns what it
// would write. Errors: invalid_input if the files would not be valid afterwards, or are not
// valid now; then nothing is written.
func (f *Files) Change(ctx context.Context, by capability.Principal, c policy.Change, dry bool) (Changed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	docs, err := f.read()
	if err != nil {
		return Changed{}, err
	}
	at := slices.IndexFunc(docs, func(d policy.Document) bool { return d.Name == policy.ManagedFile })
	if at < 0 {
		docs, at = append(docs, policy.Document{Name: policy.ManagedFile}), len(docs)
	}
	done := Changed{File: policy.ManagedFile, Before: string(docs[at].Text), Rule: c.Rule()}
	if docs[at].Text, err = c.Apply(docs[at].Text); err != nil {
		return Changed{}, err
	}
	done.After = string(docs[at].Text)
	if err := policy.Check(docs); err != nil {
		return Changed{}, err
	}
	if dry || done.After == done.Before {
		return done, nil
	}
	if err := hostfs.WriteFile(filepath.Join(f.dir, policy.ManagedFile), docs[at].Text); err != nil {
		return Changed{}, capability.Wrap(capability.CodeFailed, "policy.change", "the policy file cannot be written", err)
	}
	f.docs = docs
	f.load(ctx, docs, by, string(c.Setting)+" "+c.ID(), []string{policy.ManagedFile})
	return done, f.fault
}

// read returns the documents of the folder in the order of their names.
func (f *Files) read() ([]policy.Document, error) {
	folder := hostfs.Folder{Dir: f.dir, Pattern: "*.cedar", MaxFiles: maxFiles, MaxBytes: maxBytes}
	files, err := folder.Read()
	switch {
	case errors.Is(err, hostfs.ErrTooManyFiles):
		return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "the folder %s has more than %d policy files", f.dir, maxFiles).
			With(ReasonFault, "put the rules into fewer files")
	case errors.Is(err, hostfs.ErrTooLarge):
		return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "the policy files have more than %d bytes", maxBytes).
			With(ReasonFault, "remove rules that are not needed")
	case err != nil:
		return nil, err
	}
	docs := make([]policy.Document, len(files))
	for i, file := range files {
		docs[i] = policy.Document(file)
	}
	return docs, nil
}

// difference returns the sorted names of the documents that differ.
func difference(before, after []policy.Document) []string {
	texts := make(map[string][]byte)
	for _, d := range before {
		texts[d.Name] = d.Text
	}
	var names []string
	for _, d := range after {
		if was, ok := texts[d.Name]; !ok || !bytes.Equal(was, d.Text) {
			names = append(names, d.Name)
		}
		delete(texts, d.Name)
	}
	names = slices.AppendSeq(names, maps.Keys(texts))
	slices.Sort(names)
	return names
}
