package sandbox

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/sandbox/jail"
)

// inside returns the paths of the work directory and the package at T3.
func inside(c Confinement) (work, pkg string) {
	switch {
	case c.Work != "" && c.OwnPath:
		work = c.Work
	case c.Work != "":
		work = jail.WorkDir
	}
	if c.Package != "" {
		pkg = jail.PackageDir
	}
	return work, pkg
}

// beneath reports whether a path is dir or lies in it, by components.
func beneath(name, dir string) bool {
	return dir != "" && (name == dir || dir == "/" || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/"))
}

func violation(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeDenied, "sandbox.run", format, args...).With("security_violation", "")
}

// prepare checks the paths of the run and fills r.job. It opens the work directory and at T2
// creates the temporary one; cleanUp releases both, also after an error.
func (r *confined) prepare() error {
	if err := r.c.Egress.Check(); err != nil && r.p.Network == NetworkProxy {
		return capability.Wrap(capability.CodeInvalidInput, "sandbox.run", "the network policy cannot be read: "+err.Error(), err)
	}
	if err := r.box.Permits(r.c); err != nil {
		return err
	}
	if err := r.openWork(); err != nil {
		return err
	}
	l := r.c.Limits
	r.job = jail.Job{
		Isolate: r.p.Tier == T3, Filter: true, Internet: r.p.Network != NetworkNone,
		Landlock: r.landlock(), OpenTCP: r.p.Network == NetworkRaw || r.p.Network == NetworkUnfiltered,
		Proxy: r.p.Tier == T3 && r.p.Network == NetworkProxy,
		// Root without capabilities can still change the modes of its files everywhere. At T3 it sees
		// those of the run only; at T2 the filter of a program that keeps the server's user forbids it.
		Drop: r.facts.Root && (!r.c.ServerUser || r.p.Tier == T3), UID: r.c.UID, GID: r.c.GID,
		Limits: jail.Limits{
			Memory: l.Memory, AddrSpace: max(4<<30, 4*l.Memory), Processes: l.Processes, CPU: l.CPU,
			FileSize: l.FileSize, OpenFiles: l.OpenFiles, Temp: l.Temp,
		},
	}
	if r.c.Work != "" && !r.c.WorkReadOnly {
		r.job.Limits.Disk = l.Disk
	}
	if l.AddressSpace != 0 {
		r.job.Limits.AddrSpace = max(l.AddressSpace, 0)
	} else if l.Memory <= 0 {
		r.job.Limits.AddrSpace = 0
	}
	r.countTogether()
	if r.p.Tier == T3 {
		r.furnish()
	} else if err := r.confine(); err != nil {
		return err
	}
	r.job.Args = append([]string{r.spec.Path}, r.spec.Args...)
	return r.fixTool()
}

func (r *confined) landlock() int {
	if _, gone := r.p.Missing[LayerLandlock]; gone {
		return 0
	}
	return r.facts.Landlock
}

// Permits returns an error if one of the named directories of c may not be given to a program,
// or is missing.
func (b *Box) Permits(c Confinement) error {
	for _, dir := range slices.Concat(c.ReadOnly, c.ReadWrite, []string{c.Package}) {
		if dir == "" {
			continue
		}
		if err := b.mayShow(dir); err != nil {
			return err
		}
	}
	for _, dir := range c.ReadWrite {
		if err := mayChange(dir); err != nil {
			return err
		}
	}
	return nil
}

// mayShow rejects paths that must always remain hidden.
func (b *Box) mayShow(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" {
		return violation("a directory that is shown to a program is named by its clean absolute path")
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "sandbox.run", "the directory "+dir+", which the program needs, is not there", err)
	}
	for _, private := range b.cfg.Private {
		if beneath(real, private) || beneath(private, real) {
			return violation("the server's own files are not shown to programs")
		}
	}
	for _, name := range credentialDirs() {
		if strings.Contains(real+"/", "/"+name+"/") {
			return violation("directories with credentials are not shown to programs")
		}
	}
	if found := Credentials(real); len(found) > 0 {
		return violation("%s holds credentials (%s) and is not shown to programs: name a directory in it", dir, found[0])
	}
	return nil
}

