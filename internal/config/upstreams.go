package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"time"
)

// Upstreams configures the programs of upstreams.
type Upstreams struct {
	ConnectTimeout time.Duration `koanf:"connect_timeout" doc:"Timeout of connecting to an MCP server, 1s to 10m. The first start with npx, uvx or a container downloads it. For one server: junctor mcp add --connect-timeout."`
	Registries     Registries    `koanf:"registries"`
}

// Registries configures package runners in confined programs, which see no file of a user.
type Registries struct {
	MCP   string `koanf:"mcp" doc:"MCP registry for junctor mcp search and junctor mcp add --registry, without /v0.1: https, or http to this machine."`
	NPM   string `koanf:"npm" doc:"Registry of npm packages for confined programs, such as npx. Empty: npm's own."`
	PyPI  string `koanf:"pypi" doc:"Python package index for confined programs, such as uvx. Empty: the runner's own."`
	Proxy string `koanf:"proxy" doc:"HTTP proxy for confined programs, except with --net HOST."`
	CA    string `koanf:"ca" doc:"File with all authorities (PEM) that confined programs trust. Empty: those of this machine."`
}

func (u Upstreams) validate() error {
	if u.ConnectTimeout < minConnectTimeout || u.ConnectTimeout > maxConnectTimeout {
		return fmt.Errorf("upstreams.connect_timeout: %s is not between %s and %s", u.ConnectTimeout, minConnectTimeout, maxConnectTimeout)
	}
	return u.Registries.validate()
}

func (r Registries) validate() error {
	for name, text := range map[string]string{"npm": r.NPM, "pypi": r.PyPI, "proxy": r.Proxy} {
		u, err := url.Parse(text)
		if text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("upstreams.registries.%s: this is not the address of a server: write https://host/path", name)
		}
		if text != "" && u.User != nil {
			return fmt.Errorf("upstreams.registries.%s: an address holds no user or password", name)
		}
	}
	if u, err := url.Parse(r.MCP); r.MCP != "" && (err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" &&
		(u.Scheme != "http" || !isLoopback(u.Hostname()))) {
		return fmt.Errorf("upstreams.registries.mcp: give an https URL without a user or password; http is for this machine only")
	}
	if r.CA != "" && (!filepath.IsAbs(r.CA) || filepath.Clean(r.CA) != r.CA) {
		return fmt.Errorf("upstreams.registries.ca: %q is not an absolute path", r.CA)
	}
	return nil
}
