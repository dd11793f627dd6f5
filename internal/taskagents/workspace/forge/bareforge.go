package forge

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/secret"
)

const folder = "junctor-pulls"

// BareHost is a forge.Host. It is safe for concurrent use, by several processes too.
type BareHost struct {
	// Git runs the program; it needs no remotes.
	Git *gitcmd.Git
	// Now returns the time; nil means time.Now.
	Now func() time.Time
}

var _ Host = (*BareHost)(nil)

// Record is the stored record of one pull request.
type Record struct {
	Pull
	Title     string    `json:"title"`
	Body      string    `json:"body,omitempty"`
	Base      string    `json:"base"`
	Head      string    `json:"head"`
	Commit    string    `json:"commit"` // commit of Head when it was opened
	Labels    []string  `json:"labels,omitempty"`
	Reviewers []string  `json:"reviewers,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// Open returns the bare repository of a folder; the credential is ignored.
func (h *BareHost) Open(repo Repo, _ secret.Value) (Repository, error) {
	r, err := h.open(repo)
	return r, err
}

// Pulls returns the pull requests of a repository in the order of their numbers.
func (h *BareHost) Pulls(repo Repo) ([]Record, error) {
	r, err := h.open(repo)
	if err != nil {
		return nil, err
	}
	return r.all()
}

func (h *BareHost) open(repo Repo) (*repository, error) {
	info, err := os.Stat(filepath.Join(repo.Dir, "objects"))
	if repo.Dir == "" || err != nil || !info.IsDir() {
		return nil, capability.Wrap(capability.CodeNotFound, "forge.open", "there is no bare repository in that folder",
			err).With("repo_not_found", "name the folder of a bare repository")
	}
	return &repository{host: h, dir: repo.Dir}, nil
}

type repository struct {
	host *BareHost
	dir  string
}

// git runs a command with the repository given explicitly, so that git does not search for one.
func (r *repository) git(ctx context.Context, args ...string) (sandbox.Result, error) {
	return r.host.Git.Run(ctx, gitcmd.Command{Dir: r.dir, Root: r.dir, Args: append([]string{"--git-dir=."}, args...)})
}

func (r *repository) Facts(ctx context.Context) (Facts, error) {
	head, err := r.git(ctx, "symbolic-ref", "--short", "HEAD")
	if err != nil {
		return Facts{}, err
	}
	return Facts{DefaultBranch: strings.TrimSpace(head.Stdout.Text()), Push: true}, nil
}

// Checks returns none, because nothing runs checks here.
func (r *repository) Checks(context.Context, string) ([]Check, error) { return []Check{}, nil }

// OpenPull reserves the next number by creating its file, which succeeds for one process only.
func (r *repository) OpenPull(ctx context.Context, p PullRequest) (Pull, error) {
	commit, err := r.commit(ctx, p.Head)
	if err == nil {
		_, err = r.commit(ctx, p.Base)
	}
	if err != nil {
		return Pull{}, err
	}
	existing, err := r.all()
	if err != nil {
		return Pull{}, err
	}
	next := 1
	for _, e := range existing {
		if e.State == "open" && e.Head == p.Head && e.Base == p.Base {
			e.Commit = commit
			return e.Pull, r.keep(ctx, e)
		}
		next = e.Number + 1
	}
	now := time.Now
	if r.host.Now != nil {
		now = r.host.Now
	}
	for ; next <= maxPulls; next++ {
		f, err := os.OpenFile(r.file(next), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return Pull{}, broken(err)
		}
		_ = f.Close()
		rec := Record{
			Pull:  Pull{Number: next, URL: r.dir + "#" + strconv.Itoa(next), State: "open", Draft: p.Draft},
			Title: p.Title, Body: p.Body, Base: p.Base, Head: p.Head, Commit: commit, Labels: p.Labels, Reviewers: p.Reviewers,
			CreatedAt: now().UTC(),
		}
		return rec.Pull, r.keep(ctx, rec)
	}
	return Pull{}, capability.Errorf(capability.CodeTooLarge, "forge.pull", "the repository has %d pull requests, which is the limit",
		maxPulls).With("too_many_pulls", "remove old files from "+folder)
}

// commit returns the commit of a branch.
func (r *repository) commit(ctx context.Context, branch string) (string, error) {
	got, err := r.git(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", "refs/heads/"+branch+"^{commit}")
	if err != nil {
		return "", err
	}
	if got.ExitCode != 0 {
		return "", capability.Errorf(capability.CodeFailed, "forge.pull", "the repository has no branch %s", branch).With("forge_refused",
			"push the branch first, or name another base")
	}
	return strings.TrimSpace(got.Stdout.Text()), nil
}

// keep writes the record and updates the ref of the pull request.
func (r *repository) keep(ctx context.Context, rec Record) error {
	data, err := jsonx.MarshalIndent(rec)
	if err != nil {
		return broken(err)
	}
	if len(data) > maxRecord {
		return capability.Errorf(capability.CodeTooLarge, "forge.pull", "the pull request has %d bytes; the limit is %d", len(data),
			maxRecord).With("too_large", "shorten its text")
	}
	tmp := r.file(rec.Number) + ".tmp"
	if err := errors.Join(os.WriteFile(tmp, data, 0o600), os.Rename(tmp, r.file(rec.Number))); err != nil {
		return broken(err)
	}
	got, err := r.git(ctx, "update-ref", "refs/pull/"+strconv.Itoa(rec.Number)+"/head", rec.Commit)
	if err == nil && got.ExitCode != 0 {
		err = broken(errors.New(got.Stderr.Text()))
	}
	return err
}

func (r *repository) file(number int) string {
	return filepath.Join(r.dir, folder, strconv.Itoa(number)+".json")
}

// all returns the records. It skips files that are not records, such as numbers that were
// reserved by a process that ended before it wrote the record.
func (r *repository) all() ([]Record, error) {
	if err := os.MkdirAll(filepath.Join(r.dir, folder), 0o700); err != nil {
		return nil, broken(err)
	}
	entries, err := os.ReadDir(filepath.Join(r.dir, folder))
	if err != nil {
		return nil, broken(err)
	}
	var out []Record
	for _, e := range entries {
		n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), ".json"))
		info, infoErr := e.Info()
		if err != nil || infoErr != nil || !info.Mode().IsRegular() || info.Size() > maxRecord {
			continue
		}
		data, err := os.ReadFile(r.file(n))
		var rec Record
		if err == nil && jsonx.Unmarshal(data, &rec) == nil && rec.Number == n {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return a.Number - b.Number })
	return out, nil
}

func broken(err error) error {
	return capability.Wrap(capability.CodeFailed, "forge.pull", "the repository's pull requests cannot be read or written",
		err).With("forge_refused", "")
}
