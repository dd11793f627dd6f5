package secretstore

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

const linkMark = "@" // begins the file of a link; no name of a secret has it

// Vault is a service with the HTTP API of HashiCorp Vault's key-value engine, version 1 or 2.
type Vault struct {
	URL       string // https, or http to this machine; "": none
	TokenFile string // read again for each request, as an agent renews it
	Namespace string // sent as X-Vault-Namespace; may be ""
}

type cached struct {
	value secret.Value
	until time.Time
}

var (
	envLink   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	vaultLink = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,500}#[A-Za-z0-9_.-]{1,120}$`)
)

// Link makes a secret one whose value is elsewhere and read there each time: env:VARIABLE of the
// server's environment, file:PATH (absolute), or vault:PATH#FIELD. An earlier value or link is
// replaced. The target need not exist. The error is invalid_input.
func (s *Store) Link(name, to string) error {
	const op = "secrets.link"
	if err := checkName(op, name); err != nil {
		return err
	}
	kind, rest, _ := strings.Cut(to, ":")
	switch {
	case len(to) > maxLink:
		kind = ""
	case kind == "env" && envLink.MatchString(rest), kind == "file" && filepath.IsAbs(rest) && !strings.ContainsAny(rest, "\x00\n"):
	case kind == "vault" && vaultLink.MatchString(rest) && path.Clean("/"+rest) == "/"+rest:
		if s.further.Vault.URL == "" {
			return capability.Errorf(capability.CodeInvalidInput, op, "vault.url is not set").
				With("no_vault", "set it, and vault.token_file, and restart the server")
		}
	default:
		kind = ""
	}
	if kind == "" {
		return capability.Errorf(capability.CodeInvalidInput, op,
			"a secret can be linked to env:VARIABLE, file:PATH with an absolute path, or vault:PATH#FIELD").
			With("invalid_link", "")
	}
	if err := s.replace(linkMark+name, to); err != nil {
		return wrap(op, "the link of the secret "+name+" cannot be stored", err)
	}
	if err := s.dir.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return wrap(op, "the earlier value of the secret "+name+" cannot be removed", err)
	}
	return nil
}

// link returns where the value of a secret is; "" for one that is not linked.
func (s *Store) link(name string) string {
	data, err := s.dir.ReadFile(linkMark + name)
	if err != nil || len(data) > maxLink {
		return ""
	}
	return string(data)
}

// follow returns the value that a link names. Errors: not_found, unavailable.
func (s *Store) follow(name, to string) (secret.Value, error) {
	const op = "secrets.get"
	kind, rest, _ := strings.Cut(to, ":")
	gone := func(cause error) error {
		return capability.Wrap(capability.CodeNotFound, op, "the secret "+name+" is linked to "+to+", which has no value", cause).
			With("link_broken", "set it there, or link the secret again: junctor secrets link "+name).Detail("link", to)
	}
	switch kind {
	case "env":
		if value := os.Getenv(rest); value != "" {
			return secret.New(value), nil
		}
		return secret.Value{}, gone(nil)
	case "file":
		value, _, err := ReadFile(rest)
		if err != nil {
			return value, gone(err)
		}
		return value, nil
	}
	s.mu.Lock()
	old, ok := s.values[to]
	s.mu.Unlock()
	if ok && time.Now().Before(old.until) {
		return old.value, nil
	}
	where, field, _ := strings.Cut(rest, "#")
	value, err := s.ask(where, field)
	if errors.Is(err, errNoValue) {
		return secret.Value{}, gone(nil)
	}
	if err != nil {
		return secret.Value{}, capability.Wrap(capability.CodeUnavailable, op, "the secret "+name+" cannot be read at vault.url", err).
			With("vault_unavailable", "see that the service answers, and that the token in vault.token_file may read "+where).Detail("link", to)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil || len(s.values) > 1000 {
		s.values = make(map[string]cached)
	}
	s.values[to] = cached{value, time.Now().Add(vaultTTL)}
	return value, nil
}

var errNoValue = errors.New("no such value")

// ask requests a field. Errors contain no part of the answer.
func (s *Store) ask(where, field string) (secret.Value, error) {
	token, _, err := ReadFile(s.further.Vault.TokenFile)
	if err != nil {
		return secret.Value{}, errors.New("the file of vault.token_file cannot be read")
	}
	ctx, cancel := context.WithTimeout(context.Background(), vaultTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.further.Vault.URL, "/")+"/v1/"+where, nil)
	if err != nil {
		return secret.Value{}, errors.New("the URL cannot be used")
	}
	req.Header.Set("X-Vault-Token", token.Reveal())
	req.Header.Set("X-Vault-Request", "true")
	if s.further.Vault.Namespace != "" {
		req.Header.Set("X-Vault-Namespace", s.further.Vault.Namespace)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return secret.Value{}, errors.New("it cannot be reached, or does not answer")
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return secret.Value{}, errNoValue
	}
	var answer struct {
		Data map[string]json.RawMessage `json:"data"`
	}
	if res.StatusCode != http.StatusOK {
		return secret.Value{}, errors.New("it answered " + res.Status)
	}
	if json.NewDecoder(io.LimitReader(res.Body, maxVault)).Decode(&answer) != nil {
		return secret.Value{}, errors.New("its answer cannot be read")
	}
	fields := answer.Data
	var second map[string]json.RawMessage // version 2 has the fields one level below
	if _, versioned := answer.Data["metadata"]; versioned && json.Unmarshal(answer.Data["data"], &second) == nil {
		fields = second
	}
	var text string
	if json.Unmarshal(fields[field], &text) != nil || text == "" || len(text) > MaxValue {
		return secret.Value{}, errNoValue
	}
	return secret.New(text), nil
}
