// Package declared keeps MCP servers, HTTP APIs, A2A agents and endpoints as the files of the
// home's folder config.d declare them. It decodes the files, plans what their owners must add,
// change and remove, and has them do it. It stores nothing: the record of each object has the mark
// of its file, so that an interrupted change is continued by the next one.
package declared

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// folder is the name of the folder in the home.
const folder = "config.d"

// Owner has the objects of one kind. The record of an object decides who may change it.
type Owner interface {
	// Running reports whether objects can be declared.
	Running() bool
	// Declared returns the objects that files of a gateway declare, with the files by names.
	Declared(gateway string) map[string]string
	// Compare checks a declaration, the members of an object as JSON, and returns what Declare would
	// change. Errors: invalid_input; conflict if the object was not declared by a file.
	Compare(mark managed.Mark, name string, spec []byte) (managed.Difference, error)
	// Declare adds or changes an object, and waits until it is connected. One that cannot be connected
	// is stored, and tried again by its owner.
	Declare(ctx context.Context, by capability.Principal, mark managed.Mark, name string, spec []byte) error
	// Withdraw removes an object that a file of the gateway declared.
	Withdraw(ctx context.Context, by capability.Principal, gateway, name string) error
}

// Config holds the dependencies of Files. All fields are required.
type Config struct {
	Home      string
	Gateway   string // its id if gateways share the store; otherwise ""
	Upstreams Owner
	Endpoints Owner
	Logger    *slog.Logger
}

// Files is the folder config.d of one home.
type Files struct {
	cfg      Config
	applying sync.Mutex

	mu      sync.Mutex
	applied [sha256.Size]byte // the files that were applied last, also without success
	fault   string            // why they could not be applied; ""
	failed  map[string]string // by entry, why it could not be applied
	retry   time.Time         // of what could not be stored; zero: never
}

// New returns the folder of a home. The folder need not exist.
func New(cfg Config) *Files { return &Files{cfg: cfg} }

// The actions of rows.
const (
	Add    = "add"
	Change = "change"
	Remove = "remove"
	Keep   = "keep"
	Error  = "error"
)

// Row is what an apply does with one object, or would do.
type Row struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	File   string `json:"file"`
	Action string `json:"action"`
	Detail string `json:"detail,omitempty"` // of a change: its members; of an error, or a kept object that is not connected: the reason
}

// File is a file that is compared in place of those in the folder.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Request selects what Apply does.
type Request struct {
	DryRun bool `json:"dry_run"`
	// Files are compared in place of the folder, which needs DryRun; nil: the folder.
	Files []File `json:"files"`
}

// Result lists the rows in the order of their steps.
type Result struct {
	DryRun bool  `json:"dry_run"`
	Rows   []Row `json:"rows"`
}

// step is a row with its declaration; entry is nil for a removal.
type step struct {
	Row
	entry *entry
}

// Apply makes the objects what the files declare; with DryRun it changes nothing. An object that
// fails is a row, and the others are applied. Errors: invalid_input, reason declaration_fault, in
// which case nothing was changed; unavailable.
func (f *Files) Apply(ctx context.Context, by capability.Principal, req Request) (Result, error) {
	if !req.DryRun { // before the files are read, so that the last reading is the last to be applied
		f.applying.Lock()
		defer f.applying.Unlock()
	}
	var files []hostfs.File
	var err error
	switch {
	case req.Files == nil:
		files, err = f.read()
	case !req.DryRun:
		err = capability.Errorf(capability.CodeInvalidInput, "declared", "files in the request need dry_run").
			With("", "give it, and put the files into the folder "+folder+" of the home to apply them")
	default:
		files, err = checkFiles(req.Files)
	}
	if err != nil {
		return Result{}, err
	}
	if !req.DryRun {
		rows, err := f.apply(ctx, by, files)
		return Result{Rows: rows}, err
	}
	steps, err := f.plan(files)
	return Result{DryRun: true, Rows: rowsOf(steps)}, err
}

// checkFiles checks the files of a request.
func checkFiles(in []File) (files []hostfs.File, err error) {
	size := 0
	for _, file := range in {
		size += len(file.Text)
		switch {
		case len(in) > maxFiles || size > maxBytes:
			return nil, fault(folder, 0, "%s", tooMuch)
		case file.Name != filepath.Base(file.Name) || len(file.Name) > maxName || !strings.HasSuffix(file.Name, ".yaml") ||
			strings.ContainsFunc(file.Name, func(c rune) bool { return c < ' ' }):
			return nil, fault(folder, 0, "%.40q is not the name of a file NAME.yaml", file.Name)
		}
		files = append(files, hostfs.File{Name: file.Name, Text: []byte(file.Text)})
	}
	return files, nil
}

