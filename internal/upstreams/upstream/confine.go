package upstream

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/internal/upstreams/mcpclient"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

// Walls starts confined programs.
type Walls interface {
	Facts() sandbox.Facts
	Place(c sandbox.Confinement) (sandbox.Placement, error)
	Start(spec sandbox.Spec, c sandbox.Confinement, streams sandbox.Streams) (*sandbox.Process, error)
	// Permits returns an error if a named directory may not be given to a program.
	Permits(c sandbox.Confinement) error
	// Shows reports whether a program of c can read a path.
	Shows(c sandbox.Confinement, path string) bool
}

// confinement returns how the program of a record is confined, and where it would run. Errors:
// unavailable, reason sandbox_unavailable; invalid_input, reason folder_unusable.
func (r *Registry) confinement(rec *record.Record, work string) (sandbox.Confinement, sandbox.Placement, error) {
	c := sandbox.Confinement{
		MinTier: sandbox.T2, Network: sandbox.NetworkRaw, Work: work, OwnPath: true, Home: true, ReadOnly: slices.Clone(rec.ReadOnly),
		ReadWrite: slices.Clone(rec.ReadWrite), Limits: sandbox.ServiceLimits(),
	}
	if r.cfg.CA != "" {
		c.ReadOnly = append(c.ReadOnly, r.cfg.CA)
	}
	switch {
	case slices.Equal(rec.Network, []string{record.NetworkNone}):
		c.Network = sandbox.NetworkNone
	case len(rec.Network) > 0 && !slices.Equal(rec.Network, []string{record.NetworkAll}):
		c.Network, c.MinTier, c.Egress = sandbox.NetworkProxy, sandbox.T3, egress.Policy{Allow: rec.Network}
	}
	if r.cfg.Walls == nil {
		return c, sandbox.Placement{}, capability.Errorf(capability.CodeUnavailable, "upstreams", "this server has no sandbox").
			With("sandbox_unavailable", "add it with --unconfined")
	}
	p, err := r.cfg.Walls.Place(c)
	if err != nil {
		e := *capability.AsError(err)
		e.Message = "the program of " + rec.Name + " cannot be confined: " + e.Message
		e.Hint = "see: junctor debug sandbox status; or run it as this server's user, with all that the user may do: --unconfined"
		if c.Network == sandbox.NetworkProxy {
			e.Hint = "a network of named hosts needs tier T3: give --net all or --net none, or see: junctor debug sandbox status"
		}
		return c, p, &e
	}
	if err := r.cfg.Walls.Permits(c); err != nil {
		return c, p, err
	}
	if !r.cfg.Walls.Facts().Root {
		return c, p, nil
	}
	if c.UID, c.GID, err = sandbox.OwnerOf(slices.Concat(rec.ReadWrite, rec.ReadOnly)); err != nil {
		return c, p, err
	}
	return c, p, sandbox.Reachable(p, c.UID, c.GID, rec.ReadWrite, rec.ReadOnly)
}

// Confinable returns the error with which Add would refuse to confine the program of a record.
func (r *Registry) Confinable(rec record.Record) error {
	_, _, err := r.confinement(&rec, r.cfg.Dir)
	return err
}

// starter returns the function that starts the program of a connection confined, for
// ClientConfig.Start. It keeps the process in c.
func (u *upstream) starter(c *conn, env []string) (func(in, out, errs *os.File) (mcpclient.Process, error), error) {
	work, err := u.ownFolder()
	if err != nil {
		return nil, err
	}
	walls, _, err := u.reg.confinement(&u.record, work)
	if err != nil {
		return nil, err
	}
	spec := sandbox.Spec{Args: u.record.Command[1:], Dir: u.record.Dir, Env: env}
	return func(in, out, errs *os.File) (mcpclient.Process, error) {
		var err error
		if spec.Path, err = programPath(u.record.Command[0], cmp.Or(u.record.Dir, work)); err != nil {
			return nil, err
		}
		p, err := u.reg.cfg.Walls.Start(spec, walls, sandbox.Streams{In: in, Out: out, Err: errs})
		if err != nil {
			return nil, notStarted(spec.Path, err)
		}
		u.mu.Lock()
		c.process = p
		u.mu.Unlock()
		return p, nil
	}, nil
}

// notStarted returns the error of starting a confined program: that of the system if it refused the
// program itself.
func notStarted(path string, err error) error {
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || e.Details["step"] != "start the program" {
		return err
	}
	switch e.Details["errno"] {
	case "ENOENT":
		return &fs.PathError{Op: "exec", Path: path, Err: fs.ErrNotExist}
	case "EACCES":
		return &fs.PathError{Op: "exec", Path: path, Err: fs.ErrPermission}
	}
	return err
}

