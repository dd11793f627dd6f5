package setup

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/setup/clients"
)

// folders returns the folders that a server's program needs to see once it is confined: it may
// write to those that its arguments name and to its working folder, and read the folder of each
// file that they name and the libraries of the program. Folders of the system are always visible.
func (s *Service) folders(server clients.Server) (readOnly, readWrite []string) {
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
			dir = cmp.Or(dir, filepath.Dir(arg))
			add(&readOnly, dir)
		}
	}
	program := server.Command
	if !strings.ContainsRune(program, '/') {
		for _, dir := range filepath.SplitList(s.cfg.Env("PATH")) {
			if file := filepath.Join(dir, program); filepath.IsAbs(dir) && exists(file) {
				program = file
				break
			}
		}
	}
	if filepath.IsAbs(program) && exists(program) {
		if dir := libraries(program); dir != "" { // the program itself is always visible
			add(&readOnly, dir)
		}
	}
	readOnly = slices.DeleteFunc(readOnly, func(dir string) bool {
		return slices.ContainsFunc(readWrite, func(parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") })
	})
	return readOnly, readWrite
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
