package mcpregistry

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Request selects a form of an entry and gives the values that it declares. Secrets maps inputs to
// names of stored secrets.
type Request struct {
	Name    string              `json:"name"`
	Version string              `json:"version,omitempty"` // "": the latest
	Package string              `json:"package,omitempty"` // npm, pypi, oci or remote; "": the first that is supported
	As      string              `json:"as,omitempty"`      // name of the upstream; "": the last part of the entry's name
	Inputs  map[string][]string `json:"inputs,omitempty"`
	Secrets map[string]string   `json:"secrets,omitempty"`
}

// Input is a value that an entry declares.
type Input struct {
	Key         string   `json:"key"`
	Description string   `json:"description,omitempty"`
	Default     string   `json:"default,omitempty"`
	Format      string   `json:"format,omitempty"`
	Choices     []string `json:"choices,omitempty"`
	Required    bool     `json:"required,omitempty"`
	Secret      bool     `json:"secret,omitempty"`
	Given       bool     `json:"given,omitempty"`
}

// Plan is the upstream that an entry describes.
type Plan struct {
	Name        string  `json:"name"`
	Title       string  `json:"title,omitempty"`
	Description string  `json:"description,omitempty"`
	Version     string  `json:"version"`
	Package     string  `json:"package"`
	Status      string  `json:"status"`
	As          string  `json:"as"` // name of the upstream
	Inputs      []Input `json:"inputs"`
	// Record is nil while a required input is missing. New definitions of it wait for an approval.
	Record *record.Record `json:"record,omitempty"`
}

var (
	npmName   = regexp.MustCompile(`^(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*$`)
	pypiName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	imageName = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9.:-]*(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]*)?(@sha256:[0-9a-f]{64})?$`)
	semantic  = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+][0-9A-Za-z.+-]+)?$`)
	exact     = regexp.MustCompile(`^[0-9][0-9A-Za-z.!+_-]*$`)
	tag       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	// separators are equal in names of PyPI.
	separators = regexp.MustCompile(`[-_.]+`)
	variable   = regexp.MustCompile(`\{[A-Za-z0-9_.-]+\}`)
)

// Plan resolves a request. Errors: not_found; unavailable; invalid_input, reasons registry_deleted,
// registry_unsupported and registry_input.
func (c *Client) Plan(ctx context.Context, req Request) (Plan, error) {
	e, err := c.Get(ctx, req.Name, req.Version)
	if err != nil {
		return Plan{}, err
	}
	if e.Status == StatusDeleted {
		return Plan{}, capability.Errorf(capability.CodeInvalidInput, "registry.plan", "%s %s was deleted from the registry", e.Name, e.Version).
			With(ReasonDeleted, "ask its publisher for the reason before you use it")
	}
	f, err := e.form(req.Package)
	if err != nil {
		return Plan{}, err
	}
	r := resolver{req: req, known: make(map[string]bool)}
	_, last, _ := strings.Cut(e.Name, "/")
	rec := record.Record{Name: req.As, Trust: record.Untrusted}
	if rec.Name == "" {
		rec.Name = strings.Trim(last, "-._")
	}
	switch f.kind {
	case remote:
		err = r.remote(f, &rec)
	case oci:
		err = c.image(f, &r, &rec)
	default:
		err = c.program(ctx, f, &r, &rec)
	}
	if err != nil {
		return Plan{}, err
	}
	for _, key := range slices.Concat(slices.Sorted(maps.Keys(req.Inputs)), slices.Sorted(maps.Keys(req.Secrets))) {
		if !r.known[key] {
			return Plan{}, badInput("%s declares no input %.60q", e.Name, key)
		}
	}
	rec.Registry = &record.Origin{Name: e.Name, Version: e.Version, Package: f.kind}
	p := Plan{
		Name: e.Name, Title: e.Title, Description: e.Description, Version: e.Version, Package: f.kind, Status: e.Status,
		As: rec.Name, Inputs: r.inputs,
	}
	if p.Inputs == nil {
		p.Inputs = []Input{}
	}
	if !slices.ContainsFunc(r.inputs, func(i Input) bool { return i.Required && !i.Given }) {
		p.Record = &rec
	}
	return p, nil
}

