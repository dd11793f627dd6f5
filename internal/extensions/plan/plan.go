// Package plan parses and runs install plans: the steps that an extension may take while
// it is installed and removed. Before the first step runs, kinds, conditions, targets of
// downloads and declared permissions of all steps are checked. A [Fetcher] downloads
// files; the server uses [HTTPFetcher]. An implementation of [Programs] runs scripts in
// the sandbox of the extension. The package writes only to the given folder.
package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// The reasons of this package's errors. [ReasonTarget] is that of a step with a path
// outside its folder.
const (
	ReasonPlatform     = "platform_not_supported"
	ReasonPermission   = "permission_denied"
	ReasonCommand      = "command_failed"
	ReasonDownload     = "download_failed"
	ReasonVerification = "verification_failed"
	ReasonTimeout      = "timeout"
	ReasonPlan         = "invalid_plan"
	ReasonStepType     = "invalid_step_type"
	ReasonCondition    = "condition_error"
	ReasonTarget       = "security_violation"
	ReasonUnknown      = "unknown"
)

// The kinds of steps.
const (
	DetectPlatform = "detect.platform"
	Download       = "download.http"
	ExtractZip     = "extract.zip"
	ExtractTar     = "extract.tar" // packed with gzip
	Shell          = "exec.shell"
	PowerShell     = "exec.powershell"
	VerifyCommand  = "verify.command_exists"
	VerifyHTTP     = "verify.http"
	WriteConfig    = "write.config"
)

// needs returns the permission that a kind of step always needs, or "".
func needs(kind string) (needed string, known bool) {
	switch kind {
	case Download, VerifyHTTP:
		return "network", true
	case ExtractZip, ExtractTar:
		return "filesystem.write", true
	case Shell, PowerShell:
		return "exec", true
	case DetectPlatform, VerifyCommand, WriteConfig:
		return "", true
	}
	return "", false
}

// Step is one validated step.
type Step struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	When     string          `json:"when,omitempty"`
	Requires []string        `json:"requires_permissions,omitempty"`
	Timeout  time.Duration   `json:"-"`
	URL      string          `json:"url,omitempty"`
	Target   string          `json:"target,omitempty"` // beneath the working folder
	SHA256   string          `json:"sha256,omitempty"`
	Source   string          `json:"source,omitempty"`
	Command  string          `json:"command,omitempty"`
	Key      string          `json:"config_key,omitempty"`
	Value    json.RawMessage `json:"config_value,omitempty"`

	when When
}

// Needs returns the permissions of a step: that of its kind, and those it names.
func (s *Step) Needs() []string {
	needed, _ := needs(s.Type)
	if needed == "" || slices.Contains(s.Requires, needed) {
		return s.Requires
	}
	return append(slices.Clip(s.Requires), needed)
}

// Acts reports whether the step runs a program or contacts another machine.
func (s *Step) Acts() bool {
	switch s.Type {
	case Shell, PowerShell, Download, VerifyHTTP:
		return true
	}
	return false
}

// Acts reports whether a step of installing or removing runs a program or contacts another machine.
func (p *Plan) Acts() bool {
	acts := func(s Step) bool { return s.Acts() }
	return slices.ContainsFunc(p.Steps, acts) || slices.ContainsFunc(p.Uninstall, acts)
}

// Plan is a validated plan.
type Plan struct {
	ID        string `json:"id,omitempty"`
	Steps     []Step `json:"steps"`
	Uninstall []Step `json:"uninstall,omitempty"`
}

// document is the wire form. The members after the first block belong to the older form
// with action instead of type.
type document struct {
	ID        string `json:"id"`
	Steps     []wire `json:"steps"`
	Uninstall struct {
		Steps []wire `json:"steps"`
	} `json:"uninstall"`
}

