package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// readSkill returns a payload: from standard input for "-", from a file, or packed from a folder.
func (a *app) readSkill(path string) (json.RawMessage, error) {
	bad := func(err error) error {
		return capability.Wrap(capability.CodeInvalidInput, "", fmt.Sprintf("%s is not a skill", path), err).With("",
			"give a folder with a skill.md, or the file that junctor skill pack wrote")
	}
	if path == "-" {
		return a.jsonInput("the skill", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, capability.Wrap(capability.CodeNotFound, "", path+" does not exist", err).With("",
			"give a folder with a skill.md, or the file that junctor skill pack wrote")
	}
	if !info.IsDir() {
		file, err := os.Open(path)
		if err != nil {
			return nil, bad(err)
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxInput+1))
		if err == nil && len(data) > maxInput {
			return nil, capability.Errorf(capability.CodeTooLarge, "", "%s is larger than %d bytes", path, maxInput)
		}
		if err != nil {
			return nil, bad(err)
		}
		if !json.Valid(data) {
			return nil, bad(nil)
		}
		return data, nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, bad(err)
	}
	defer root.Close()
	raw, warnings, err := readSkillDir(root.FS(), time.Now())
	for _, w := range warnings {
		fmt.Fprintf(a.stderr, "junctor: %s\n", plainText(w))
	}
	return raw, err
}

// checkedSkill returns a payload like readSkill, and fails if it is not valid.
func (a *app) checkedSkill(path string) (json.RawMessage, *payload.Payload, error) {
	raw, err := a.readSkill(path)
	if err != nil {
		return nil, nil, err
	}
	limits := cmp.DefaultLimits()
	p, err := payload.Decode(raw, limits.Payload)
	if err == nil {
		_, err = p.Sources(limits)
	}
	return raw, p, err
}

// writeSkill prints a payload, or writes it to a new file. It fails if the file exists.
func (a *app) writeSkill(out string, raw json.RawMessage) error {
	if out == "" {
		return a.printJSON(raw)
	}
	file, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return capability.Wrap(capability.CodeConflict, "", out+" cannot be written, or is there already", err)
	}
	_, err = file.Write(append(raw, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(out)
		return capability.Wrap(capability.CodeFailed, "", out+" cannot be written", err)
	}
	if a.json {
		return a.printObject(map[string]any{"file": out, "bytes": len(raw) + 1})
	}
	return nil
}

func (a *app) skillPackCommand() *cobra.Command {
	var out string
	c := &cobra.Command{
		Use: "pack DIR", Short: "Pack a folder (skill.md and perhaps a file of code) into a skill", Args: cobra.ExactArgs(1),
		Example: `  junctor skill pack ./camera-pack --out camera-pack.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			raw, p, err := a.checkedSkill(args[0])
			if err != nil {
				return err
			}
			if out != "" && !a.json {
				digest, err := payload.Digest(raw)
				if err != nil {
					return err
				}
				fmt.Fprintf(a.stderr, "%s: %d capabilities, sha256 %s\n", plainText(p.SkillName), len(p.Capabilities), digest)
			}
			return a.writeSkill(out, raw)
		},
	}
	c.Flags().StringVarP(&out, "out", "o", "", "`FILE` file to write, which must not exist yet (default standard output)")
	alsoSpelled(c, "output", "out")
	return c
}

func (a *app) skillSignCommand() *cobra.Command {
	var out, keyFile, keyID string
	c := &cobra.Command{
		Use: "sign FILE|DIR", Short: "Sign a skill with an Ed25519 key", Args: cobra.ExactArgs(1),
		Long: `Sign a skill with an Ed25519 key, in PEM (PKCS #8), as made by
openssl genpkey -algorithm ed25519. Devices that know the key by its id show who
signed what they are asked to install.`,
		Example: `  junctor skill sign camera-pack.json --key key.pem --key-id workshop --out signed.json`,
		RunE: func(_ *cobra.Command, args []string) error {
			raw, _, err := a.checkedSkill(args[0])
			if err != nil {
				return err
			}
			key, err := signingKey(keyFile)
			if err != nil {
				return err
			}
			signed, err := payload.Sign(raw, keyID, key)
			if err != nil {
				return err
			}
			return a.writeSkill(out, signed)
		},
	}
	c.Flags().StringVar(&keyFile, "key", "", "`FILE` file with the private key (PEM)")
	c.Flags().StringVar(&keyID, "key-id", "", "`ID` id that devices know the key by")
	c.Flags().StringVarP(&out, "out", "o", "", "`FILE` file to write, which must not exist yet (default standard output)")
	alsoSpelled(c, "output", "out")
	_ = c.MarkFlagRequired("key")
	_ = c.MarkFlagRequired("key-id")
	return c
}

func signingKey(path string) (ed25519.PrivateKey, error) {
	bad := func(err error) error {
		return capability.Wrap(capability.CodeInvalidInput, "", path+" holds no Ed25519 private key in PEM (PKCS #8)", err).
			With("", "make one with: openssl genpkey -algorithm ed25519 -out key.pem")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, bad(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, bad(nil)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, bad(err)
	}
	return key, nil
}