// program plans a package that npx or uvx runs.
func (c *Client) program(ctx context.Context, f *form, r *resolver, rec *record.Record) error {
	name, version := npmName, semantic
	if f.kind == pypi {
		name, version = pypiName, exact
	}
	switch {
	case !name.MatchString(f.Identifier) || len(f.Identifier) > maxName:
		return unsupported("%.100q is not the name of a package", f.Identifier)
	case !version.MatchString(f.Version) || len(f.Version) > maxVersion:
		return unsupported("the version %.40q of the package %s is not exact", f.Version, f.Identifier)
	}
	for _, a := range f.RuntimeArguments {
		if text := a.Name + a.Value; f.kind != npm || text != "-y" && text != "--yes" {
			return unsupported("it wants to change how its package is run, with %.60q", text)
		}
	}
	if err := c.checkHash(ctx, f); err != nil {
		return err
	}
	rec.Command = []string{"npx", "-y", f.Identifier + "@" + f.Version}
	if f.kind == pypi {
		rec.Command = []string{"uvx", f.Identifier + "@" + f.Version}
	}
	arguments, err := r.arguments(f.PackageArguments)
	if err != nil {
		return err
	}
	rec.Command = append(rec.Command, arguments...)
	rec.Env, rec.EnvSecrets, _, err = r.pairs(f.EnvironmentVariables)
	return err
}

// image plans a container. Its variables are passed by name, so that no value is in the command.
func (c *Client) image(f *form, r *resolver, rec *record.Record) error {
	image := f.Identifier
	if path := image[strings.LastIndex(image, "/")+1:]; !strings.ContainsAny(path, ":@") {
		if !tag.MatchString(f.Version) || len(f.Version) > maxVersion {
			return unsupported("the version %.40q of the image %.100s is not exact", f.Version, image)
		}
		image += ":" + f.Version
	}
	switch {
	case !imageName.MatchString(image) || len(image) > maxName+maxVersion:
		return unsupported("%.100q is not the name of an image", image)
	case strings.HasSuffix(image, ":latest"):
		return unsupported("the version latest of the image %.100s is not exact", f.Identifier)
	case f.FileSha256 != "":
		return unsupported("the hash of a file is declared for an image, which cannot be checked")
	}
	engine := slices.IndexFunc(engines(), func(program string) bool { _, err := c.cfg.LookPath(program); return err == nil })
	if engine < 0 {
		return unsupported("it is an image, and none of %s is on this machine", strings.Join(engines(), ", "))
	}
	var err error
	if rec.Env, rec.EnvSecrets, _, err = r.pairs(f.EnvironmentVariables); err != nil {
		return err
	}
	rec.Command = []string{engines()[engine], "run", "-i", "--rm"}
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(rec.Env)), slices.Sorted(maps.Keys(rec.EnvSecrets))) {
		rec.Command = append(rec.Command, "-e", name)
	}
	for _, a := range f.RuntimeArguments {
		words, err := r.ofEngine(a)
		if err != nil {
			return err
		}
		rec.Command = append(rec.Command, words...)
	}
	arguments, err := r.arguments(f.PackageArguments)
	rec.Command = append(append(rec.Command, image), arguments...)
	return err
}

func engines() []string { return []string{"docker", "podman", "nerdctl"} }

// ofEngine returns an argument of the container engine. Only variables and mounts of folders that the
// user names are allowed, because others could open this machine to the container.
func (r *resolver) ofEngine(a argument) ([]string, error) {
	switch name := a.Name; {
	case a.Type == "named" && (name == "-e" || name == "--env") && !strings.ContainsAny(a.Value, "\n"):
		return r.arguments([]argument{a})
	case slices.Contains([]string{"-i", "--interactive", "--rm", "--init"}, a.Name+a.Value):
		if a.Name+a.Value == "--init" {
			return []string{"--init"}, nil
		}
		return nil, nil
	case a.Type == "named" && (name == "--mount" || name == "-v" || name == "--volume"):
		source, _, _ := strings.Cut(a.Value, ":")
		if name == "--mount" {
			source = mounted(a.Value)
		}
		_, declared := a.Variables[strings.Trim(source, "{}")]
		if a.Value != "" && (source == "" || variable.FindString(source) != source || !declared) {
			return nil, unsupported("it wants the folder %.100q of this machine", source)
		}
		a.Default, a.Variables = "", maps.Clone(a.Variables)
		for name, v := range a.Variables { // the folder is the user's choice alone
			v.Value, v.Default, v.IsRequired = "", "", true
			a.Variables[name] = v
		}
		words, err := r.arguments([]argument{a})
		for _, value := range words {
			if a.Value != "" && strings.Count(value, ",") > strings.Count(a.Value, ",") {
				return nil, badInput("a folder that is mounted has no comma")
			}
		}
		return words, err
	}
	return nil, unsupported("it wants the container engine's option %.60q; add it with: junctor mcp add NAME -- docker run …",
		strings.TrimSpace(a.Name+" "+a.Value))
}

