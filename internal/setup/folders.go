package setup

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
	"github.com/junctor-run/junctor/secret"
)

// folders returns the folders that a server's program needs to see once it is confined: it may
// write to those that its arguments name and to its working folder, and read the folder of each
// file that they name, unless that is the user's home, and the libraries of the program, and those that a
// person gave. Folders of the system are always visible.
func (s *Service) folders(server clients.Server, given setupserve.Folders) (readOnly, readWrite []string) {
	if server.Command == "" {
		return nil, nil
	}
	add := func(list *[]string, dir string) {
		if dir = filepath.Clean(dir); !slices.Contains(*list, dir) && !ofSystem(dir) {
			*list = append(*list, dir)
		}
	}
	if filepath.IsAbs(server.Dir) {
		add(&readWrite, server.Dir)
	}
	for _, arg := range server.Args {
		if !filepath.IsAbs(arg) {
			continue
		}
		if info, err := os.Stat(arg); err == nil && info.IsDir() {
			add(&readWrite, arg)
		} else if err == nil {
			dir := libraries(arg)
			if dir = cmp.Or(dir, filepath.Dir(arg)); !within(s.cfg.UserHome, []string{dir}) {
				add(&readOnly, dir)
			}
		}
	}
	if program := s.program(server); program != "" {
		if dir := libraries(program); dir != "" { // the program itself is always visible
			add(&readOnly, dir)
		}
	}
	for _, dir := range given.ReadOnly {
		add(&readOnly, dir)
	}
	for _, dir := range given.ReadWrite {
		add(&readWrite, dir)
	}
	readOnly = slices.DeleteFunc(readOnly, func(dir string) bool { return within(dir, readWrite) })
	return readOnly, readWrite
}

// program returns the file of a server's program, or "".
func (s *Service) program(server clients.Server) string {
	program := server.Command
	if !strings.ContainsRune(program, '/') {
		for _, dir := range filepath.SplitList(s.cfg.Env("PATH")) {
			if file := filepath.Join(dir, program); filepath.IsAbs(dir) && exists(file) {
				return file
			}
		}
	}
	if filepath.IsAbs(program) && exists(program) {
		return program
	}
	return ""
}

// within reports whether a folder is one of list or lies in one.
func within(dir string, list []string) bool {
	return slices.ContainsFunc(list, func(parent string) bool {
		return dir == parent || strings.HasPrefix(dir, strings.TrimSuffix(parent, "/")+"/")
	})
}

// reaching returns the servers that can be moved with the folders that a person gives, and notes in out what
// their programs see, what they name and do not see, and why the others stay. Those that need all of the user's
// files stay, and if keep is true, those that name other folders out of reach.
func (s *Service) reaching(out *setupserve.Result, move []clients.Server, given map[string]setupserve.Folders, keep bool) []clients.Server {
	return slices.DeleteFunc(move, func(server clients.Server) bool {
		s.show(out, server, out.Client, given[server.Name])
		return s.keepTooWide(out, server) || s.keepRefused(out, server, out.Client, given[server.Name]) || keep && keepUnreached(out, server.Name)
	})
}

// show adds to out what the program of a server sees, and what it names and does not see.
func (s *Service) show(out *setupserve.Result, server clients.Server, client string, given setupserve.Folders) {
	readOnly, readWrite := s.folders(server, given)
	out.Folders[server.Name] = setupserve.Folders{ReadOnly: readOnly, ReadWrite: readWrite}
	if _, _, again := s.become(server, client); again != "" || server.Command == "" {
		return // it has the folders of the upstream
	}
	if list := s.unreached(server, readOnly, readWrite); len(list) > 0 {
		if out.Unreached == nil {
			out.Unreached = make(map[string][]setupserve.Unreached)
		}
		out.Unreached[server.Name] = list
	}
}