type wire struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	When     any             `json:"when"`
	Requires []string        `json:"requires_permissions"`
	Timeout  float64         `json:"timeout"`
	URL      string          `json:"url"`
	Target   string          `json:"target"`
	SHA256   string          `json:"sha256"`
	Source   string          `json:"source"`
	Command  string          `json:"command"`
	Key      string          `json:"config_key"`
	Value    json.RawMessage `json:"config_value"`

	Action      string          `json:"action"`
	OldKey      string          `json:"key"`
	OldValue    json.RawMessage `json:"value"`
	Name        string          `json:"name"`
	Dependency  string          `json:"dependency"`
	Destination string          `json:"destination"`
	Link        string          `json:"link"`
	Data        json.RawMessage `json:"data"`
}

// Parse parses and validates install/plan.yaml of an extension with the given id and
// declared canonical permissions. The warnings name what was interpreted differently or
// cannot be verified. Errors name the step, in the message and as detail failed_step.
func Parse(data []byte, extension string, declared []string) (*Plan, []string, error) {
	doc, err := yamljson.ToJSON(data, ReasonPlan)
	if err != nil {
		return nil, nil, err
	}
	var d document
	if err := jsonx.Unmarshal(doc, &d); err != nil {
		return nil, nil, bad(ReasonPlan, "the plan does not fit: %s", declaration.Clean(err.Error(), 300))
	}
	if d.ID != "" && extension != "" && d.ID != extension {
		return nil, nil, bad(ReasonPlan, "the plan is for %.80q, not for %s", d.ID, extension)
	}
	c := checker{declared: declared, seen: make(map[string]bool)}
	p := &Plan{ID: d.ID}
	if p.Steps, err = c.all(d.Steps); err != nil {
		return nil, nil, err
	}
	c.seen = make(map[string]bool)
	if p.Uninstall, err = c.all(d.Uninstall.Steps); err != nil {
		return nil, nil, err
	}
	return p, c.warnings, nil
}

type checker struct {
	declared []string
	seen     map[string]bool
	warnings []string
}

func bad(reason, format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeInvalidInput, "plan", format, args...).With(reason, "")
}

func (c *checker) all(list []wire) ([]Step, error) {
	if len(list) > maxSteps {
		return nil, bad(ReasonPlan, "the plan has more than %d steps", maxSteps)
	}
	var out []Step
	for i := range list {
		w := &list[i]
		if w.ID == "" {
			w.ID = fmt.Sprintf("step_%d", i+1)
		}
		steps, err := c.step(w)
		if err != nil {
			e := capability.AsError(err)
			if len(w.ID) <= 64 {
				e.Message = "step " + w.ID + ": " + e.Message
				_ = e.Detail("failed_step", w.ID)
			}
			return nil, e
		}
		out = append(out, steps)
	}
	return out, nil
}

// step validates and converts one step. A permission that the manifest does not declare is denied.
func (c *checker) step(w *wire) (s Step, err error) {
	if !declaration.ValidName(w.ID, 64, "._-") {
		return s, bad(ReasonPlan, "%.80q is not a step's id: letters, digits, '.', '_' and '-', at most 64", w.ID)
	}
	if c.seen[w.ID] {
		return s, bad(ReasonPlan, "the id is given twice")
	}
	c.seen[w.ID] = true
	if w.Type, err = c.modern(w); err != nil {
		return s, err
	}
	if _, known := needs(w.Type); !known {
		return s, bad(ReasonStepType, "%.40q is not a kind of step", w.Type)
	}
	s = Step{
		ID: w.ID, Type: w.Type, URL: w.URL, Target: w.Target, SHA256: strings.ToLower(w.SHA256), Source: w.Source, Command: w.Command,
		Key: w.Key, Value: w.Value,
	}
	switch v := w.When.(type) {
	case nil:
	case bool:
		s.When = fmt.Sprint(v)
	case string:
		s.When = v
	default:
		return s, bad(ReasonCondition, "the condition is not text")
	}
	if s.when, err = ParseCondition(s.When); err != nil {
		return s, err
	}
	var unknown string
	if s.Requires, unknown = declaration.CanonicalPermissions(w.Requires); unknown != "" {
		return s, bad(ReasonPlan, "%.40q is not a permission; there are %s", unknown, declaration.PermissionNames())
	}
	for _, p := range s.Needs() {
		if !slices.Contains(c.declared, p) {
			return s, capability.Errorf(capability.CodeDenied, "plan", "it needs the permission %s, which the manifest does not declare", p).
				With(ReasonPermission, "add it to permissions_required, with a reason").Detail("denied_permission", p)
		}
	}
	switch {
	case w.Timeout < 0 || w.Timeout > maxTimeout.Seconds():
		return s, bad(ReasonPlan, "a timeout is between 0 and %d seconds", int(maxTimeout.Seconds()))
	case w.Timeout > 0:
		s.Timeout = time.Duration(w.Timeout * float64(time.Second))
	case s.Type == VerifyHTTP:
		s.Timeout = verifyTimeout
	default:
		s.Timeout = defaultTimeout
	}
	return s, c.fields(&s)
}

