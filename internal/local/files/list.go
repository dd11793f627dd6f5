package files

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/roots"
)

const opList = "fs.list"

type listParams struct {
	Path          string   `json:"path"`
	RootID        string   `json:"rootId"`
	Limit         *float64 `json:"limit"`
	IncludeHidden bool     `json:"includeHidden"`
	Ignore        []string `json:"ignore"`
}

type listResult struct {
	Root             rootInfo   `json:"root"`
	Path             string     `json:"path"`
	Entries          []fileStat `json:"entries"`
	Truncated        bool       `json:"truncated"`
	TotalAfterIgnore int        `json:"totalAfterIgnore"`
}

type rootInfo struct {
	ID       string `json:"id"`
	ReadOnly bool   `json:"readOnly"`
}

// list returns the entries of one directory that are neither hidden nor ignored, sorted by
// name and cut at the limit. TotalAfterIgnore counts them before the cut.
func (f *files) list(ctx context.Context, c capability.Call) (capability.Result, error) {
	var p listParams
	if err := decode(opList, c.Input, &p); err != nil {
		return capability.Result{}, err
	}
	ignored, err := compileGlobs(p.Ignore)
	if err != nil {
		return capability.Result{}, err
	}
	place, err := f.roots.Resolve(p.RootID, p.Path)
	if err != nil {
		return capability.Result{}, err
	}
	all, err := readNames(ctx, place)
	if err != nil {
		return capability.Result{}, err
	}
	kept := slices.DeleteFunc(all, func(e fs.DirEntry) bool {
		name := e.Name()
		return !p.IncludeHidden && strings.HasPrefix(name, ".") || ignored(name) || ignored(path.Join(place.Rel, name))
	})
	slices.SortFunc(kept, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	result := listResult{
		Root: rootInfo{place.ID, place.ReadOnly}, Path: place.Rel,
		Entries: []fileStat{}, TotalAfterIgnore: len(kept),
	}
	limit := clampLimit(p.Limit)
	for _, e := range kept {
		if len(result.Entries) == limit {
			result.Truncated = true
			break
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			result.TotalAfterIgnore--
			continue
		}
		if err != nil {
			return capability.Result{}, roots.Explain(opList, place.Rel, err)
		}
		result.Entries = append(result.Entries, stat(path.Join(place.Rel, e.Name()), info))
	}
	return encode(result)
}

func clampLimit(limit *float64) int {
	if limit == nil || math.IsNaN(*limit) {
		return maxEntries
	}
	return int(max(1, min(maxEntries, *limit)))
}

// readNames returns the entries of a directory, in no order. Error, besides those of the
// file system: too_large, reason too_many_entries, for more than maxNames.
func readNames(ctx context.Context, place roots.Place) ([]fs.DirEntry, error) {
	dir, err := place.FS.OpenFile(native(place), nonBlocking, 0)
	if err != nil {
		return nil, roots.Explain(opList, place.Rel, err)
	}
	defer dir.Close()
	var all []fs.DirEntry
	for {
		if err := done(ctx); err != nil {
			return nil, err
		}
		batch, err := dir.ReadDir(1000)
		all = append(all, batch...)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, roots.Explain(opList, place.Rel, err)
		}
		if len(all) > maxNames {
			return nil, capability.Errorf(capability.CodeTooLarge, opList, "%s holds more than %d entries", place.Rel, maxNames).
				With("too_many_entries", "list a directory below it")
		}
	}
}

func native(p roots.Place) string { return filepath.FromSlash(p.Rel) }

// compileGlobs returns a function that reports whether a whole name or path matches one of
// the patterns: * matches anything but slashes, ** anything, ? one character but a slash.
// Untrusted patterns are safe, because RE2 runs in linear time.
func compileGlobs(patterns []string) (func(string) bool, error) {
	if len(patterns) > maxPatterns {
		return nil, capability.Errorf(capability.CodeInvalidInput, opList, "ignore holds more than %d patterns", maxPatterns)
	}
	compiled := make([]*regexp.Regexp, 0, len(patterns))
	for _, glob := range patterns {
		if len(glob) > maxPattern {
			return nil, capability.Errorf(capability.CodeInvalidInput, opList, "an ignore pattern is longer than %d bytes", maxPattern)
		}
		re, err := regexp.Compile(globToRegexp(glob))
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, opList, "an ignore pattern is not usable", err)
		}
		compiled = append(compiled, re)
	}
	return func(s string) bool {
		return slices.ContainsFunc(compiled, func(re *regexp.Regexp) bool { return re.MatchString(s) })
	}, nil
}

// globToRegexp returns the regular expression of a pattern; see compileGlobs.
func globToRegexp(glob string) string {
	var b strings.Builder
	b.WriteString(`(?s)^`)
	for i := 0; i < len(glob); {
		switch {
		case strings.HasPrefix(glob[i:], "**"):
			b.WriteString(`.*`)
			i += 2
			continue
		case glob[i] == '*':
			b.WriteString(`[^/]*`)
		case glob[i] == '?':
			b.WriteString(`[^/]`)
		default:
			j := i + strings.IndexAny(glob[i:]+"*", "*?")
			b.WriteString(regexp.QuoteMeta(glob[i:j]))
			i = j
			continue
		}
		i++
	}
	b.WriteString(`$`)
	return b.String()
}