// keepRefused notes that a server stays in its client if its program would be refused the folders that out
// shows, or those that a person may still be asked for. It reports whether it stays.
func (s *Service) keepRefused(out *setupserve.Result, server clients.Server, client string, given setupserve.Folders) bool {
	d, _, again := s.become(server, client)
	if again != "" || server.Command == "" {
		return false // it has the folders of the upstream
	}
	d.ReadOnly, d.ReadWrite = s.folders(server, given)
	for _, u := range out.Unreached[server.Name] {
		switch {
		case within(u.Folder, given.ReadOnly): // it is answered
		case u.Package:
			d.ReadOnly = append(d.ReadOnly, u.Folder)
		default:
			d.ReadWrite = append(d.ReadWrite, u.Folder)
		}
	}
	err := s.cfg.Upstreams.Check(d)
	if err == nil {
		return false
	}
	out.Left[server.Name] = reason(err)
	delete(out.Folders, server.Name)
	delete(out.Unreached, server.Name)
	return true
}

// keepUnreached notes that a server stays in its client if out has folders that it names and could not use,
// because without them its program would run with other data or none. It reports whether it stays.
func keepUnreached(out *setupserve.Result, server string) bool {
	var named []string
	for _, u := range out.Unreached[server] {
		named = append(named, u.Folder+" ("+u.From+")")
	}
	if len(named) == 0 {
		return false
	}
	out.Left[server] = "behind junctor it could not use " + strings.Join(named, ", ") +
		", which only an answer of yours gives; to be asked, run: " + moveCommand(out, server)
	delete(out.Folders, server)
	return true
}

// keepTooWide notes that a server stays in its client if it names a file that lies directly in the user's home,
// or all of that folder, because a program is not given all files of a user. It notes the steps by which the
// server can move, and reports whether it stays.
func (s *Service) keepTooWide(out *setupserve.Result, server clients.Server) bool {
	list := slices.Clone(out.Unreached[server.Name])
	list = slices.DeleteFunc(list, func(u setupserve.Unreached) bool { return !u.TooWide })
	if len(list) == 0 {
		return false
	}
	folder := filepath.Join(s.cfg.UserHome, upstreamName(server.Name))
	if info, err := os.Stat(folder); err == nil && !info.IsDir() {
		folder += "-data"
	}
	var named, moves, changes []string
	for _, u := range list {
		from, to := cmp.Or(u.File, u.Folder), folder
		if u.File != "" {
			to = filepath.Join(folder, filepath.Base(u.File))
			if exists(u.File) {
				moves = append(moves, " && mv "+text.ShellWord(u.File)+" "+text.ShellWord(to))
			}
		}
		named, changes = append(named, from+" ("+u.From+")"), append(changes, from+" to "+to+" ("+u.From+")")
	}
	in := "the file"
	if filepath.IsAbs(out.File) {
		in = out.File
	}
	out.Left[server.Name] = "it needs " + strings.Join(named, ", ") + ", and a program is not given all of " + list[0].Folder +
		"; give it a folder of its own with: mkdir -p " + text.ShellWord(folder) + strings.Join(moves, "") +
		"; then, in " + in + ", change " + strings.Join(changes, " and ") + ", and run again: " + moveCommand(out, server.Name)
	delete(out.Folders, server.Name)
	return true
}

// moveCommand returns the command that moves or imports a server and asks.
func moveCommand(out *setupserve.Result, server string) string {
	switch {
	case out.Client != "":
		return "junctor setup --client " + out.Client + " --move " + text.ShellWord(server)
	case filepath.IsAbs(out.File):
		return "junctor mcp import " + text.ShellWord(out.File) + " --server " + text.ShellWord(server)
	}
	return "junctor mcp import FILE --server " + text.ShellWord(server) // a text without a file
}

