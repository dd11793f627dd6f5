package config

import (
	"fmt"
	"net/url"
	"path/filepath"
)

// Vault names the service from which secrets that are linked to vault: come.
type Vault struct {
	URL       string `koanf:"url" doc:"URL of a HashiCorp Vault API (key-value version 1 or 2), without /v1, for secrets linked with junctor secrets link NAME vault:PATH#FIELD."`
	TokenFile string `koanf:"token_file" doc:"Absolute path of the file with the token for vault.url, read for each request."`
	Namespace string `koanf:"namespace" doc:"Namespace for vault.url (X-Vault-Namespace)."`
}

func (v Vault) validate() error {
	if v.URL == "" {
		if v.TokenFile != "" || v.Namespace != "" {
			return fmt.Errorf("vault: token_file and namespace are for vault.url, which is empty")
		}
		return nil
	}
	u, err := url.Parse(v.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("vault.url: give an http or https URL without a user, password or query")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("vault.url: secrets would cross the network unencrypted; use an https URL")
	case !filepath.IsAbs(v.TokenFile):
		return fmt.Errorf("vault.token_file: give the absolute path of the file with the token")
	}
	return nil
}