// fields validates the members that a step's kind requires, and normalises its paths.
func (c *checker) fields(s *Step) error {
	switch s.Type {
	case Download:
		if s.Target == "" {
			return bad(ReasonPlan, "a download needs a target")
		}
		if err := checkSHA256(s.SHA256); err != nil {
			return err
		}
		if s.SHA256 == "" {
			c.warnings = append(c.warnings, "step "+s.ID+": the download has no sha256, so its content cannot be verified")
		}
		if err := checkURL(s.URL); err != nil {
			return err
		}
		return confined(&s.Target)
	case VerifyHTTP:
		return checkURL(s.URL)
	case ExtractZip, ExtractTar:
		if s.Source == "" {
			return bad(ReasonPlan, "what to extract is missing (source)")
		}
		s.Target = cmp.Or(s.Target, ".")
		if err := confined(&s.Source); err != nil {
			return err
		}
		return confined(&s.Target)
	case Shell, PowerShell:
		if strings.TrimSpace(s.Command) == "" || len(s.Command) > maxCommand || strings.ContainsRune(s.Command, 0) {
			return bad(ReasonPlan, "the command is missing, longer than %d bytes, or holds a NUL", maxCommand)
		}
	case VerifyCommand:
		if fields := strings.Fields(s.Command); len(fields) == 0 || !command.IsToolName(fields[0]) {
			return bad(ReasonPlan, "%.80q does not begin with the name of a program", s.Command)
		}
	case WriteConfig:
		if !declaration.ValidName(s.Key, 64, "._-") {
			return bad(ReasonPlan, "%.80q is not the name of a setting", s.Key)
		}
		if len(s.Value) == 0 {
			s.Value = json.RawMessage("null")
		}
	}
	return nil
}

// checkSHA256 returns an error unless sum is empty or 64 lower-case hex digits that are not all
// the same. It finds a placeholder when the plan is read, before anything is downloaded.
func checkSHA256(sum string) error {
	if sum == "" {
		return nil
	}
	plain := len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
	if !plain || strings.Trim(sum, sum[:1]) == "" {
		return capability.Errorf(capability.CodeInvalidInput, "plan", "the sha256 %.80q is a placeholder, not a hash",
			sum).With(ReasonVerification, "put the real SHA-256 of the file there")
	}
	return nil
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || len(text) > 2048 {
		return bad(ReasonPlan, "%.120q is not a plain http or https address", text)
	}
	return nil
}

// confined makes a path relative to the working folder; one that leads outside is denied.
func confined(p *string) error {
	name := strings.TrimPrefix(strings.TrimPrefix(*p, "./"), "work/")
	out := func() error {
		return capability.Errorf(capability.CodeDenied, "plan", "%.120q is not beneath the extension's working folder", *p).With(ReasonTarget,
			"name a path relative to work/")
	}
	if name == "" || name == "work" {
		name = "."
	}
	if path.IsAbs(name) || len(name) > 240 || strings.ContainsFunc(name, func(r rune) bool { return r == '\\' || unicode.IsControl(r) }) ||
		len(name) > 1 && name[1] == ':' {
		return out()
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return out()
		}
	}
	*p = path.Clean(name)
	return nil
}
