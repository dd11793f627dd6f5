package secret_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/secret"
)

// The samples are put together here, so that no scanner takes this file for a leak.
func samples() map[string]string {
	r := func(n int) string { return strings.Repeat("aB3", n)[:n] }
	return map[string]string{
		"gh" + "p_" + r(36):                    "github_token",
		"github" + "_pat_" + r(60):             "github_token",
		"gl" + "pat-" + r(20):                  "gitlab_token",
		"AT" + "BB" + r(32):                    "bitbucket_token",
		"AK" + "IA" + "ABCDEFGH12345678":       "aws_access_key",
		"xo" + "xb-" + "1234567890-abc":        "slack_token",
		"sk" + "-proj-" + r(40):                "model_api_key",
		"sk" + "-ant-api03-" + r(40):           "model_api_key",
		"AI" + "za" + r(35):                    "google_api_key",
		"GOC" + "SPX-" + r(28):                 "google_oauth_secret",
		"np" + "m_" + r(36):                    "npm_token",
		"py" + "pi-" + r(60):                   "pypi_token",
		"sk" + "_live_" + r(24):                "stripe_key",
		"-----BEGIN RSA" + " PRIVATE KEY-----": "private_key",
		secret.NewToken('a'):                   "junctor_token",
	}
}

func TestShapesOfWellKnownCredentialsAreFound(t *testing.T) {
	t.Parallel()
	for text, kind := range samples() {
		line := "key = \"" + text + "\" # rest"
		got := secret.FindTokens(line)
		if len(got) != 1 || got[0].Kind != kind || line[got[0].Start:got[0].End] != text {
			t.Errorf("%s: %+v; want len(got) = 1, got[0].Kind = %v, line[got[0].Start:got[0].End] = %v", kind, got, kind, text)
		}
		masked := secret.MaskTokens(line)
		if strings.Contains(masked, text) || !strings.HasPrefix(masked, "key = \"•••") {
			t.Errorf(`%s: masked as %q; want masked without %v, masked beginning with "key = \"•••"`, kind, masked, text)
		}
		if kind != "private_key" && !strings.HasSuffix(masked, "\" # rest") {
			t.Errorf(`%s: masked as %q; want not (kind != "private_key" && !strings.HasSuffix(masked, "\" # rest"))`, kind, masked)
		}
	}
}

func TestOrdinaryTextIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "ghp_short", "risk-of-a-very-long-hyphenated-word", "task-agents-are-here-to-stay-sk-abc", "sk-a-very-long-hyphenated-identifier",
		"AKIA" + "IOSFODNN7" + "EXAMPLE", "jct_ is our prefix", "-----BEGIN CERTIFICATE-----", "npm_config_registry_and_all_that_is_long",
	} {
		if got := secret.FindTokens(text); len(got) != 0 || secret.MaskTokens(text) != text {
			t.Errorf("%q: %+v; want len(got) = 0, secret.MaskTokens(text) = %v", text, got, text)
		}
	}
}

func TestAPrivateKeyIsMaskedToItsEnd(t *testing.T) {
	t.Parallel()
	const begin, end = "-----BEGIN " + "PRIVATE KEY-----", "-----END PRIVATE KEY-----"
	if got := secret.MaskTokens("a\n" + begin + "\nbody\n" + end + "\nz"); got != "a\n•••\nz" {
		t.Errorf(`%q; want got = "a\n•••\nz"`, got)
	}
	if got := secret.MaskTokens("a " + begin + "\nbody"); got != "a •••" {
		t.Errorf(`%q; want got = "a •••"`, got)
	}
}

func FuzzMaskTokens(f *testing.F) {
	for text := range samples() {
		f.Add("x " + text + text + " y")
	}
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		for _, tok := range secret.FindTokens(text) {
			if tok.Start < last || tok.End <= tok.Start || tok.End > len(text) {
				t.Fatalf("%+v in %d bytes after %d; want tok.Start at least %v, tok.End more than %v, tok.End at most %v",
					tok, len(text), last, last, tok.Start, len(text))
			}
			last = tok.End
		}
		if last > 0 && secret.MaskTokens(text) == text {
			t.Error("something was found and nothing masked; want not (last > 0 && secret.MaskTokens(text) == text)")
		}
	})
}