// mayChange rejects directories that no program may be given for writing: those of the system
// and those that the private root has of its own.
func mayChange(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return capability.Wrap(capability.CodeInvalidInput, "sandbox.run", "the directory "+dir+", which the program needs, is not there", err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return capability.Errorf(capability.CodeInvalidInput, "sandbox.run", "%s is not a directory", dir)
	}
	for _, system := range append(systemDirs(), "/boot", "/dev", "/etc", "/proc", "/run", "/sys") {
		if beneath(real, system) {
			return violation("%s belongs to the system and is not given to a program for writing", dir)
		}
	}
	if beneath(jail.TempDir, real) {
		return violation("%s holds the program's own temporary directory: name a directory below it", dir)
	}
	return nil
}

// openWork opens the work directory, whose path must not contain symbolic links. If the server
// is root, it makes the program's user the owner.
func (r *confined) openWork() error {
	if r.c.Work == "" {
		if r.spec.Dir != "" {
			return violation("a program without a work directory starts in none")
		}
		return nil
	}
	if !filepath.IsAbs(r.c.Work) || filepath.Clean(r.c.Work) != r.c.Work || r.c.Work == "/" {
		return violation("the work directory is not a clean absolute path")
	}
	if r.spec.Dir != "" && !r.startsWhereItMay() {
		return violation("a program starts in its work directory, and nowhere else")
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, r.c.Work, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return capability.Wrap(capability.CodeDenied, "sandbox.run", "the work directory cannot be entered", err).With("security_violation", "")
	}
	r.work = os.NewFile(uintptr(fd), "work")
	if r.facts.Root && !r.c.Exact { // at least for reading, because other users may not enter it
		if r.c.Home {
			if err := r.giveContent(); err != nil {
				return setupFailed("give the work directory away", err)
			}
		}
		if err := r.work.Chown(r.c.UID, r.c.GID); err != nil {
			return setupFailed("give the work directory away", err)
		}
	}
	return nil
}

// giveContent makes the program's user the owner of everything in the work directory if the
// directory has another owner. It follows no links, and leaves files with several names alone,
// because another name may be outside.
func (r *confined) giveContent() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(r.work.Fd()), &st); err != nil || int(st.Uid) == r.c.UID {
		return err
	}
	root, err := os.OpenRoot(r.c.Work)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && !d.IsDir() && st.Nlink > 1 {
			return nil
		}
		if err := root.Lchown(name, r.c.UID, r.c.GID); err != nil || !d.IsDir() || strings.Count(name, "/") < hostfs.MaxDepth {
			return err
		}
		return fs.SkipDir // the program ends at its first check of the disk
	})
}

// OwnerOf returns the user and group that a program runs as which is given directories, if the
// server is root: the only owner other than root, or [DefaultUID]. Several owners are an error.
func OwnerOf(dirs []string) (uid, gid int, err error) {
	uid, gid = DefaultUID, DefaultUID
	first := ""
	for _, dir := range dirs {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return 0, 0, capability.Wrap(capability.CodeInvalidInput, "sandbox.place", dir+" is not there", err).With("folder_unusable", "")
		}
		switch {
		case st.Uid == 0:
		case first == "":
			first, uid, gid = dir, int(st.Uid), int(st.Gid)
		case int(st.Uid) != uid:
			return 0, 0, capability.Errorf(capability.CodeInvalidInput, "sandbox.place",
				"%s and %s belong to different users, and a program runs as one", first, dir).
				With("folder_unusable", "name folders of one user")
		}
	}
	return uid, gid, nil
}

// Shows reports whether a program of c can read a path, if the modes of the files permit it.
func (b *Box) Shows(c Confinement, path string) bool {
	path = filepath.Clean(path)
	if real, err := filepath.EvalSymlinks(path); err == nil && !strings.HasPrefix(path, "/proc/") {
		path = real
	}
	return slices.ContainsFunc(slices.Concat(systemDirs(), systemFiles(), devices(), []string{"/proc", c.Work}, b.cfg.ReadOnly,
		c.ReadOnly, c.ReadWrite), func(dir string) bool { return beneath(path, dir) })
}