// unreached returns the folders of the paths that a server's arguments and variables name, and of its
// package, that its program may not change, and for arguments and the package may not even read. Of a
// value only a folder that exists is shown, or a file directly in the user's home, and of a credential nothing.
func (s *Service) unreached(server clients.Server, readOnly, readWrite []string) (list []setupserve.Unreached) {
	add := func(dir, path, from string, change, isPackage bool) {
		dir = filepath.Clean(dir)
		wide := within(s.cfg.UserHome, []string{dir})
		if path = filepath.Clean(path); !wide || path == dir || isPackage {
			path = ""
		}
		readable := within(dir, readOnly)
		if ofSystem(dir) || within(dir, readWrite) || readable && !change || within(target(dir), []string{"/dev", "/proc", "/sys"}) ||
			slices.ContainsFunc(list, func(u setupserve.Unreached) bool { return u.Folder == dir && u.File == path }) {
			return
		}
		list = append(list, setupserve.Unreached{
			Folder: dir, File: path, From: from, Package: isPackage, Readable: readable, TooWide: wide,
		})
	}
	files := []string{s.program(server)}
	for _, arg := range server.Args {
		from := "an argument"
		if flag, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(flag, "-") {
			if secret.IsCredential(flag, value) {
				continue
			}
			arg, from = value, "the argument "+flag
		}
		if dir := folderOf(arg); dir != "" {
			add(dir, arg, from, false, false)
			files = append(files, arg)
		}
	}
	for _, file := range files {
		if dir := packageOf(target(file)); dir != "" && libraries(file) == "" {
			add(dir, dir, "the package of "+filepath.Base(file), false, true)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(server.Env)) {
		if secret.IsCredential(name, server.Env[name]) {
			continue
		}
		for _, value := range filepath.SplitList(server.Env[name]) {
			if dir := folderOf(value); dir != "" && name != "PATH" {
				add(dir, value, name, true, false)
			}
		}
	}
	return list
}

// folderOf returns the folder that a program needs for a path: the path itself, or for a file, and for
// one that is still to be made, the folder that holds it. It returns "" for other values, and if that
// folder does not exist.
func folderOf(path string) string {
	if !filepath.IsAbs(path) {
		return ""
	}
	path = filepath.Clean(path)
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return path
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() || filepath.Dir(path) == "/" {
		return ""
	}
	return filepath.Dir(path)
}

// packageOf returns the nearest folder above a file that holds a package of Node.js or Python, or "".
func packageOf(file string) string {
	if info, err := os.Stat(file); err != nil || info.IsDir() {
		return ""
	}
	for range maxPackageDepth {
		file = filepath.Dir(file)
		if exists(filepath.Join(file, "package.json")) || exists(filepath.Join(file, "pyproject.toml")) {
			return file
		}
	}
	return ""
}

// inFull returns a server whose arguments and plain variables have the user's home for "~/" at their
// begin, because ~ is another folder for a confined program.
func (s *Service) inFull(server clients.Server) clients.Server {
	full := func(value string) string {
		if rest, ok := strings.CutPrefix(value, "~/"); ok && filepath.IsAbs(s.cfg.UserHome) {
			return filepath.Join(s.cfg.UserHome, rest)
		}
		return value
	}
	args, env := slices.Clone(server.Args), maps.Clone(server.Env)
	for i, arg := range args {
		args[i] = full(arg)
		if flag, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(flag, "-") {
			args[i] = flag + "=" + full(value)
		}
	}
	for name, value := range env {
		if !secret.IsCredential(name, value) {
			env[name] = full(value)
		}
	}
	server.Args, server.Env = args, env
	return server
}

// libraries returns the folder with the libraries of a program: all packages of its node_modules,
// or the installation of Node.js or the virtual environment of Python that its bin folder belongs
// to. It returns "" for a program that needs none.
func libraries(file string) string {
	if before, _, ok := strings.Cut(target(file), "/node_modules/"); ok {
		return before + "/node_modules"
	}
	for _, name := range []string{file, target(file)} {
		top, bin := filepath.Split(filepath.Dir(name))
		top = filepath.Clean(top)
		if bin == "bin" && (exists(filepath.Join(top, "pyvenv.cfg")) || exists(filepath.Join(top, "lib", "node_modules"))) {
			return top
		}
	}
	return ""
}

// target returns the file that a path leads to.
func target(file string) string {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		return real
	}
	return file
}

// ofSystem reports whether a folder is one of the system's, which every confined program sees.
func ofSystem(dir string) bool {
	return dir == "/" || slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64"}, func(system string) bool {
		return dir == system || strings.HasPrefix(dir, system+"/")
	})
}
