package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

const serviceName = "junctor.service"

// plainPath matches paths that systemd reads as they are.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9/._@+,=-]*$`)

// userUnit is the unit that is released for a user's server.
//
//go:embed junctor.user.service
var userUnit string

// serviceUnit returns the unit of a user's server. An empty home is the default one.
func serviceUnit(program, home string) string {
	if home != "" {
		home = " --home " + home
	}
	return strings.Replace(userUnit, "%h/.local/bin/junctor serve", program+" serve"+home, 1)
}

// service is the systemd unit of one user and home.
type service struct {
	app            *app
	home           string
	unit, recorded string // files: the unit, and a copy of what was installed
	text           string
}

func (a *app) findService() (*service, error) {
	wrong := func(format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "setup", format, args...).
			With("service_unsupported", "leave --service out, and the server is started in the background; or start it yourself: junctor serve")
	}
	if runtime.GOOS != "linux" {
		return nil, wrong("--service installs a unit of systemd, which this system does not have")
	}
	if a.far() {
		return nil, wrong("--service is for a server of this machine, and another one is named by --server or JUNCTOR_URL")
	}
	home, err := a.findHome()
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	user, config := a.env("HOME"), a.env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(user) {
		return nil, wrong("HOME is not set, so the folder for units is not known")
	}
	if !filepath.IsAbs(config) {
		config = filepath.Join(user, ".config")
	}
	s := &service{
		app: a, home: home, unit: filepath.Join(config, "systemd", "user", serviceName), recorded: filepath.Join(home, "service.unit"),
	}
	if !plainPath.MatchString(program) || !plainPath.MatchString(home) {
		return nil, wrong("the path %s or %s has characters that systemd reads as something else", program, home)
	}
	if home == filepath.Join(user, ".local", "share", "junctor") {
		home = ""
	}
	s.text = serviceUnit(program, home)
	return s, nil
}

// manager runs a command of the user's systemd.
func (s *service) manager(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, "systemctl", append([]string{"--user", "--no-ask-password"}, args...)...)
	c.WaitDelay = time.Second
	for _, v := range s.app.environ {
		if !strings.HasPrefix(v, "JUNCTOR_") {
			c.Env = append(c.Env, v)
		}
	}
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	text := strings.Join(strings.Fields(string(out[:min(len(out), 2048)])), " ")
	if text == "" {
		text = err.Error()
	}
	return capability.Wrap(capability.CodeUnavailable, "setup", "systemctl --user "+args[0]+" failed: "+text, err).
		With("service_unavailable", "leave --service out, and the server is started in the background; or start it yourself: junctor serve")
}

// install writes and starts the unit, and waits until the server answers. On an error nothing stays.
func (s *service) install(ctx context.Context, o setupOptions) error {
	if err := s.manager(ctx, "show-environment"); err != nil {
		return err
	}
	now, err := os.ReadFile(s.unit)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	active := s.manager(ctx, "is-active", "--quiet", serviceName) == nil
	if err == nil && string(now) != s.text {
		return capability.Errorf(capability.CodeConflict, "setup", "%s exists and is another unit", s.unit).
			With("service_exists", "use it: systemctl --user enable --now junctor; or remove it first")
	}
	if err == nil && active {
		return nil
	}
	if !active && s.answers(ctx) {
		return capability.Errorf(capability.CodeConflict, "setup", "a server that systemd did not start runs on the home %s", s.home).
			With("service_exists", "stop it first; its process is in "+filepath.Join(s.home, "run", "server.json"))
	}
	if !s.app.json {
		s.app.printf("%s:\n%s\n", plainText(s.unit), plainLines(s.text))
	}
	if o.dry {
		return nil
	}
	if !o.yes {
		answer, err := s.app.ask(ctx, "Install and start this unit? [y/N] ")
		if err != nil {
			return err
		}
		if !isYes(strings.TrimSpace(answer)) {
			return capability.Errorf(capability.CodeCancelled, "setup", "the unit was not installed")
		}
	}
	if err := s.app.keepArguments(ctx, s.home, o.yes); err != nil {
		return err
	}
	for _, dir := range []string{s.home, filepath.Dir(s.unit)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return capability.Wrap(capability.CodeFailed, "setup", dir+" cannot be created", err)
		}
	}
	err = nil
	for _, file := range []string{s.recorded, s.unit} { // in this order, so that the undo finds a record of each unit
		if err == nil {
			if err = hostfs.WriteFile(file, []byte(s.text)); err != nil {
				err = capability.Wrap(capability.CodeFailed, "setup", file+" cannot be written", err)
			}
		}
	}
	if err == nil {
		err = s.manager(ctx, "daemon-reload")
	}
	if err == nil {
		err = s.manager(ctx, "enable", "--now", serviceName)
	}
	if err == nil {
		err = s.awaitServer(ctx)
	}
	if err != nil {
		return errors.Join(err, s.remove(context.WithoutCancel(ctx)))
	}
	if !s.app.json {
		s.app.printf("The server runs as a service: systemctl --user status junctor. It ends with your last session, unless you\n" +
			"run: loginctl enable-linger\n")
	}
	return nil
}

// awaitServer waits until the server of the home answers.
func (s *service) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(serviceStartInterval)
	defer tick.Stop()
	for {
		if s.answers(ctx) {
			return nil
		}
		select {
		case <-ctx.Done():
			return capability.Wrap(capability.CodeUnavailable, "setup", "the service was started, and its server did not answer", ctx.Err()).
				With("service_unavailable", "read: journalctl --user -u junctor")
		case <-tick.C:
		}
	}
}

func (s *service) answers(ctx context.Context) bool {
	c, err := s.app.client()
	return err == nil && c.Do(ctx, http.MethodGet, "/api/v1/status", nil, nil) == nil
}

// remove stops the service and removes its unit. A unit that was changed since is a conflict.
func (s *service) remove(ctx context.Context) error {
	own, err := os.ReadFile(s.recorded)
	if errors.Is(err, fs.ErrNotExist) {
		return capability.Errorf(capability.CodeNotFound, "setup", "no service was installed for the home %s by junctor setup", s.home).
			With("service_not_installed", "")
	}
	if err != nil {
		return err
	}
	now, err := os.ReadFile(s.unit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Remove(s.recorded)
	case err != nil:
		return err
	case !bytes.Equal(now, own):
		return capability.Errorf(capability.CodeConflict, "setup", "%s was changed since it was installed", s.unit).
			With("service_exists", "stop and remove it by hand: systemctl --user disable --now junctor")
	}
	if err := s.manager(ctx, "disable", "--now", serviceName); err != nil {
		return err
	}
	if err := errors.Join(os.Remove(s.unit), os.Remove(s.recorded)); err != nil {
		return capability.Wrap(capability.CodeFailed, "setup", s.unit+" cannot be removed", err)
	}
	return s.manager(ctx, "daemon-reload")
}