var tooMuch = fmt.Sprintf("there are more than %d files, or more than %d bytes in all", maxFiles, maxBytes)

// Folder returns a folder of declarations. Names that begin with a dot are those of editors.
func Folder(dir string) hostfs.Folder {
	return hostfs.Folder{Dir: dir, Pattern: "[^.]*.yaml", MaxFiles: maxFiles, MaxBytes: maxBytes}
}

// read returns the files of the home. If the folder is missing, which may be a disk that is not
// mounted, nothing that it declared is removed.
func (f *Files) read() ([]hostfs.File, error) {
	dir := filepath.Join(f.cfg.Home, folder)
	files, err := Folder(dir).Read()
	switch {
	case errors.Is(err, hostfs.ErrTooManyFiles), errors.Is(err, hostfs.ErrTooLarge):
		return nil, fault(folder, 0, "%s", tooMuch)
	case err != nil:
		return nil, fault(folder, 0, "it cannot be read: %s", err)
	}
	if files == nil {
		if n := len(f.cfg.Upstreams.Declared(f.cfg.Gateway)) + len(f.cfg.Endpoints.Declared(f.cfg.Gateway)); n > 0 {
			return nil, capability.Errorf(capability.CodeInvalidInput, "declared", "%s: the folder is missing, so the %d objects of its files stay",
				folder, n).With(ReasonFault, "put it back, or make an empty one to remove them: mkdir "+dir)
		}
	}
	return files, nil
}

func (f *Files) owner(kind string) Owner {
	if kind == Upstream {
		return f.cfg.Upstreams
	}
	return f.cfg.Endpoints
}

// plan returns the steps that make the objects what the files declare: removals first, so that a
// name or an address is free for another object.
func (f *Files) plan(files []hostfs.File) (steps []step, err error) {
	if !f.cfg.Upstreams.Running() || !f.cfg.Endpoints.Running() {
		return nil, capability.Errorf(capability.CodeUnavailable, "declared", "the server is starting or stopping").
			With("service_unavailable", "try again in a moment")
	}
	entries, err := decode(files)
	if err != nil {
		return nil, err
	}
	declared := make(map[string]bool, len(entries))
	for i := range entries {
		e := &entries[i]
		declared[e.key()] = true
		s := step{Row{Kind: e.kind, Name: e.name, File: e.file, Action: Add}, e}
		difference, err := f.owner(e.kind).Compare(managed.Mark{File: e.file, Gateway: f.cfg.Gateway}, e.name, e.spec)
		switch {
		case capability.CodeOf(err) == capability.CodeInvalidInput:
			return nil, e.refused(err)
		case err != nil:
			s.Action, s.Detail = Error, fmt.Sprintf("%s:%d: %s", e.file, e.line, capability.AsError(err).Message)
		case len(difference.Members) > 0:
			s.Action, s.Detail = Change, strings.Join(difference.Members, ", ")
		case difference.Exists:
			s.Action = Keep
			if difference.Away != "" {
				s.Detail = "not connected: " + difference.Away
			}
		}
		steps = append(steps, s)
	}
	var removals []step
	for _, kind := range []string{Endpoint, Upstream} {
		for name, file := range f.owner(kind).Declared(f.cfg.Gateway) {
			if !declared[kind+" "+name] {
				removals = append(removals, step{Row: Row{Kind: kind, Name: name, File: file, Action: Remove}})
			}
		}
	}
	slices.SortFunc(removals, func(a, b step) int { return strings.Compare(a.Kind+" "+a.Name, b.Kind+" "+b.Name) })
	return append(removals, steps...), nil
}

func rowsOf(steps []step) []Row {
	rows := make([]Row, len(steps))
	for i, s := range steps {
		rows[i] = s.Row
	}
	return rows
}

// apply plans and takes every step, and notes what failed for the doctor. The caller holds applying.
func (f *Files) apply(ctx context.Context, by capability.Principal, files []hostfs.File) ([]Row, error) {
	steps, err := f.plan(files)
	if err != nil {
		f.note(files, err, nil)
		return nil, err
	}
	group := new(errgroup.Group)
	group.SetLimit(maxAtOnce)
	for i := range steps {
		s := &steps[i]
		switch s.Action {
		case Remove:
			f.applyStep(ctx, by, s)
		case Add, Change:
			group.Go(func() error { f.applyStep(ctx, by, s); return nil })
		}
	}
	_ = group.Wait()
	failed := make(map[string]string)
	for _, s := range steps {
		if s.Action == Error {
			failed[s.Kind+" "+s.Name] = s.Detail
		}
	}
	f.note(files, nil, failed)
	left, err := f.plan(files)
	if err != nil || slices.ContainsFunc(left, func(s step) bool { return s.Action != Keep }) {
		f.mu.Lock()
		f.retry = time.Now().Add(retryInterval)
		f.mu.Unlock()
	}
	return rowsOf(steps), nil
}