// startsWhereItMay reports whether Spec.Dir lies in the work directory or, with OwnPath, in a
// directory that the program may read.
func (r *confined) startsWhereItMay() bool {
	dir := filepath.Clean(r.spec.Dir)
	in := func(parent string) bool { return beneath(dir, parent) }
	return in(r.c.Work) || r.c.OwnPath && (slices.ContainsFunc(r.c.ReadOnly, in) || slices.ContainsFunc(r.c.ReadWrite, in))
}

// countTogether decides who enforces the limits: the control group, if the helper is in one;
// otherwise the helper watches memory, and the kernel limits processes per user.
func (r *confined) countTogether() {
	if r.grouped() {
		r.job.Limits.Memory, r.job.Limits.AddrSpace, r.job.Limits.Processes = 0, 0, 0
		return
	}
	switch {
	case r.facts.Root: // the kernel counts every process of the program's user, also those of other runs
		r.job.ExtraProcesses = tasksOf(r.c.UID) + helperThreads
	case r.p.Tier == T3:
		r.job.ExtraProcesses = helperThreads // counted in the same user namespace
	default:
		r.job.ExtraProcesses = tasksOf(os.Geteuid()) + helperThreads
	}
}

func (r *confined) grouped() bool {
	_, gone := r.p.Missing[LayerCgroup]
	return !gone
}

// helperThreads is how many threads the helper may have beside the program's.
const helperThreads = 16

// tasksOf counts the threads of a user.
func tasksOf(uid int) int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			tasks, _ := os.ReadDir("/proc/" + e.Name() + "/task")
			n += max(len(tasks), 1)
		}
	}
	return n
}

// shown returns what this run may read in addition to the system, by its original path.
func (r *confined) shown() []string {
	var list []string
	if r.p.Network == NetworkRaw || r.p.Network == NetworkUnfiltered {
		list = append(list, networkFiles()...)
	}
	list = append(list, r.box.cfg.ReadOnly...)
	return append(list, r.c.ReadOnly...)
}

// show adds one path to the private root; a path that does not exist is omitted.
func (r *confined) show(source, target string) {
	if m, ok := mountOf(source, target); ok {
		r.job.Mounts = append(r.job.Mounts, r.exact(m, source))
	}
}

// exact replaces the source of a mount by the path that the run named, of which the helper follows no link.
func (r *confined) exact(m jail.Mount, source string) jail.Mount {
	if r.c.Exact && (slices.Contains(r.c.ReadOnly, source) || slices.Contains(r.c.ReadWrite, source)) {
		m.Source = source
	}
	return m
}

func mountOf(source, target string) (jail.Mount, bool) {
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return jail.Mount{}, false
	}
	var st unix.Stat_t
	if unix.Stat(real, &st) != nil {
		return jail.Mount{}, false
	}
	kind := st.Mode & unix.S_IFMT
	return jail.Mount{Source: real, Target: target, Dev: st.Dev, Ino: st.Ino, File: kind != unix.S_IFDIR, Device: kind == unix.S_IFCHR}, true
}

