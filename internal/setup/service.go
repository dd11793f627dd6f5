// Package setup connects the MCP clients of this machine to junctor: it writes junctor into their
// configuration, moves the MCP servers that they have behind junctor, and undoes both to the byte.
package setup

import (
	"cmp"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/declared"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
	"github.com/junctor-run/junctor/secret"
)

// Upstreams adds and removes MCP servers behind junctor.
type Upstreams interface {
	// Find returns the upstreams with the same command, URL and plain values.
	Find(d Definition) []Definition
	// Has reports whether an upstream has this name.
	Has(name string) bool
	// Check returns the error with which Add would refuse the folders of a program.
	Check(d Definition) error
	// Add connects to the server and publishes its tools. It returns the number of tools.
	Add(ctx context.Context, by capability.Principal, d Definition) (tools int, err error)
	Remove(ctx context.Context, by capability.Principal, name string) error
}

// Definition is an MCP server to add. EnvSecrets and HeaderSecrets map names of variables and
// headers to names of secrets.
type Definition struct {
	Name, Command, Dir, URL string
	Args                    []string
	Env, EnvSecrets         map[string]string
	Headers, HeaderSecrets  map[string]string
	// ReadOnly and ReadWrite are the folders that the program sees.
	ReadOnly, ReadWrite []string
	TrustHints          bool
}

// Program returns the command and its arguments, or nil.
func (d Definition) Program() []string {
	if d.Command == "" {
		return nil
	}
	return append([]string{d.Command}, d.Args...)
}

// Secrets stores values by name.
type Secrets interface {
	Get(name string) (secret.Value, error)
	Set(name string, value secret.Value) error
	Remove(name string) error
}

// Tokens creates and revokes tokens.
type Tokens interface {
	// Verify returns the principal of a token, which does not count as a use of it.
	Verify(token string) (capability.Principal, error)
	Tokens(ctx context.Context) ([]policy.Token, error)
	CreateToken(ctx context.Context, by capability.Principal, req policy.TokenRequest) (policy.Token, secret.Value, error)
	RevokeToken(ctx context.Context, by capability.Principal, idOrName string) (policy.Token, error)
}

// Config holds the dependencies of a Service. All fields are required.
type Config struct {
	Dir      string // holds a journal, a record and a token for each client; created if missing
	UserHome string // the folder with the clients' configuration
	Env      func(string) string
	Command  []string // starts the bridge of a client, to which "--client NAME" is added
	// URL is the address of MCP over HTTP. URLEnds is true if it ends with this run of the server.
	URL       string
	URLEnds   bool
	Upstreams Upstreams
	Secrets   Secrets
	Tokens    Tokens
	Door      *httpapi.Door
	Logger    *slog.Logger
	Declared  declared.Config // of the files that declare upstreams and endpoints
}

// Service sets clients up, and applies the files that declare upstreams and endpoints.
type Service struct {
	cfg   Config
	files *declared.Files
	mu    sync.Mutex // one change at a time, because clients may share servers
}

// New returns a Service. It changes nothing.
func New(cfg Config) (*Service, error) {
	return &Service{cfg: cfg, files: declared.New(cfg.Declared)}, nil
}

// Run applies the files that declare objects, and their changes, until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	s.files.Run(ctx)
	return nil
}

// Close does nothing.
func (s *Service) Close() error { return nil }

// Routes adds the API to mux.
func (s *Service) Routes(mux *http.ServeMux) {
	setupserve.New(setupserve.Config{Door: s.cfg.Door, Clients: s, Files: s.files}).Routes(mux)
}

// Checks reports setups that were interrupted, and declarations that could not be applied.
func (s *Service) Checks(context.Context) []httpapi.Check {
	checks := s.files.Checks()
	for _, c := range clients.All() {
		if _, err := s.record(c.Name); errors.Is(err, os.ErrNotExist) && exists(s.journal(c.Name)) {
			checks = append(checks, httpapi.Check{
				Name: "client " + c.Name, Detail: "the setup of " + c.Title + " was interrupted",
				Remedy: "junctor setup --undo --client " + c.Name + ", and then junctor setup again",
			})
		}
	}
	return checks
}

