package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/blake2b"
)

// testKey returns the secret key in testdata, which minisign made for these tests.
func testKey(t *testing.T) *signer {
	t.Helper()
	s, err := signerOf(func(name string) string {
		return map[string]string{"MINISIGN_KEY_FILE": filepath.Join("testdata", "test-only.key")}[name]
	})
	if err != nil || s == nil {
		t.Fatalf("signerOf(test-only.key) = %v, %v; want a signer", s, err)
	}
	return s
}

// TestSignatureIsThatOfMinisign compares with a signature of the same file by the program:
// Ed25519 signs the same text the same way each time.
func TestSignatureIsThatOfMinisign(t *testing.T) {
	t.Parallel()
	s := testKey(t)
	got := strings.Split(string(s.sign(read(t, "testdata/vec.txt"), "made for a test")), "\n")
	want := strings.Split(string(read(t, "testdata/vec.txt.minisig")), "\n")
	if len(got) != len(want) {
		t.Fatalf("the signature has %d lines, want %d", len(got), len(want))
	}
	for i := 1; i < len(want); i++ { // the first line is a comment that is not signed
		if got[i] != want[i] {
			t.Errorf("line %d is %q, want %q", i+1, got[i], want[i])
		}
	}
	public := strings.Split(string(read(t, "testdata/test-only.pub")), "\n")[1]
	if s.publicKey() != public {
		t.Errorf("publicKey() = %s, want %s", s.publicKey(), public)
	}
}

// verify checks a signature file by the format's description, without the code that signs.
func verify(public string, data, signature []byte) bool {
	key, err := base64.StdEncoding.DecodeString(public)
	lines := strings.Split(string(signature), "\n")
	if err != nil || len(key) != 42 || len(lines) != 5 || !strings.HasPrefix(lines[0], "untrusted comment: ") {
		return false
	}
	first, err1 := base64.StdEncoding.DecodeString(lines[1])
	global, err2 := base64.StdEncoding.DecodeString(lines[3])
	comment, ok := strings.CutPrefix(lines[2], "trusted comment: ")
	if err1 != nil || err2 != nil || !ok || len(first) != 74 || string(first[:2]) != "ED" || !bytes.Equal(first[2:10], key[2:10]) {
		return false
	}
	hash := blake2b.Sum512(data)
	return ed25519.Verify(key[10:], hash[:], first[10:]) && ed25519.Verify(key[10:], append(bytes.Clone(first[10:]), comment...), global)
}

func TestReleaseIsSigned(t *testing.T) {
	t.Parallel()
	p, s := fakeProduct(t), testKey(t)
	write(t, filepath.Join(p.out, "install.sh"), "x", 0o644)
	write(t, filepath.Join(p.out, sumsName), "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881  install.sh\n", 0o644)
	if err := run(context.Background(), p, s); err != nil {
		t.Fatalf("run() = %v, want no error", err)
	}
	sums, err := readSums(p.out)
	if err != nil {
		t.Fatalf("readSums() = %v, want no error", err)
	}
	minisign, missing := exec.LookPath("minisign")
	if missing != nil {
		t.Log("not run: minisign, which is not installed")
	}
	sums[sumsName] = ""
	for name := range sums {
		path := filepath.Join(p.out, name)
		data, signature := read(t, path), read(t, path+signatureExt)
		if !verify(s.publicKey(), data, signature) {
			t.Errorf("the signature of %s does not verify, want a valid one: %s", name, signature)
		}
		if verify(s.publicKey(), append(data, 'x'), signature) {
			t.Errorf("the signature of %s verifies another file, want it refused", name)
		}
		if changed := bytes.Replace(signature, []byte("file:"), []byte("file:x"), 1); verify(s.publicKey(), data, changed) {
			t.Errorf("the signature of %s verifies with another comment, want it refused", name)
		}
		if missing == nil {
			output(t, minisign, "-V", "-m", path, "-P", s.publicKey())
		}
	}
	if len(sums) < 6 {
		t.Errorf("%d files are signed, want at least 6", len(sums))
	}
}

func TestKeysThatCannotSignAreRefused(t *testing.T) {
	t.Parallel()
	good := string(read(t, "testdata/test-only.key"))
	line := strings.Split(good, "\n")[1]
	raw, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		t.Fatalf("decode the key: %v; want base64", err)
	}
	change := func(at int, with byte) string {
		c := bytes.Clone(raw)
		c[at] ^= with
		return base64.StdEncoding.EncodeToString(c)
	}
	for name, tt := range map[string]struct{ env, want string }{
		"a public key":      {string(read(t, "testdata/test-only.pub")), "not a secret key"},
		"other text":        {"x", "not a secret key"},
		"a password":        {change(2, 'S'), "password"},
		"a changed key":     {change(100, 1), "damaged"},
		"a changed half":    {change(64, 1), "damaged"},
		"another algorithm": {change(0, 1), "not a secret key"},
	} {
		_, err := signerOf(func(key string) string { return map[string]string{"MINISIGN_KEY": tt.env}[key] })
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(tt.env) > 20 && strings.Contains(err.Error(), tt.env[:20]) {
			t.Errorf("%s: signerOf() = %v, want an error with %q and without the key", name, err, tt.want)
		}
	}
	for _, env := range []map[string]string{{"MINISIGN_KEY": good, "MINISIGN_KEY_FILE": "x"}, {"MINISIGN_KEY_FILE": "testdata/absent"}} {
		if s, err := signerOf(func(key string) string { return env[key] }); err == nil {
			t.Errorf("signerOf() = %v, want an error", s)
		}
	}
	if s, err := signerOf(func(string) string { return "" }); s != nil || err != nil {
		t.Errorf("signerOf(without a key) = %v, %v; want neither a signer nor an error", s, err)
	}
}
