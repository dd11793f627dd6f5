package mcpregistry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// The statuses of entries.
const (
	StatusActive     = "active"
	StatusDeprecated = "deprecated"
	StatusDeleted    = "deleted"
)

// The forms of a server.
const (
	npm    = "npm"
	pypi   = "pypi"
	oci    = "oci"
	remote = "remote"
)

// Entry is one version of a server in the registry. Names of members are compared without case.
type Entry struct {
	Name, Title, Description, Version, Status string
	forms                                     []form
}

// item is a server with what the registry adds to it.
type item struct {
	Server *struct {
		Name, Title, Description, Version, Status string
		Packages                                  []form
		Remotes                                   []form
	}
	Meta map[string]json.RawMessage `json:"_meta"`
}

// form is a package or a remote of an entry.
type form struct {
	RegistryType, Identifier, Version, FileSha256 string
	Transport                                     struct{ Type string }
	RuntimeArguments, PackageArguments            []argument
	EnvironmentVariables                          []argument
	Type, URL                                     string
	Headers                                       []argument
	Variables                                     map[string]input
	kind, refusal                                 string
}

// input is a value that the user gives, or a fixed one.
type input struct {
	Description, Format  string
	Value, Default       string
	IsRequired, IsSecret bool
	Choices              []string
}

// argument is an argument, a variable of the environment or a header.
type argument struct {
	input
	Type, Name, ValueHint string
	IsRepeated            bool
	Variables             map[string]input
}

// entry checks an item.
func (i item) entry() (Entry, error) {
	s := i.Server
	if s == nil || !nameGrammar.MatchString(s.Name) || len(s.Name) > maxName {
		return Entry{}, invalid("an entry has no name of the allowed form")
	}
	if !versionGrammar.MatchString(s.Version) || len(s.Version) > maxVersion || s.Version == "latest" {
		return Entry{}, invalid(fmt.Sprintf("the version of %s is not exact", s.Name))
	}
	if len(s.Packages)+len(s.Remotes) > maxForms {
		return Entry{}, invalid(fmt.Sprintf("%s has more than %d packages and remotes", s.Name, maxForms))
	}
	var official struct{ Status string }
	_ = json.Unmarshal(i.Meta["io.modelcontextprotocol.registry/official"], &official) // other registries leave it out
	e := Entry{
		Name: s.Name, Title: shown(s.Title), Description: shown(s.Description), Version: s.Version,
		Status: cmp.Or(official.Status, s.Status, StatusActive),
	}
	if e.Status != StatusActive && e.Status != StatusDeprecated {
		e.Status = StatusDeleted
	}
	for _, f := range s.Packages {
		f.kind, f.refusal = strings.ToLower(f.RegistryType), f.refusePackage()
		e.forms = append(e.forms, f)
	}
	for _, f := range s.Remotes {
		f.kind = remote
		if f.Type != "streamable-http" {
			f.refusal = fmt.Sprintf("remotes of type %.40q are not supported, only streamable-http", f.Type)
		}
		e.forms = append(e.forms, f)
	}
	for at := range e.forms {
		f := &e.forms[at]
		if len(f.RuntimeArguments)+len(f.PackageArguments)+len(f.EnvironmentVariables)+len(f.Headers) > maxInputs {
			f.refusal = fmt.Sprintf("it declares more than %d arguments", maxInputs)
		}
	}
	return e, nil
}

func (f *form) refusePackage() string {
	switch {
	case !slices.Contains([]string{npm, pypi, oci}, strings.ToLower(f.RegistryType)):
		return fmt.Sprintf("packages of type %.40q are not supported", f.RegistryType)
	case f.Transport.Type != "" && f.Transport.Type != "stdio":
		return fmt.Sprintf("its transport is %.40q, and junctor starts programs over stdio only", f.Transport.Type)
	}
	return ""
}

// packages returns the forms that can be added.
func (e *Entry) packages() []string {
	list := []string{}
	for _, f := range e.forms {
		if f.refusal == "" && !slices.Contains(list, f.kind) {
			list = append(list, f.kind)
		}
	}
	return list
}

// form returns the form of a kind, or the first that can be added.
func (e *Entry) form(kind string) (*form, error) {
	var refusals []string
	for at := range e.forms {
		f := &e.forms[at]
		if kind != "" && f.kind != kind {
			continue
		}
		if f.refusal == "" {
			return f, nil
		}
		refusals = append(refusals, f.refusal)
	}
	if len(refusals) == 0 {
		return nil, unsupported("%s has no package or remote of this kind", e.Name)
	}
	return nil, unsupported("%s cannot be added: %s", e.Name, strings.Join(refusals, "; "))
}

// shown returns text for people, of one line and bounded.
func shown(s string) string { return text.Line(text.StripControl(s), maxTextRunes) }