// record is what was done for one client.
type record struct {
	Client string `json:"client"`
	File   string `json:"file"`
	// Servers maps the moved servers of the client to upstreams.
	Servers map[string]string `json:"servers,omitempty"`
	// Added lists the upstreams and Secrets the secrets that the setup created.
	Added   []string `json:"added,omitempty"`
	Secrets []string `json:"secrets,omitempty"`
	// WasConnected is true if the file had an entry of junctor before.
	WasConnected bool `json:"was_connected,omitempty"`
	// CreatesToken is true while the token is created and its file is not yet written. A token with
	// the client's name that exists then was created by this setup.
	CreatesToken bool `json:"creates_token,omitempty"`
}

func (s *Service) journal(name string) string    { return filepath.Join(s.cfg.Dir, name+".journal") }
func (s *Service) recordFile(name string) string { return filepath.Join(s.cfg.Dir, name+".json") }

// tokenFile returns the file with a client's token.
func (s *Service) tokenFile(name string) string { return filepath.Join(s.cfg.Dir, name+".token") }

func exists(file string) bool { _, err := os.Stat(file); return err == nil }

func (s *Service) record(name string) (record, error) {
	var r record
	data, err := os.ReadFile(s.recordFile(name))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(data, &r)
}

func (s *Service) save(r record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return hostfs.WriteFile(s.recordFile(r.Client), append(data, '\n'))
}

// List implements setupserve.Clients.
func (s *Service) List(ctx context.Context, folder string) []setupserve.Status {
	tokens, _ := s.cfg.Tokens.Tokens(ctx) // none if the store does not answer: the list is shown all the same
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []setupserve.Status
	for _, c := range clients.All() {
		st := s.status(c, folder)
		for _, t := range tokens {
			if st.SetUp && t.Name == c.Name && t.Live(time.Now()) {
				st.Used = t.Used
			}
		}
		out = append(out, st)
	}
	return out
}

// status describes one client, with the servers of the project in folder.
func (s *Service) status(c clients.Client, folder string) setupserve.Status {
	file := c.File(s.cfg.UserHome, s.cfg.Env)
	st := setupserve.Status{Name: c.Name, Title: c.Title, File: file, Servers: []clients.Found{}}
	now, err := c.Read(file)
	if err != nil {
		st.Found, st.Fault = true, capability.AsError(err).Message
		return st
	}
	st.Found = now.Text != nil || c.Binary != "" && onPath(c.Binary, s.cfg.Env("PATH"))
	st.Connected = now.Connected
	st.Servers = slices.Concat(st.Servers, now.Servers, c.OfProjects(now, file, folder))
	r, err := s.record(c.Name)
	st.SetUp = err == nil && exists(s.journal(c.Name))
	st.Moved = r.Servers
	return st
}

