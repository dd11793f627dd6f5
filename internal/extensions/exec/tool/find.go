package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// interpreters returns the programs that run other programs or code, and therefore need
// the permission exec.interpreter.
func interpreters() []string {
	return strings.Fields("sh bash dash zsh fish busybox env xargs nc socat python* node deno bun perl ruby lua php awk gdb strace nohup setsid unshare nsenter docker podman kubectl ssh")
}

// raising returns the programs that gain rights which their caller lacks. No permission
// allows them.
func raising() []string { return []string{"sudo", "su", "doas", "pkexec"} }

// permitted returns an error unless the request may run its tool: security_violation for
// an invalid name or a program of raising, permission_denied without exec, or without
// exec.interpreter for an interpreter.
func (x *Executor) permitted(req Request) error {
	if !command.IsToolName(req.Tool) {
		return fault.SecurityViolation("the tool's name is not one")
	}
	if slices.Contains(raising(), req.Tool) {
		return fault.SecurityViolation(req.Tool + " takes on other rights")
	}
	if !slices.Contains(req.Permissions, "exec") {
		return fault.PermissionDenied("exec", "the extension does not declare that it runs tools")
	}
	if x.interprets(req.Tool) && !slices.Contains(req.Permissions, "exec.interpreter") {
		return fault.PermissionDenied("exec.interpreter", req.Tool+" runs other programs")
	}
	return nil
}

func (x *Executor) interprets(name string) bool {
	return slices.ContainsFunc(x.cfg.Interpreters, func(pattern string) bool {
		prefix, open := strings.CutSuffix(pattern, "*")
		return name == pattern || open && strings.HasPrefix(name, prefix)
	})
}

// find opens the program: the package's own, whose SHA-256 must match, or else the first
// in Config.Dirs. The opened file is what runs, even if the path changes later; the
// caller closes it. Errors: tool_not_found; security_violation for a changed tool of the
// package; permission_denied for a link to an interpreter.
func (x *Executor) find(req Request) (*os.File, error) {
	if own, ok := req.Own[req.Tool]; ok {
		f, err := openProgram(own.Path)
		if err != nil {
			return nil, fault.ToolNotFound(req.Tool)
		}
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			f.Close()
			return nil, fault.ToolNotFound(req.Tool)
		}
		if !strings.EqualFold(hex.EncodeToString(h.Sum(nil)), own.SHA256) {
			f.Close()
			return nil, fault.SecurityViolation("the tool " + req.Tool + " of the package is not the one that was installed")
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			f.Close()
			return nil, fault.ToolNotFound(req.Tool)
		}
		return f, nil
	}
	for _, dir := range x.cfg.Dirs {
		if !filepath.IsAbs(dir) {
			continue
		}
		if f, err := openProgram(filepath.Join(dir, req.Tool)); err == nil {
			// A link to an interpreter counts as the interpreter.
			if real := filepath.Base(realName(f)); real != req.Tool && x.interprets(real) && !slices.Contains(req.Permissions, "exec.interpreter") {
				f.Close()
				return nil, fault.PermissionDenied("exec.interpreter", req.Tool+" is another name of "+real)
			}
			return f, nil
		}
	}
	return nil, fault.ToolNotFound(req.Tool)
}

// openProgram opens a regular, executable file that is not world-writable.
func openProgram(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if mode := info.Mode(); !mode.IsRegular() || mode&0o111 == 0 || mode&0o002 != 0 {
		f.Close()
		return nil, os.ErrPermission
	}
	return f, nil
}

func realName(f *os.File) string {
	real, err := filepath.EvalSymlinks(f.Name())
	if err != nil {
		return f.Name()
	}
	return real
}
