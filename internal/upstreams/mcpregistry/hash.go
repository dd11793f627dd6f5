package mcpregistry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

var hashGrammar = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkHash compares the hash that an entry declares with the package that the runner will fetch.
func (c *Client) checkHash(ctx context.Context, f *form) error {
	want := strings.ToLower(f.FileSha256)
	if want == "" {
		return nil
	}
	if !hashGrammar.MatchString(want) {
		return invalid("the hash of a package is not a SHA-256")
	}
	base, key := c.cfg.NPM, "npm"
	if f.kind == pypi {
		base, key = c.cfg.PyPI, "pypi"
	}
	if base = strings.TrimSuffix(base, "/"); base == "" {
		return capability.Errorf(capability.CodeInvalidInput, "registry.plan",
			"the entry declares the hash of its package, and the package cannot be checked without the address of its registry").
			With(ReasonUnsupported, "set upstreams.registries."+key)
	}
	same := false
	var err error
	if f.kind == pypi {
		same, err = c.hasFile(ctx, base, f, want)
	} else {
		same, err = c.hashesTo(ctx, base, f, want)
	}
	if err == nil && !same {
		return capability.Errorf(capability.CodeInvalidInput, "registry.plan",
			"the package %s %s is not the one that the entry describes: its hash differs", f.Identifier, f.Version).
			With("registry_hash", "do not add it; report it to the operator of the registry")
	}
	return err
}

// hasFile reports whether one of the files of a version has the hash, by the index that the runner
// uses, which compares the hash when it fetches the file.
func (c *Client) hasFile(ctx context.Context, base string, f *form, want string) (bool, error) {
	var index struct {
		Files []struct {
			Filename string
			Hashes   map[string]string
		}
	}
	name := separators.ReplaceAllString(strings.ToLower(f.Identifier), "-")
	if err := c.fetch(ctx, base+"/"+url.PathEscape(name)+"/", "application/vnd.pypi.simple.v1+json", &index); err != nil {
		return false, err
	}
	for _, file := range index.Files {
		_, rest, ok := strings.Cut(file.Filename, "-"+f.Version)
		if ok && (strings.HasPrefix(rest, "-") || rest == ".tar.gz" || rest == ".zip") && strings.EqualFold(file.Hashes["sha256"], want) {
			return true, nil
		}
	}
	return false, nil
}

// hashesTo reports whether the archive of a version has the hash.
func (c *Client) hashesTo(ctx context.Context, base string, f *form, want string) (bool, error) {
	var version struct {
		Dist struct{ Tarball string }
	}
	if err := c.fetch(ctx, base+"/"+url.PathEscape(f.Identifier)+"/"+url.PathEscape(f.Version), "application/json", &version); err != nil {
		return false, err
	}
	from, err := url.Parse(version.Dist.Tarball)
	if err != nil || from.Scheme+"://"+from.Host != origin(base) && from.Scheme != "https" {
		return false, invalid("the address of an archive is not https")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return false, invalid("the address of an archive cannot be read")
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return false, capability.Wrap(capability.CodeUnavailable, "registry", "the package "+f.Identifier+" cannot be fetched", err).
			With(ReasonUnreached, "")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, capability.Errorf(capability.CodeUnavailable, "registry", "the package %s cannot be fetched: status %d", f.Identifier,
			resp.StatusCode).With(ReasonUnreached, "")
	}
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(resp.Body, maxPackage+1))
	if n > maxPackage {
		return false, capability.Errorf(capability.CodeTooLarge, "registry", "the package %s has more than %d MiB", f.Identifier, maxPackage>>20)
	}
	if err != nil {
		return false, capability.Wrap(capability.CodeUnavailable, "registry", "the package "+f.Identifier+" cannot be fetched whole", err).
			With(ReasonUnreached, "")
	}
	return hex.EncodeToString(sum.Sum(nil)) == want, nil
}

func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