// onPath reports whether a program is in one of the folders of path.
func onPath(program, path string) bool {
	for _, dir := range filepath.SplitList(path) {
		info, err := os.Stat(filepath.Join(dir, program))
		if filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}

// Connect implements setupserve.Clients.
func (s *Service) Connect(ctx context.Context, by capability.Principal, name string, req setupserve.Request) (setupserve.Result, error) {
	c, err := clients.Find(name)
	if err != nil {
		return setupserve.Result{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	file := c.File(s.cfg.UserHome, s.cfg.Env)
	known, err := s.record(name)
	further := err == nil && exists(s.journal(name)) // servers of a client that is set up
	if further && (len(req.Move) == 0 || req.HTTP) {
		return setupserve.Result{}, capability.Errorf(capability.CodeConflict, "setup", "%s is set up already", c.Title).
			With("client_set_up", "undo it first with: junctor setup --undo --client "+name)
	} else if !further && exists(s.journal(name)) && !req.DryRun { // interrupted
		if err := overlay.Undo(ctx, s.journal(name)); err != nil {
			return setupserve.Result{}, err
		}
	}
	now, err := c.Read(file)
	if err != nil {
		return setupserve.Result{}, err
	}
	out := setupserve.Result{
		Client: name, File: file, Moved: map[string]string{}, Left: map[string]string{}, Folders: map[string]setupserve.Folders{},
	}
	if !req.DryRun {
		if err := os.MkdirAll(s.cfg.Dir, 0o700); err != nil {
			return setupserve.Result{}, capability.Wrap(capability.CodeFailed, "setup", "the folder "+s.cfg.Dir+" cannot be created", err)
		}
	}
	if req.HTTP { // before anything is moved
		if err := c.Check(clients.Server{URL: s.cfg.URL}); err != nil {
			return setupserve.Result{}, err
		}
		if err := private(file); err != nil {
			return setupserve.Result{}, err
		}
	}
	for _, f := range c.OfProjects(now, file, req.Folder) {
		out.Left[f.Name] = f.Stays
	}
	move := s.movable(now, req.Move, out.Left) // a server of the user has the same name: it counts
	if further {
		maps.DeleteFunc(out.Left, func(server, _ string) bool { return known.Servers[server] != "" && !now.Has(server) })
	}
	move = s.reaching(&out, move, req.Folders, req.KeepUnreached)
	r := record{Client: name, File: file, Servers: map[string]string{}, WasConnected: now.Connected}
	if !further { // what is known was interrupted before the file was changed
		r.Added, r.Secrets, r.CreatesToken = known.Added, known.Secrets, known.CreatesToken
		if err := s.mayUseToken(ctx, c, r); err != nil {
			return setupserve.Result{}, err
		}
	}
	if !req.DryRun {
		for _, server := range move {
			if err := s.move(ctx, by, server, req.TrustHints, req.Folders[server.Name], &r); err != nil {
				out.Left[server.Name] = reason(err)
			}
		}
	} else {
		for _, server := range move {
			d, _, again := s.become(server, name)
			r.Servers[server.Name] = cmp.Or(again, d.Name)
		}
	}
	var own clients.Server // if further, the client keeps its entry
	if err = nil; !further {
		own, err = s.entry(ctx, by, c, req, &r)
	}
	var changes []overlay.Change
	var left map[string]string
	if err == nil {
		changes, left, err = c.Plan(s.root(file), file, now, own, slices.Sorted(maps.Keys(r.Servers)))
	}
	if err == nil {
		for server, why := range left {
			out.Left[server] = why
		}
		var after []byte
		if after, err = overlay.Preview(now.Text, owner, changes); err == nil {
			out.Difference = secret.NewMasker(append(valuesOf(now), own.Headers[tokenHeader])).Mask(clients.Difference(now.Text, after))
		}
	}
	switch {
	case err != nil || req.DryRun:
	case further:
		err = s.extend(ctx, known, r, changes)
	default:
		err = s.write(ctx, by, r, changes)
	}
	if err != nil {
		if further {
			s.remove(context.WithoutCancel(ctx), by, r)
		} else {
			s.takeBack(ctx, by, r)
		}
		return setupserve.Result{}, err
	}
	out.Moved, out.Warnings = r.Servers, s.warnings(req)
	return out, nil
}

// reason returns why a server did not move, and what can be done.
func reason(err error) string {
	e := capability.AsError(err)
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "; " + e.Hint
}

// root returns the folder within which a client's file is changed: the user's home, or the file's
// own folder if it is configured to be elsewhere.
func (s *Service) root(file string) string {
	if rel, err := filepath.Rel(s.cfg.UserHome, file); err == nil && filepath.IsLocal(rel) {
		return s.cfg.UserHome
	}
	return filepath.Dir(file)
}

// owner marks the blocks that setup writes.
const owner = "setup"

// write stores the record, creates the token and changes the file, in this order.
func (s *Service) write(ctx context.Context, by capability.Principal, r record, changes []overlay.Change) error {
	if err := s.token(ctx, by, &r); err != nil {
		return err
	}
	if err := s.save(r); err != nil {
		return capability.Wrap(capability.CodeFailed, "setup", "the record of the setup cannot be written", err)
	}
	if err := overlay.Apply(ctx, s.journal(r.Client), owner, changes); err != nil {
		_ = os.Remove(s.recordFile(r.Client))
		return err
	}
	return nil
}

// extend notes that further servers of a client moved, and removes them from its file.
func (s *Service) extend(ctx context.Context, known, more record, changes []overlay.Change) error {
	r := known
	r.Servers = maps.Clone(known.Servers)
	if r.Servers == nil {
		r.Servers = make(map[string]string)
	}
	maps.Copy(r.Servers, more.Servers)
	r.Added, r.Secrets = slices.Concat(known.Added, more.Added), slices.Concat(known.Secrets, more.Secrets)
	err := s.save(r)
	if err == nil && len(more.Servers) > 0 {
		err = overlay.Extend(ctx, s.journal(r.Client), owner, changes)
	}
	if err != nil {
		return errors.Join(err, s.save(known))
	}
	return nil
}

// movable returns the servers of a configuration that the request names, "*" for all, and
// notes the others in left.
func (s *Service) movable(now clients.Config, names []string, left map[string]string) []clients.Server {
	var out []clients.Server
	for _, f := range now.Servers {
		switch {
		case f.Stays != "":
			left[f.Name] = f.Stays
		case slices.Contains(names, f.Name) || slices.Contains(names, "*"):
			out = append(out, s.inFull(f.Server))
			delete(left, f.Name)
		default:
			left[f.Name] = "it was not chosen"
		}
	}
	for _, name := range names {
		if name != "*" && left[name] == "" && !now.Has(name) {
			left[name] = "it is not in the file"
		}
	}
	return out
}

// move adds a client's server as an upstream and notes it in r. Values that look like credentials
// become secrets. A server that is an upstream already, from another client, is used again. If it comes
// from a file, the upstream no longer belongs to that client, because a person asked for it by itself.
func (s *Service) move(ctx context.Context, by capability.Principal, server clients.Server, trustHints bool, given setupserve.Folders,
	r *record,
) error {
	d, values, again := s.become(server, r.Client)
	if again != "" {
		if r.Client == "" {
			if err := s.release(again); err != nil {
				return err
			}
		}
		r.Servers[server.Name] = again
		return nil
	}
	d.TrustHints = trustHints
	d.ReadOnly, d.ReadWrite = s.folders(server, given)
	var set []string
	for _, v := range values {
		if _, exists := s.stored(v.name); exists {
			continue // with this value
		}
		if err := s.cfg.Secrets.Set(v.name, secret.New(v.value)); err != nil {
			return err
		}
		set = append(set, v.name)
	}
	if _, err := s.cfg.Upstreams.Add(ctx, by, d); err != nil {
		for _, name := range set {
			_ = s.cfg.Secrets.Remove(name)
		}
		return err
	}
	r.Servers[server.Name], r.Added, r.Secrets = d.Name, append(r.Added, d.Name), append(r.Secrets, set...)
	return nil
}

// become returns the upstream that a server of a client becomes, under a free name, and its secrets; or
// the name of the upstream that it is already. client is "" for a file.
func (s *Service) become(server clients.Server, client string) (d Definition, values []secretValue, again string) {
	d, values = definition(server, upstreamName(server.Name))
	for _, other := range s.cfg.Upstreams.Find(d) {
		if s.sameSecrets(server.Env, d.EnvSecrets, other.EnvSecrets) && s.sameSecrets(server.Headers, d.HeaderSecrets, other.HeaderSecrets) {
			return Definition{}, nil, other.Name
		}
	}
	for base, n := d.Name, 2; s.taken(d.Name, values); n++ {
		suffix := strconv.Itoa(n)
		if n == 2 && client != "" {
			suffix = client
		}
		d, values = definition(server, base+"-"+suffix)
	}
	return d, values, ""
}

// taken reports whether an upstream has the name, or one of the secrets exists with another value, or with one
// that cannot be read now.
func (s *Service) taken(name string, values []secretValue) bool {
	return s.cfg.Upstreams.Has(name) || slices.ContainsFunc(values, func(v secretValue) bool {
		stored, exists := s.stored(v.name)
		return exists && subtle.ConstantTimeCompare([]byte(stored.Reveal()), []byte(v.value)) != 1
	})
}

// stored returns a secret, empty if its value cannot be read, and whether it exists.
func (s *Service) stored(name string) (value secret.Value, exists bool) {
	value, err := s.cfg.Secrets.Get(name)
	return value, err == nil || capability.AsError(err).Reason != secretstore.ReasonUnknown
}

// definition returns a server as the upstream of a name, and the secrets that it needs.
func definition(server clients.Server, name string) (d Definition, values []secretValue) {
	d = Definition{Name: name, Command: server.Command, Dir: server.Dir, URL: server.URL, Args: server.Args}
	d.Env, d.EnvSecrets, values = split(d.Name, server.Env, values)
	d.Headers, d.HeaderSecrets, values = split(d.Name, server.Headers, values)
	return d, values
}

// sameSecrets reports whether an upstream has the same secret variables or headers as a server.
func (s *Service) sameSecrets(values, names, others map[string]string) bool {
	if len(names) != len(others) {
		return false
	}
	for name := range names {
		stored, err := s.cfg.Secrets.Get(others[name])
		if err != nil || subtle.ConstantTimeCompare([]byte(stored.Reveal()), []byte(values[name])) != 1 {
			return false
		}
	}
	return true
}

type secretValue struct{ name, value string }

// split separates the values that look like credentials from the others.
func split(server string, in map[string]string, values []secretValue) (plain, secrets map[string]string, all []secretValue) {
	plain, secrets = make(map[string]string), make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if !secret.IsCredential(name, in[name]) {
			plain[name] = in[name]
			continue
		}
		as := server + "-" + strings.Trim(notName.ReplaceAllString(strings.ToLower(name), "-"), "-")
		for base, n := as, 2; slices.ContainsFunc(values, func(v secretValue) bool { return v.name == as }); n++ {
			as = base + "-" + strconv.Itoa(n) // API_KEY and API-KEY
		}
		secrets[name] = as
		values = append(values, secretValue{as, in[name]})
	}
	return plain, secrets, values
}

var notName = regexp.MustCompile(`[^a-z0-9.]+`)

// upstreamName turns the name of a client's server into one that upstreams may have.
func upstreamName(name string) string {
	return cmp.Or(strings.Trim(regexp.MustCompile(`[^A-Za-z0-9._-]+`).ReplaceAllString(name, "-"), "-._"), "server")
}

// valuesOf returns the values of variables and headers that look like credentials, to mask them.
func valuesOf(now clients.Config) (values []string) {
	for _, f := range append(slices.Clone(now.Servers), clients.Found{Server: now.Own}) {
		for _, m := range []map[string]string{f.Env, f.Headers} {
			for name, value := range m {
				if secret.IsCredential(name, value) {
					values = append(values, value)
				}
			}
		}
	}
	return values
}

// Disconnect implements setupserve.Clients.
func (s *Service) Disconnect(ctx context.Context, by capability.Principal, name string) (setupserve.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, r, err := s.setUp(name)
	if err != nil {
		return setupserve.Result{}, err
	}
	before, _ := c.Read(r.File) // only for the difference
	if err := overlay.Undo(ctx, s.journal(name)); err != nil {
		return setupserve.Result{}, err
	}
	now, err := c.Read(r.File)
	if rest, ok := c.RemoveEntry(now.Text); ok && err == nil && now.Connected && !r.WasConnected { // its client wrote it in another form
		if err := hostfs.RewriteFile(target(r.File), rest); err != nil {
			return setupserve.Result{}, capability.Wrap(capability.CodeFailed, "setup", r.File+" cannot be changed", err)
		}
	}
	after, _ := c.Read(r.File)
	return setupserve.Result{
		Client: name, File: r.File, Moved: r.Servers, Removed: s.takeBack(ctx, by, r),
		Difference: secret.NewMasker(append(valuesOf(before), valuesOf(after)...)).Mask(clients.Difference(before.Text, after.Text)),
	}, nil
}

// PreviewUndo implements setupserve.Clients.
func (s *Service) PreviewUndo(name string, after []string) (setupserve.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, r, err := s.setUp(name)
	if err != nil {
		return setupserve.Result{}, err
	}
	before, err := c.Read(r.File)
	if err != nil {
		return setupserve.Result{}, err
	}
	text, gone, err := overlay.PreviewUndo(s.journal(name), before.Text)
	if err != nil {
		return setupserve.Result{}, err
	}
	var then clients.Config
	if !gone {
		then, err = c.Parse(r.File, text)
		if rest, ok := c.RemoveEntry(text); ok && err == nil && then.Connected && !r.WasConnected {
			text = rest
		}
	}
	out := setupserve.Result{
		Client: name, File: r.File, Moved: r.Servers,
		Difference: secret.NewMasker(append(valuesOf(before), valuesOf(then)...)).Mask(clients.Difference(before.Text, text)),
	}
	records := s.records()
	records[name] = r
	for _, client := range append(slices.Clone(after), name) {
		out.Removed, out.Secrets, out.Kept = nil, nil, map[string]string{}
		r := records[client]
		delete(records, client)
		for _, upstream := range r.Added {
			if other, ok := userOf(records, upstream); ok {
				records[other.Client] = r.hand(other, upstream)
				user, _ := clients.Find(other.Client)
				out.Kept[upstream] = user.Title
				continue
			}
			out.Removed, out.Secrets = append(out.Removed, upstream), append(out.Secrets, r.secretsOf(upstream)...)
		}
	}
	return out, nil
}

// setUp returns a client and the record of its setup, which may have been interrupted. Error: not_found,
// reason client_not_set_up.
func (s *Service) setUp(name string) (clients.Client, record, error) {
	c, err := clients.Find(name)
	if err != nil {
		return c, record{}, err
	}
	r, err := s.record(name)
	if err != nil && !exists(s.journal(name)) {
		return c, r, capability.Errorf(capability.CodeNotFound, "setup", "%s was not set up by junctor", c.Title).
			With("client_not_set_up", "see the clients with: junctor setup --list")
	}
	r.Client, r.File = name, cmp.Or(r.File, c.File(s.cfg.UserHome, s.cfg.Env))
	return c, r, nil
}

// takeBack removes what a setup created: the upstreams that no other client uses, their secrets,
// the token and the record. It returns the names of the removed upstreams. Failures are logged, because
// the client's file is right already.
func (s *Service) takeBack(ctx context.Context, by capability.Principal, r record) (removed []string) {
	ctx = context.WithoutCancel(ctx)
	removed = s.remove(ctx, by, r)
	if r.CreatesToken || s.ownsToken(r.Client) {
		if err := s.revoke(ctx, by, r.Client); err != nil {
			s.cfg.Logger.Warn("token of a client not revoked", "client", r.Client, "err", err)
		}
	}
	_ = os.Remove(s.tokenFile(r.Client))
	_ = os.Remove(s.recordFile(r.Client))
	return removed
}

// remove removes the upstreams that a setup added and no other client uses, and their secrets.
func (s *Service) remove(ctx context.Context, by capability.Principal, r record) (removed []string) {
	records := s.records()
	delete(records, r.Client)
	for _, name := range r.Added {
		if other, ok := userOf(records, name); ok { // that client's undo removes it
			records[other.Client] = r.hand(other, name)
			if err := s.save(records[other.Client]); err != nil {
				s.cfg.Logger.Warn("record of a client not written", "client", other.Client, "err", err)
			}
			continue
		}
		if err := s.cfg.Upstreams.Remove(ctx, by, name); err != nil && capability.CodeOf(err) != capability.CodeNotFound {
			s.cfg.Logger.Warn("upstream of a client not removed", "client", r.Client, "upstream", name, "err", err)
			continue
		}
		removed = append(removed, name)
		for _, secretName := range r.secretsOf(name) {
			_ = s.cfg.Secrets.Remove(secretName)
		}
	}
	return removed
}

// hand returns the record of another client with an upstream of r, whose undo then removes it.
func (r record) hand(other record, upstream string) record {
	other.Added = append(slices.Clone(other.Added), upstream)
	other.Secrets = append(slices.Clone(other.Secrets), r.secretsOf(upstream)...)
	return other
}

// secretsOf returns the secrets that were created for one of the added upstreams: those that begin
// with its name, and not with the longer name of another one.
func (r record) secretsOf(upstream string) (out []string) {
	for _, name := range r.Secrets {
		owner := ""
		for _, added := range r.Added {
			if strings.HasPrefix(name, added+"-") && len(added) > len(owner) {
				owner = added
			}
		}
		if owner == upstream {
			out = append(out, name)
		}
	}
	return out
}

// release removes an upstream and its secrets from the records of the clients whose setup added it,
// so that their undo leaves it.
func (s *Service) release(upstream string) error {
	for _, c := range clients.All() {
		r, err := s.record(c.Name)
		if err != nil || !slices.Contains(r.Added, upstream) {
			continue
		}
		own := r.secretsOf(upstream)
		r.Secrets = slices.DeleteFunc(r.Secrets, func(name string) bool { return slices.Contains(own, name) })
		r.Added = slices.DeleteFunc(r.Added, func(name string) bool { return name == upstream })
		if err := s.save(r); err != nil {
			return capability.Wrap(capability.CodeFailed, "setup", "the record of "+c.Title+" cannot be written", err)
		}
	}
	return nil
}

// records returns the records of all clients, by client.
func (s *Service) records() map[string]record {
	all := make(map[string]record)
	for _, c := range clients.All() {
		if r, err := s.record(c.Name); err == nil {
			all[c.Name] = r
		}
	}
	return all
}

// userOf returns the first record whose servers include the upstream.
func userOf(records map[string]record, upstream string) (record, bool) {
	for _, c := range clients.All() {
		for _, name := range records[c.Name].Servers {
			if name == upstream {
				return records[c.Name], true
			}
		}
	}
	return record{}, false
}
