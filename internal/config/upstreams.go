package config

import (
	"fmt"
	"net/url"
	"path/filepath"
)

// Upstreams configures the programs of upstreams.
type Upstreams struct {
	Registries Registries `koanf:"registries"`
}

// Registries configures package runners in confined programs, which see no file of a user.
type Registries struct {
	NPM   string `koanf:"npm" doc:"Address of the npm registry for confined programs of upstreams, such as those started with npx. Empty: npm's own."`
	PyPI  string `koanf:"pypi" doc:"Address of the Python package index for confined programs of upstreams, such as those started with uvx. Empty: the runner's own."`
	Proxy string `koanf:"proxy" doc:"Address of the HTTP proxy that confined programs of upstreams use. Not used with --net HOST."`
	CA    string `koanf:"ca" doc:"File with the certificates (PEM) of all authorities that confined programs of upstreams trust. Empty: those of this machine."`
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
	if r.CA != "" && (!filepath.IsAbs(r.CA) || filepath.Clean(r.CA) != r.CA) {
		return fmt.Errorf("upstreams.registries.ca: %q is not an absolute path", r.CA)
	}
	return nil
}

// Variables returns the variables that package runners read, NAME=VALUE.
func (r Registries) Variables() []string {
	var env []string
	for _, v := range []struct {
		value string
		names []string
	}{
		{r.NPM, []string{"npm_config_registry"}},
		{r.PyPI, []string{"UV_DEFAULT_INDEX", "PIP_INDEX_URL"}},
		{r.Proxy, []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "npm_config_proxy", "npm_config_https_proxy"}},
		{r.CA, []string{"NODE_EXTRA_CA_CERTS", "npm_config_cafile", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"}},
	} {
		for _, name := range v.names {
			if v.value != "" {
				env = append(env, name+"="+v.value)
			}
		}
	}
	if r.Proxy != "" {
		env = append(env, "NODE_USE_ENV_PROXY=1") // Node ignores the others without it
	}
	return env
}