// remote plans a server that is reached by URL.
func (r *resolver) remote(f *form, rec *record.Record) error {
	address, err := r.expand(f.URL, f.Variables, &input{IsRequired: true})
	if err != nil {
		return err
	}
	if address.secret {
		return unsupported("a secret is a part of its URL, where logs would show it")
	}
	rec.URL = address.text
	rec.Headers, rec.HeaderSecrets, rec.BearerSecret, err = r.pairs(f.Headers)
	return err
}

// resolver collects the inputs of an entry and their values.
type resolver struct {
	req    Request
	inputs []Input
	known  map[string]bool
}

// value returns the values of one input, or the name of its secret. Both are empty if the user gave
// none and it has no default.
func (r *resolver) value(key string, in input, repeated bool) (values []string, secret string, err error) {
	i := Input{
		Key: key, Description: shown(in.Description), Default: in.Default, Format: in.Format, Choices: in.Choices, Required: in.IsRequired,
		Secret: in.IsSecret,
	}
	if len(in.Choices) > maxInputs || len(in.Default) > maxValue || key == "" || len(key) > maxName || shown(key) != key {
		return nil, "", unsupported("the input %.60q is not of the allowed form", key)
	}
	values, plain := r.req.Inputs[key]
	secret, named := r.req.Secrets[key]
	switch {
	case in.IsSecret && plain:
		return nil, "", badInput("%s is a secret: store it, and name it", key)
	case !in.IsSecret && named:
		return nil, "", badInput("%s is not a secret: give its value", key)
	case len(values) > 1 && !repeated:
		return nil, "", badInput("%s is given more than once", key)
	case len(values) > maxInputs:
		return nil, "", badInput("%s is given more than %d times", key, maxInputs)
	case !plain && !in.IsSecret && in.Default != "":
		values = []string{in.Default}
	}
	for _, v := range values {
		if err := checkValue(key, in, v); err != nil {
			return nil, "", err
		}
	}
	i.Given = len(values) > 0 || named
	if !r.known[key] {
		r.known[key] = true
		r.inputs = append(r.inputs, i)
	}
	return values, secret, nil
}

func checkValue(key string, in input, v string) error {
	fault := ""
	switch {
	case len(v) > maxValue || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == 0x7f }):
		fault = fmt.Sprintf("is not one line of at most %d bytes", maxValue)
	case len(in.Choices) > 0 && !slices.Contains(in.Choices, v):
		fault = fmt.Sprintf("is %.40q, and not one of %s", v, strings.Join(in.Choices, ", "))
	case in.Format == "boolean" && v != "true" && v != "false":
		fault = fmt.Sprintf("is %.40q, and not true or false", v)
	case in.Format == "filepath" && !filepath.IsAbs(v):
		fault = fmt.Sprintf("is %.100q, and not an absolute path", v)
	case in.Format == "number":
		if _, err := strconv.ParseFloat(v, 64); err != nil {
			fault = fmt.Sprintf("is %.40q, and not a number", v)
		}
	}
	if fault != "" {
		return badInput("%s %s", key, fault)
	}
	return nil
}

// template is text with {variables} whose values are known.
type template struct {
	text    string
	secrets []string // names of the secrets among the variables
	secret  bool     // a variable is a secret
	missing bool     // a variable has no value
}

// expand replaces the {variables} of a template. Those that the entry does not describe are replaced
// if undeclared describes them, and are otherwise text.
func (r *resolver) expand(source string, variables map[string]input, undeclared *input) (t template, err error) {
	if len(source) > maxValue {
		return t, unsupported("a template of it has more than %d bytes", maxValue)
	}
	if len(variables) > maxInputs {
		return t, unsupported("a template of it has more than %d variables", maxInputs)
	}
	t.text = variable.ReplaceAllStringFunc(source, func(word string) string {
		name := strings.Trim(word, "{}")
		in, ok := variables[name]
		if !ok && undeclared != nil {
			in, ok = *undeclared, true
		}
		if !ok || err != nil {
			return word
		}
		if in.Value != "" && !in.IsSecret {
			return in.Value
		}
		var values []string
		var secret string
		if values, secret, err = r.value(name, in, false); err != nil {
			return word
		}
		t.missing = t.missing || len(values) == 0 && secret == ""
		if in.IsSecret {
			t.secret = true
			t.secrets = append(t.secrets, secret)
		}
		return strings.Join(values, "")
	})
	return t, err
}