// furnish lists the content of the private root of T3.
func (r *confined) furnish() {
	j := &r.job
	j.Dir = "/"
	workDir, _ := inside(r.c)
	j.WorkDir = workDir
	if !r.c.Bare {
		for _, path := range r.shown() {
			r.show(path, path)
		}
	}
	if r.c.Package != "" {
		r.show(r.c.Package, jail.PackageDir)
	}
	if r.work != nil {
		var st unix.Stat_t
		if unix.Fstat(int(r.work.Fd()), &st) == nil {
			j.Mounts = append(j.Mounts, jail.Mount{Source: r.c.Work, Target: workDir, Dev: st.Dev, Ino: st.Ino, Write: !r.c.WorkReadOnly})
		}
		j.Dir = workDir
		switch dir := filepath.Clean(r.spec.Dir); {
		case r.spec.Dir == "":
		case r.c.OwnPath:
			j.Dir = dir
		default:
			j.Dir = filepath.Join(workDir, strings.TrimPrefix(dir, r.c.Work))
		}
	}
	for _, dir := range r.c.ReadWrite {
		if m, ok := mountOf(dir, dir); ok {
			m.Write = true
			j.Mounts = append(j.Mounts, r.exact(m, dir))
		}
	}
	// A directory is mounted before those in it, which its mount would otherwise cover.
	slices.SortStableFunc(j.Mounts, func(a, b jail.Mount) int { return cmp.Compare(len(a.Target), len(b.Target)) })
	uid, gid := r.c.UID, r.c.GID
	if !r.facts.Root {
		uid, gid = os.Geteuid(), os.Getegid()
	}
	id := strconv.Itoa(uid) + ":" + strconv.Itoa(gid)
	j.Files = map[string]string{
		"/etc/passwd":   "agent:x:" + id + "::" + cmp.Or(workDir, jail.WorkDir) + ":/bin/sh\n",
		"/etc/group":    "agent:x:" + strconv.Itoa(gid) + ":\n",
		"/etc/hostname": "sandbox\n",
	}
	if r.p.Network != NetworkRaw {
		j.Files["/etc/hosts"] = "127.0.0.1 localhost sandbox\n::1 localhost\n"
	}
	j.Rules = []jail.Rule{{Path: "/"}, {Path: jail.TempDir, Write: true}, {Path: "/dev", Device: true}}
	if r.c.Bare { // a bare root is complete already, and does not need the following
		j.Rules = []jail.Rule{{Path: jail.PackageDir}, {Path: cmp.Or(workDir, jail.WorkDir)}}
	}
	if r.c.Work != "" && !r.c.WorkReadOnly {
		j.Rules = append(j.Rules, jail.Rule{Path: workDir, Write: true})
	}
	for _, dir := range r.c.ReadWrite {
		j.Rules = append(j.Rules, jail.Rule{Path: dir, Write: true})
	}
	r.environment(jail.TempDir)
}

// tempPrefix begins the name of every temporary directory of tier T2; the
// server's ownerTag follows.
const tempPrefix = "junctor-run-"

// removeStaleTemp removes the files of servers that were killed. Files of other users cannot
// be removed, and need not be.
func (b *Box) removeStaleTemp() {
	dir := b.cfg.Scratch
	if dir == "" {
		dir = os.TempDir()
	}
	left, _ := filepath.Glob(filepath.Join(dir, tempPrefix+"*-*"))
	for _, temp := range left {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(temp), tempPrefix), "-")
		if ownerGone(owner) {
			_ = hostfs.RemoveAll(temp)
		}
	}
}

// confine lists what Landlock permits at T2, and creates the temporary directory.
func (r *confined) confine() error {
	temp, err := os.MkdirTemp(r.box.cfg.Scratch, tempPrefix+ownerTag()+"-*")
	if err != nil {
		return setupFailed("make the temporary directory", err)
	}
	r.temp = temp
	if r.work == nil {
		if r.work, err = os.Open(temp); err != nil {
			return setupFailed("open the temporary directory", err)
		}
	}
	if r.facts.Root {
		if err := os.Chown(temp, r.c.UID, r.c.GID); err != nil {
			return setupFailed("give the temporary directory away", err)
		}
	}
	j := &r.job
	j.TempDir = temp
	if !r.c.Bare {
		for _, path := range slices.Concat(systemDirs(), systemFiles(), r.shown(), procFiles()) {
			j.Rules = append(j.Rules, jail.Rule{Path: path})
		}
		for _, dev := range devices() {
			j.Rules = append(j.Rules, jail.Rule{Path: dev, Device: true})
		}
		j.Rules = append(j.Rules, jail.Rule{Path: temp, Write: true})
	}
	if r.c.Package != "" {
		j.Rules = append(j.Rules, jail.Rule{Path: r.c.Package})
	}
	if r.c.Work != "" {
		j.Rules = append(j.Rules, jail.Rule{Path: r.c.Work, Write: !r.c.WorkReadOnly})
		for _, dir := range r.c.ReadWrite {
			j.Rules = append(j.Rules, jail.Rule{Path: dir, Write: true})
		}
		if d := filepath.Clean(r.spec.Dir); r.spec.Dir != "" && d != r.c.Work {
			j.Dir = d
		}
	}
	r.environment(temp)
	return nil
}

