package main

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the packager
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the packager
)

// Places of the files in a package.
const (
	homeDir     = "/var/lib/junctor"
	programPath = "/usr/bin/junctor"
	unitPath    = "/usr/lib/systemd/system/junctor.service"
	envPath     = "/etc/junctor/junctor.env"
	docDir      = "/usr/share/doc/junctor"
)

//go:embed scripts/*.sh junctor.env
var embedded embed.FS

// execStart matches the program of the unit in the release folder, which is where the
// install script puts it.
var execStart = regexp.MustCompile(`(?m)^ExecStart=\S+`)

// pack returns the package of one architecture in one format, deb or rpm.
func (p product) pack(format, arch string, completions map[string][]byte) ([]byte, error) {
	temp, err := os.MkdirTemp("", "junctor-package-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	contents, err := p.contents(format, arch, temp, completions)
	if err != nil {
		return nil, err
	}
	scripts := make(map[string]string)
	for _, name := range []string{"preinstall", "postinstall", "preremove", "postremove"} {
		data, err := embedded.ReadFile("scripts/" + name + ".sh")
		if err != nil {
			return nil, err
		}
		scripts[name] = filepath.Join(temp, name)
		if err := os.WriteFile(scripts[name], data, 0o755); err != nil {
			return nil, err
		}
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "junctor", Platform: "linux", Arch: arch, Version: p.version, Release: "1",
		Section: "net", Priority: "optional", License: "Apache-2.0", Vendor: "the junctor authors",
		// The format requires an address; the domain is reserved by RFC 2606.
		Maintainer:  "the junctor authors <junctor@example.org>",
		Description: "Capability plane for AI agents\nOne governed path from any agent to tools, devices, extensions and other agents.",
		MTime:       p.at, DisableGlobbing: true,
		Overridables: nfpm.Overridables{
			Contents: contents, Umask: 0o022,
			Depends: map[string][]string{"deb": {"passwd"}, "rpm": {"shadow-utils"}}[format],
			// Certificates of public authorities, and git for workspaces and git.*.
			Recommends: []string{"ca-certificates", "git"},
			Scripts: nfpm.Scripts{
				PreInstall: scripts["preinstall"], PostInstall: scripts["postinstall"],
				PreRemove: scripts["preremove"], PostRemove: scripts["postremove"],
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: "Capability plane for AI agents"},
		},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return nil, err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := packager.Package(info, &buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// contents returns the files of a package. Those that are not in the source are written
// to temp.
func (p product) contents(format, arch, temp string, completions map[string][]byte) (files.Contents, error) {
	unit, err := os.ReadFile(filepath.Join(p.source, "release", "junctor.service"))
	if err != nil {
		return nil, err
	}
	if len(execStart.FindAll(unit, -1)) != 1 {
		return nil, errors.New("junctor.service does not have one ExecStart")
	}
	env, err := embedded.ReadFile("junctor.env")
	if err != nil {
		return nil, err
	}
	c := contents{temp: temp, at: p.at}
	c.data(unitPath, "", execStart.ReplaceAll(unit, []byte("ExecStart="+programPath)), 0o644)
	c.data(envPath, files.TypeConfigNoReplace, env, 0o600)
	c.data("/usr/share/bash-completion/completions/junctor", "", completions["bash"], 0o644)
	c.data("/usr/share/fish/vendor_completions.d/junctor.fish", "", completions["fish"], 0o644)
	zsh := map[string]string{"deb": "vendor-completions", "rpm": "site-functions"}[format]
	c.data("/usr/share/zsh/"+zsh+"/_junctor", "", completions["zsh"], 0o644)
	c.file(programPath, p.binary(arch), 0o755)
	licence := map[string]string{"deb": docDir + "/copyright", "rpm": "/usr/share/licenses/junctor/LICENSE"}[format]
	c.file(licence, filepath.Join(p.source, "LICENSE"), 0o644)
	c.file(docDir+"/THIRD-PARTY-LICENSES.txt", filepath.Join(filepath.Dir(p.binary(arch)), "THIRD-PARTY-LICENSES.txt"), 0o644)
	c.file(docDir+"/README.md", filepath.Join(p.source, "README.md"), 0o644)
	c.file(docDir+"/CHANGELOG.md", filepath.Join(p.source, "CHANGELOG.md"), 0o644)
	c.dir("/etc/junctor", "root", 0o755)
	c.dir(homeDir, "junctor", 0o700)
	return c.list, c.err
}

// contents collects the files of a package with owners, modes and times that do not
// depend on the machine.
type contents struct {
	temp string
	at   time.Time
	list files.Contents
	err  error
}

func (c *contents) add(kind, source, destination, owner string, mode os.FileMode) {
	c.list = append(c.list, &files.Content{
		Source: source, Destination: destination, Type: kind,
		FileInfo: &files.ContentFileInfo{Owner: owner, Group: owner, Mode: mode, MTime: c.at},
	})
}

func (c *contents) file(destination, source string, mode os.FileMode) {
	c.add("", source, destination, "root", mode)
}

func (c *contents) dir(destination, owner string, mode os.FileMode) {
	c.add(files.TypeDir, "", destination, owner, mode)
}

func (c *contents) data(destination, kind string, data []byte, mode os.FileMode) {
	source := filepath.Join(c.temp, fmt.Sprintf("content%d", len(c.list)))
	if err := os.WriteFile(source, data, 0o600); err != nil && c.err == nil {
		c.err = err
	}
	c.add(kind, source, destination, "root", mode)
}