// arguments returns the words of a command. A secret is refused, because other programs of the machine
// can read command lines.
func (r *resolver) arguments(list []argument) (words []string, err error) {
	for _, a := range list {
		if a.Type == "named" && (!strings.HasPrefix(a.Name, "-") || strings.ContainsAny(a.Name, " \t\n")) {
			return nil, unsupported("the argument %.60q is not a flag", a.Name)
		}
		var values []string
		if a.Value != "" {
			t, err := r.expand(a.Value, a.Variables, nil)
			if err != nil {
				return nil, err
			}
			if a.IsSecret = a.IsSecret || t.secret; !t.missing {
				values = []string{t.text}
			}
		}
		if a.IsSecret {
			return nil, unsupported("a secret is an argument of its command, where other programs of this machine could read it")
		}
		if a.Value == "" {
			key := a.Name
			if a.Type != "named" {
				key = a.ValueHint
			}
			if values, _, err = r.value(key, a.input, a.IsRepeated); err != nil {
				return nil, err
			}
		}
		for _, v := range values {
			if flag := strings.TrimSuffix(a.Name, "="); a.Type != "named" {
				words = append(words, v)
			} else if flag != a.Name {
				words = append(words, a.Name+v)
			} else {
				words = append(words, flag, v)
			}
		}
	}
	return words, nil
}

// pairs returns variables or headers: plain values, names of secrets, and the secret of a header
// "Authorization: Bearer {secret}".
func (r *resolver) pairs(list []argument) (plain, secret map[string]string, bearer string, err error) {
	plain, secret = make(map[string]string), make(map[string]string)
	for _, a := range list {
		if steersStarter(a.Name) {
			return nil, nil, "", unsupported("it sets %.60s, which changes what the program that starts it fetches", a.Name)
		}
		if a.Value == "" {
			values, name, err := r.value(a.Name, a.input, false)
			switch {
			case err != nil:
				return nil, nil, "", err
			case a.IsSecret && name != "":
				secret[a.Name] = name
			case len(values) > 0:
				plain[a.Name] = values[0]
			}
			continue
		}
		var undeclared *input
		if a.IsSecret {
			undeclared = &input{Description: a.Description, IsRequired: a.IsRequired, IsSecret: true}
		}
		t, err := r.expand(a.Value, a.Variables, undeclared)
		if err != nil {
			return nil, nil, "", err
		}
		whole := variable.FindString(a.Value) == a.Value
		isBearer := strings.EqualFold(a.Name, "Authorization") && variable.ReplaceAllString(a.Value, "") == "Bearer "
		switch {
		case t.secret && (len(t.secrets) > 1 || !whole && !isBearer):
			return nil, nil, "", unsupported("a secret is only a part of the value of %.60s", a.Name)
		case t.missing:
		case t.secret && whole:
			secret[a.Name] = t.secrets[0]
		case t.secret:
			bearer = t.secrets[0]
		default:
			plain[a.Name] = t.text
		}
	}
	return plain, secret, bearer, nil
}

// mounted returns the source of a container engine's bind mount, or "" for any other form: engines read
// the value as CSV, compare keys without case, and take the last of several.
func mounted(value string) (source string) {
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(value, ",") {
		key, of, _ := strings.Cut(part, "=")
		switch key {
		case "source":
			key = "src"
		case "destination", "target":
			key = "dst"
		case "ro":
			key = "readonly"
		}
		if seen[key] || strings.ContainsAny(part, "\"' \t\n") {
			return ""
		}
		seen[key] = true
		switch {
		case key == "src":
			source = of
		case key == "dst", key == "type" && of == "bind", key == "readonly" && (of == "" || of == "true"):
		default:
			return ""
		}
	}
	if !seen["type"] || !seen["dst"] {
		return ""
	}
	return source
}

// steersStarter reports whether a variable changes what the program that starts a server fetches or
// reaches. Such a variable of an entry is refused: what was shown and checked would not be what runs.
func steersStarter(name string) bool {
	name = strings.ToUpper(name)
	return text.IsSteering(name) ||
		slices.Contains([]string{"PATH", "HOME", "SHELL", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY"}, name) ||
		slices.ContainsFunc([]string{
			"NPM_", "NODE_", "UV_", "PIP_", "PYTHON", "DOCKER_", "CONTAINER", "BUILDKIT_", "PODMAN_", "XDG_", "YARN_", "PNPM_", "COREPACK_",
		}, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

func unsupported(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "registry.plan", format, args...).
		With(ReasonUnsupported, "add it yourself with junctor mcp add, after reading its documentation")
}

func badInput(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "registry.plan", format, args...).With(ReasonInput, "see junctor mcp add --help")
}
