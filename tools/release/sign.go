package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/crypto/blake2b"
)

// signatureExt is the extension of a signature file of minisign.
const signatureExt = ".minisig"

// A signer signs files as minisign does: Ed25519 over the BLAKE2b-512 hash of the file.
type signer struct {
	id  []byte // 8 bytes that name the key in signatures
	key ed25519.PrivateKey
}

// signerOf returns the signer of the environment: of the key file that MINISIGN_KEY_FILE
// names, or of its text in MINISIGN_KEY. It returns nil if neither is set.
func signerOf(getenv func(string) string) (*signer, error) {
	text, path := getenv("MINISIGN_KEY"), getenv("MINISIGN_KEY_FILE")
	switch {
	case text == "" && path == "":
		return nil, nil
	case text != "" && path != "":
		return nil, errors.New("both MINISIGN_KEY and MINISIGN_KEY_FILE are set; set one")
	case path != "":
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("MINISIGN_KEY_FILE: %w", err)
		}
		text = string(data)
	}
	s, err := parseKey(text)
	if err != nil {
		return nil, fmt.Errorf("the key of minisign: %w", err)
	}
	return s, nil
}

// The parts of a secret key of minisign, in bytes: the algorithms of the signature, the
// password and the checksum, salt and two limits of the password, key id, key, checksum.
const (
	keyAlgorithms = 6
	keyPassword   = 32 + 8 + 8
	keyID         = 8
	keySize       = keyAlgorithms + keyPassword + keyID + ed25519.PrivateKeySize + blake2b.Size256
)

// parseKey parses a secret key file: a comment, and the key in base64. A key with a password
// is refused, because a release runs unattended.
func parseKey(text string) (*signer, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(lines[len(lines)-1]))
	if err != nil || len(lines) > 2 || len(raw) != keySize || string(raw[:2]) != "Ed" {
		return nil, errors.New("it is not a secret key: expected a comment and a line of base64")
	}
	if !bytes.Equal(raw[2:4], []byte{0, 0}) {
		return nil, errors.New("it has a password; use a copy without one: minisign -C -W")
	}
	rest := raw[keyAlgorithms+keyPassword:]
	id, key, sum := rest[:keyID], rest[keyID:keyID+ed25519.PrivateKeySize], rest[keyID+ed25519.PrivateKeySize:]
	want := blake2b.Sum256(append([]byte("Ed"), rest[:keyID+ed25519.PrivateKeySize]...))
	if string(raw[4:6]) == "B2" && !bytes.Equal(sum, want[:]) && !bytes.Equal(sum, make([]byte, len(sum))) {
		return nil, errors.New("it is damaged: the checksum does not match")
	}
	if !bytes.Equal(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) {
		return nil, errors.New("it is damaged: its two halves do not belong together")
	}
	return &signer{id: id, key: key}, nil
}

// publicKey returns the public key as minisign -P takes it.
func (s *signer) publicKey() string {
	raw := append([]byte("Ed"), s.id...)
	return base64.StdEncoding.EncodeToString(append(raw, s.key.Public().(ed25519.PublicKey)...))
}

// sign returns the signature file of data. The trusted comment is signed as well.
func (s *signer) sign(data []byte, trusted string) []byte {
	hash := blake2b.Sum512(data)
	signature := ed25519.Sign(s.key, hash[:])
	global := ed25519.Sign(s.key, append(bytes.Clone(signature), trusted...))
	raw := append(append([]byte("ED"), s.id...), signature...)
	return fmt.Appendf(nil, "untrusted comment: signature of a junctor release\n%s\ntrusted comment: %s\n%s\n",
		base64.StdEncoding.EncodeToString(raw), trusted, base64.StdEncoding.EncodeToString(global))
}

// signAll signs the named files of dir, each with a file beside it.
func (s *signer) signAll(dir string, names []string, at time.Time) error {
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		signature := s.sign(data, fmt.Sprintf("timestamp:%d\tfile:%s\thashed", at.Unix(), name))
		if err := os.WriteFile(filepath.Join(dir, name+signatureExt), signature, 0o644); err != nil {
			return err
		}
	}
	return nil
}