// environment sets the job's variables: the caller's, with TMPDIR and, if the run has a proxy,
// the proxy variables replaced.
func (r *confined) environment(temp string) {
	env := slices.DeleteFunc(slices.Clone(r.spec.Env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "TMPDIR" || r.job.Proxy && strings.HasSuffix(strings.ToLower(name), "_proxy")
	})
	env = append(env, "TMPDIR="+temp)
	if r.c.Home && !slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "HOME=") }) {
		env = append(env, "HOME="+r.home(temp))
	}
	if r.job.Proxy {
		proxy := "http://127.0.0.1:" + strconv.Itoa(jail.ProxyPort)
		for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
			env = append(env, name+"="+proxy)
		}
		env = append(env, "NODE_USE_ENV_PROXY=1") // Node ignores the others without it
	}
	r.job.Env = env
}

// home returns the value of HOME.
func (r *confined) home(temp string) string {
	work, _ := inside(r.c)
	if r.p.Tier == T3 {
		return cmp.Or(work, temp)
	}
	if r.c.Work == "" || r.facts.Root && !reaches(filepath.Dir(r.c.Work), r.c.UID, r.c.GID) {
		return temp
	}
	return r.c.Work
}

// reaches reports whether the modes of dir and its parents permit a user without further
// groups to enter dir.
func reaches(dir string, uid, gid int) bool {
	for ; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if unix.Stat(dir, &st) != nil || !permits(&st, uid, gid, unix.X_OK) {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// permits reports whether the mode of a file grants a user all of want, a set of R_OK, W_OK
// and X_OK.
func permits(st *unix.Stat_t, uid, gid int, want uint32) bool {
	mode := st.Mode
	switch {
	case int(st.Uid) == uid:
		mode >>= 6
	case int(st.Gid) == gid:
		mode >>= 3
	}
	return mode&want == want
}

// Reachable returns an error that a person can act on if the program's user could not use the named
// directories: change those of readWrite and read those of readOnly. At T2 the parents must permit it as well.
// Its remedy is one command for all of them. It is for servers that are root; any other server's programs run
// as the server's user.
func Reachable(p Placement, uid, gid int, readWrite, readOnly []string) error {
	var steps remedy
	var refused []string
	for i, list := range [][]string{readWrite, readOnly} {
		var no []string
		for _, dir := range list {
			var st unix.Stat_t
			if err := unix.Stat(dir, &st); err != nil {
				return capability.Wrap(capability.CodeInvalidInput, "sandbox.place", dir+" is not there", err).With("folder_unusable", "")
			}
			if steps.permit(dir, &st, p, uid, gid, i == 0) {
				no = append(no, dir)
			}
		}
		if len(no) > 0 {
			refused = append(refused, strings.Join(no, ", ")+" cannot be "+[]string{"changed", "read"}[i])
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "sandbox.place", "%s by the user %d, as which the program runs because junctor "+
		"runs as root: the modes of the folders or of those above forbid it", strings.Join(refused, " and "), uid).
		With("folder_unusable", "junctor run by an ordinary user needs no change for folders of that user; "+
			"if the program may use them as root runs it, permit it with: "+steps.String())
}

// remedy is a list of commands, each with its arguments.
type remedy [][]string

// add adds quoted arguments of a command, each once.
func (r *remedy) add(command string, dirs ...string) {
	i := slices.IndexFunc(*r, func(step []string) bool { return step[0] == command })
	if i < 0 {
		i, *r = len(*r), append(*r, []string{command})
	}
	for _, dir := range dirs {
		if word := text.ShellWord(dir); !slices.Contains((*r)[i], word) {
			(*r)[i] = append((*r)[i], word)
		}
	}
}

// String returns the commands as one line of a shell.
func (r *remedy) String() string {
	var lines []string
	for _, step := range *r {
		lines = append(lines, strings.Join(step, " "))
	}
	return strings.Join(lines, " && ")
}

// permit adds the commands that let a user read a directory or file, or with write change it. It reports
// whether any is needed.
func (r *remedy) permit(dir string, st *unix.Stat_t, p Placement, uid, gid int, write bool) bool {
	want := uint32(unix.R_OK)
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want |= unix.X_OK
	}
	if write {
		want |= unix.W_OK
	}
	own := !permits(st, uid, gid, want)
	switch {
	case !own:
	case int(st.Uid) == uid:
		r.add("chmod u+rwX", dir)
	case write:
		r.add(fmt.Sprintf("chown -R %d:%d", uid, gid), dir)
	default: // its owner keeps it, and others do not see it
		if int(st.Gid) != gid {
			r.add(fmt.Sprintf("chgrp -R %d", gid), dir)
		}
		r.add("chmod -R g+rX", dir)
	}
	if p.Tier == T3 || reaches(filepath.Dir(dir), uid, gid) {
		return own
	}
	r.add("chmod o+x", closedAbove(dir, uid, gid)...)
	return true
}

// closedAbove returns the folders above dir that a user may not enter.
func closedAbove(dir string, uid, gid int) (list []string) {
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		var st unix.Stat_t
		if unix.Stat(dir, &st) == nil && !permits(&st, uid, gid, unix.X_OK) {
			list = append(list, dir)
		}
	}
	return list
}

// fixTool sets the program's path as the program sees it and the file's identity, and permits
// the program to be read. Errors: invalid_input for a relative path; unavailable, reason
// tool_not_found; those of openTool.
func (r *confined) fixTool() error {
	if r.spec.Self && (r.p.Tier == T2 || !r.kind().noProc) {
		r.job.Self, r.job.Args[0] = true, "junctor"
		return nil
	}
	if r.spec.Self { // without /proc the binary must be executed by its path
		self, err := os.Executable()
		if err != nil {
			return setupFailed("find our own binary", err)
		}
		r.spec.Path = self
	}
	path := filepath.Clean(r.spec.Path)
	if !filepath.IsAbs(path) {
		return capability.Errorf(capability.CodeInvalidInput, "sandbox.run", "a program is named by its absolute path")
	}
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	if err == nil && r.spec.Program != nil {
		err = unix.Fstat(int(r.spec.Program.Fd()), &st)
	}
	if err != nil {
		return capability.Wrap(capability.CodeUnavailable, "sandbox.run", "the program is not there", err).With("tool_not_found",
			"install it, or say where it is")
	}
	r.job.ToolDev, r.job.ToolIno = st.Dev, st.Ino
	r.job.Path = path
	if err := r.openTool(path); err != nil {
		return err
	}
	if r.p.Tier == T2 {
		r.job.Rules = append(r.job.Rules, jail.Rule{Path: path})
		return nil
	}
	switch {
	case beneath(path, r.c.Work):
		work, _ := inside(r.c)
		r.job.Path = work + strings.TrimPrefix(path, r.c.Work)
	case beneath(path, r.c.Package):
		r.job.Path = jail.PackageDir + strings.TrimPrefix(path, r.c.Package)
	case slices.ContainsFunc(slices.Concat(systemDirs(), r.box.cfg.ReadOnly, r.c.ReadOnly, r.c.ReadWrite),
		func(dir string) bool { return beneath(path, dir) }):
	default:
		r.job.Path = jail.ToolDir + "/" + filepath.Base(path)
		r.show(path, r.job.Path)
	}
	r.job.Args[0] = r.job.Path
	if r.c.Bare {
		r.job.Rules = append(r.job.Rules, jail.Rule{Path: r.job.Path})
	}
	return nil
}

// openTool determines whether the program needs an interpreter, and at T2 holds the handle of one that does
// not. An unreadable one is opened by the helper. It fails if the file was replaced since it was verified.
func (r *confined) openTool(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	magic := make([]byte, 4)
	_, err = f.ReadAt(magic, 0)
	r.job.ToolByPath = err != nil || string(magic) != "\x7fELF"
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Dev != r.job.ToolDev || st.Ino != r.job.ToolIno {
		_ = f.Close()
		return violation("the program was replaced while it was looked at")
	}
	if r.p.Tier == T2 && !r.job.ToolByPath {
		r.tool = f
		return nil
	}
	return f.Close()
}