// applyStep takes one step, and makes it an error if that fails.
func (f *Files) applyStep(ctx context.Context, by capability.Principal, s *step) {
	limited, cancel := context.WithTimeout(ctx, declareTimeout)
	defer cancel()
	var err error
	if s.Action == Remove {
		err = f.owner(s.Kind).Withdraw(limited, by, f.cfg.Gateway, s.Name)
	} else {
		err = f.owner(s.Kind).Declare(limited, by, managed.Mark{File: s.File, Gateway: f.cfg.Gateway}, s.Name, s.entry.spec)
	}
	switch {
	case err == nil:
		f.cfg.Logger.Info("declaration applied", "kind", s.Kind, "name", s.Name, "file", s.File, "action", s.Action)
	case s.Action != Remove && limited.Err() != nil && ctx.Err() == nil:
		s.Detail = "not connected yet; the server tries again"
	default:
		s.Detail, s.Action = s.Action+": "+sentence(err), Error
		f.cfg.Logger.Error("declaration not applied", "kind", s.Kind, "name", s.Name, "file", s.File, "err", err)
	}
}

// sentence returns the message of an error with its hint.
func sentence(err error) string {
	e := capability.AsError(err)
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + e.Hint + ")"
}

func (f *Files) note(files []hostfs.File, err error, failed map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = hostfs.Sum(files)
	f.failed, f.retry = failed, time.Time{}
	f.noteFault(err)
}

// noteFault stores why the files cannot be applied. The caller holds mu.
func (f *Files) noteFault(err error) {
	was := f.fault
	if f.fault = ""; err == nil {
		return
	}
	if f.fault = capability.AsError(err).Message; f.fault != was {
		f.cfg.Logger.Error("declarations cannot be applied, so no object was changed", "err", err)
	}
}

// Run applies the files at the start and when they change, until ctx ends.
func (f *Files) Run(ctx context.Context) {
	ticker := time.NewTicker(scanInterval)
	defer ticker.Stop()
	w := watch{f: f}
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			w.poll(ctx, now)
		}
	}
}

// watch is the state of Run.
type watch struct {
	f     *Files
	begun bool
	seen  [sha256.Size]byte
}

// poll reads the folder once, and applies it if it must be.
func (w *watch) poll(ctx context.Context, now time.Time) {
	f := w.f
	if !f.cfg.Upstreams.Running() || !f.cfg.Endpoints.Running() || !f.applying.TryLock() {
		return
	}
	defer f.applying.Unlock()
	files, err := f.read()
	if err != nil {
		f.mu.Lock()
		f.applied = [sha256.Size]byte{} // so that the same files are applied again once they can be read
		f.noteFault(err)
		f.mu.Unlock()
		w.seen = [sha256.Size]byte{}
		return
	}
	sum := hostfs.Sum(files)
	f.mu.Lock()
	due := !w.begun || f.applied != sum || !f.retry.IsZero() && !now.Before(f.retry)
	f.mu.Unlock()
	settled := sum == w.seen
	w.seen = sum
	if !settled || !due {
		return
	}
	w.begun = true
	_, _ = f.apply(ctx, capability.Principal{ID: "server", Role: capability.RoleAdmin}, files) // it notes what failed
}

// Checks reports files that cannot be applied, and objects that were not.
func (f *Files) Checks() []httpapi.Check {
	if !f.cfg.Upstreams.Running() || !f.cfg.Endpoints.Running() {
		return nil
	}
	files, err := f.read()
	var steps []step
	if err == nil {
		steps, err = f.plan(files)
	}
	if err != nil {
		e := capability.AsError(err)
		return []httpapi.Check{{Name: folder, Detail: e.Message, Remedy: e.Hint}}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var checks []httpapi.Check
	waiting := 0
	for _, s := range steps {
		why := f.failed[s.Kind+" "+s.Name]
		switch {
		case s.Action == Keep:
			continue
		case s.Action == Error:
			why = s.Detail
		case why == "":
			waiting++
			continue
		}
		checks = append(checks, httpapi.Check{
			Name: s.Kind + " " + s.Name + " of " + s.File, Detail: "it could not be applied: " + why,
			Remedy: "correct the file; the server applies it again",
		})
	}
	if len(checks) == 0 {
		detail := amount(len(steps), "object") + " of " + amount(len(files), "file")
		if waiting > 0 {
			detail += fmt.Sprintf(", %d of which are not applied yet; to apply them now: junctor apply", waiting)
		}
		checks = append(checks, httpapi.Check{Name: folder, OK: true, Detail: detail})
	}
	return checks
}

// amount returns a number with its noun.
func amount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