// programPath returns the absolute path of a program: of a name by PATH, of a relative path
// in dir.
func programPath(name, dir string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// ownFolder returns the real path of the upstream's folder in the home, which it creates.
func (u *upstream) ownFolder() (string, error) {
	dir := filepath.Join(u.reg.cfg.Dir, u.record.Name)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", capability.Wrap(capability.CodeFailed, "upstreams", "the folder of upstream "+u.record.Name+" cannot be made", err)
	}
	return dir, nil
}

// unseen returns the paths of this machine that the command, its variables and the roots name
// and that the confined program cannot read. They are never shown to it without being named.
func (u *upstream) unseen() []string {
	if u.record.Confinement != record.Sandboxed || u.reg.cfg.Walls == nil {
		return nil
	}
	c := sandbox.Confinement{
		Work: filepath.Join(u.reg.cfg.Dir, u.record.Name), OwnPath: true, ReadOnly: u.record.ReadOnly, ReadWrite: u.record.ReadWrite,
	}
	var list []string
	add := func(path string) {
		if !slices.Contains(list, path) && !u.reg.cfg.Walls.Shows(c, path) {
			list = append(list, path)
		}
	}
	for _, word := range slices.Concat(u.record.Command[1:], u.record.Roots) {
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		if filepath.IsAbs(word) && exists(word) {
			add(word)
		}
	}
	for _, name := range sortedKeys(u.record.Env) {
		switch value := u.record.Env[name]; {
		case !filepath.IsAbs(value):
		case exists(value):
			add(value)
		case filepath.Dir(value) != "/" && exists(filepath.Dir(value)): // a file that it is to make
			add(filepath.Dir(value))
		}
	}
	return list
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// folderFor returns the folder to name for an unseen path: a package's whole tree, because it
// reads its neighbours, else the folder of a file.
func folderFor(path string) string {
	const modules = "/node_modules"
	if i := strings.Index(path+"/", modules+"/"); i >= 0 {
		return path[:i+len(modules)]
	}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return filepath.Dir(path)
	}
	return path
}

// offer returns the sentence that names what a program cannot see, or "".
func (u *upstream) offer() string {
	var flags []string
	for _, path := range u.unseen() {
		if flag := "--ro " + folderFor(path); !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		return ""
	}
	return "the program cannot see all that its command names; if it may, add " + strings.Join(flags, " ") +
		" (--rw in place of --ro to write)"
}

// limited returns err, or, if the program of a connection went over a limit, an error that names
// it. It stores the limit for the status.
func (u *upstream) limited(c *conn, err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.process == nil {
		return err
	}
	text := c.process.Limit()
	if text == "" {
		return err
	}
	u.limit = text
	return capability.Wrap(capability.CodeUnavailable, "upstreams", "its program went over its "+text, err).With("resource_limit",
		"give it less to do at once; an upstream's limits are fixed")
}

// Walled is what a confined program may use besides the system and its own folder.
type Walled struct {
	ReadOnly  []string `json:"read_only,omitempty"`
	ReadWrite []string `json:"read_write,omitempty"`
	Network   []string `json:"network,omitempty"`
}

// Confine confines the program of an upstream, or changes its folders and network, and keeps
// its approved definitions. First it starts the program like this and reads its tools; if that
// fails, nothing is changed. Errors: not_found, invalid_input, conflict (managed_by_file), and those
// of connecting.
func (r *Registry) Confine(ctx context.Context, by capability.Principal, name string, to Walled) (Status, error) {
	u, err := r.get(name)
	if err != nil {
		return Status{}, err
	}
	if err := u.free("upstreams.confine"); err != nil {
		return Status{}, err
	}
	rec := u.record
	rec.Confinement, rec.ReadOnly, rec.ReadWrite, rec.Network = record.Sandboxed, to.ReadOnly, to.ReadWrite, to.Network
	if len(rec.Command) == 0 || rec.Disabled {
		return Status{}, capability.Errorf(capability.CodeInvalidInput, "upstreams.confine", "%s has no program that could be confined", name).
			With("invalid_upstream", "")
	}
	if err := rec.Check(); err != nil {
		return Status{}, err
	}
	trial, err := r.newUpstream(Saved{Record: rec})
	if err != nil {
		return Status{}, err
	}
	c, err := trial.first(ctx)
	if err != nil {
		return Status{}, err
	}
	trial.close(c)
	return r.replace(ctx, by, u, rec)
}
