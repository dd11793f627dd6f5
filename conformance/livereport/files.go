package livereport

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Set holds the rules for all reports of one validation together.
type Set struct {
	MinCount, MaxCount int      // of reports; 0: no bound
	AllowedProviders   []string // nil: any
	RequiredProviders  []string
}

// Problem is a broken rule, of a file or, if File is empty, of the set.
type Problem struct{ File, Message string }

func (p Problem) String() string {
	if p.File == "" {
		return p.Message
	}
	return p.File + ": " + p.Message
}

// Files validates reports. A directory stands for its *.json files in order. It returns
// the number of reports and the first problem of each file, followed by those of the set.
func Files(paths []string, opts Options, set Set) (count int, problems []Problem) {
	files, err := expand(paths)
	if err != nil {
		return 0, []Problem{{Message: err.Error()}}
	}
	var sound []Summary
	for _, name := range files {
		s, err := validateFile(name, opts)
		if err != nil {
			problems = append(problems, Problem{name, err.Error()})
			continue
		}
		sound = append(sound, s)
	}
	return len(files), append(problems, set.check(len(files), sound)...)
}

func expand(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("%s: cannot be read", p)
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		entries, err := filepath.Glob(filepath.Join(p, "*.json"))
		if err != nil {
			return nil, err
		}
		slices.Sort(entries)
		out = append(out, entries...)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("there is no report to validate")
	}
	return out, nil
}

func validateFile(name string, opts Options) (Summary, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Summary{}, fmt.Errorf("cannot be read")
	}
	if info.Size() > MaxBytes {
		return Summary{}, fmt.Errorf("is larger than %d bytes", MaxBytes)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return Summary{}, fmt.Errorf("cannot be read")
	}
	return Validate(data, strings.TrimSuffix(filepath.Base(name), ".json"), opts)
}

func (s Set) check(count int, sound []Summary) []Problem {
	var out []Problem
	say := func(format string, args ...any) { out = append(out, Problem{Message: fmt.Sprintf(format, args...)}) }
	if count < s.MinCount {
		say("there are %d reports, at least %d are expected", count, s.MinCount)
	}
	if s.MaxCount > 0 && count > s.MaxCount {
		say("there are %d reports, at most %d are expected", count, s.MaxCount)
	}
	endpoints, providers, urls := map[string]bool{}, map[string]bool{}, map[string]bool{}
	clouds := 0
	for _, r := range sound {
		if endpoints[r.EndpointID] {
			say("the endpoint %s is reported twice", r.EndpointID)
		}
		endpoints[r.EndpointID] = true
		if r.Kind == "cloud" {
			if clouds++; clouds == 2 {
				say("there is more than one cloud report")
			}
			continue
		}
		if providers[r.Provider] {
			say("the provider %s is reported twice", r.Provider)
		}
		if urls[r.URLHash] {
			say("two reports are of the same URL")
		}
		if s.AllowedProviders != nil && !slices.Contains(s.AllowedProviders, r.Provider) {
			say("the provider %s is not allowed", r.Provider)
		}
		providers[r.Provider], urls[r.URLHash] = true, true
	}
	for _, p := range s.RequiredProviders {
		if !providers[p] {
			say("there is no report of the provider %s", p)
		}
	}
	return out
}
