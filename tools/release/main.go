// Command release makes the packages of systems out of the binaries that the program in
// the release folder of the repository has built, and adds their checksums to SHA256SUMS.
// The same inputs give the same bytes: each time in a package is that of the commit.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// product holds the inputs of a release.
type product struct {
	version   string
	at        time.Time // of the commit
	source    string    // the source tree of the commit
	binaries  string    // DIR/linux_amd64/junctor, with THIRD-PARTY-LICENSES.txt beside it
	out       string
	downloads string // URL that the archives are below, or ""
}

func main() {
	var p product
	flag.StringVar(&p.version, "version", "", "version to release, such as 1.2.3")
	flag.StringVar(&p.source, "source", "", "folder of the commit's source")
	flag.StringVar(&p.binaries, "binaries", "", "folder of the binaries, one folder for each system")
	flag.StringVar(&p.out, "out", "", "folder that is written to; it holds SHA256SUMS")
	p.downloads = os.Getenv("DOWNLOAD_URL")
	seconds := flag.Int64("time", 0, "time of the commit in seconds since 1970")
	flag.Parse()
	p.at = time.Unix(*seconds, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sign, err := signerOf(os.Getenv)
	if err == nil {
		err = run(ctx, p, sign)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run makes everything and updates SHA256SUMS. If sign is not nil, all files of the release are
// signed.
func run(ctx context.Context, p product, sign *signer) error {
	if p.version == "" || p.source == "" || p.binaries == "" || p.out == "" {
		return errors.New("-version, -source, -binaries and -out are required")
	}
	var err error
	if p.binaries, err = filepath.Abs(p.binaries); err != nil {
		return err
	}
	sums, err := readSums(p.out)
	if err != nil {
		return err
	}
	made, err := p.make(ctx)
	if err != nil {
		return err
	}
	formula, err := p.formula(sums)
	if err != nil {
		return err
	}
	if formula != nil {
		made[formulaName] = formula
	}
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if err := os.WriteFile(filepath.Join(p.out, name), made[name], 0o644); err != nil {
			return err
		}
		sum := sha256.Sum256(made[name])
		sums[name] = hex.EncodeToString(sum[:])
	}
	if err := os.WriteFile(filepath.Join(p.out, sumsName), formatSums(sums), 0o644); err != nil || sign == nil {
		return err
	}
	fmt.Printf("%-14s with %s\n", "signed", sign.publicKey())
	return sign.signAll(p.out, append(slices.Sorted(maps.Keys(sums)), sumsName), p.at)
}

// make returns the files to add to a release, by name.
func (p product) make(ctx context.Context) (map[string][]byte, error) {
	made := make(map[string][]byte)
	archs := p.archs()
	if len(archs) == 0 { // Linux is not among the systems of this release
		return made, nil
	}
	start := time.Now()
	completions, err := p.completions(ctx)
	if err != nil {
		return nil, err
	}
	for _, arch := range archs {
		for _, format := range []string{"deb", "rpm"} {
			data, err := p.pack(format, arch, completions)
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", format, arch, err)
			}
			made[p.name("linux_"+arch+"."+format)] = data
		}
	}
	report("packages", start)
	start = time.Now()
	if made[p.name("oci.tar")], err = p.image(); err != nil {
		return nil, err
	}
	report("image", start)
	return made, nil
}

// archs returns the architectures of which a Linux binary was built.
func (p product) archs() (list []string) {
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := os.Stat(p.binary(arch)); err == nil {
			list = append(list, arch)
		}
	}
	return list
}

func (p product) name(suffix string) string { return "junctor_" + p.version + "_" + suffix }

func (p product) binary(arch string) string {
	return filepath.Join(p.binaries, "linux_"+arch, "junctor")
}

// completions returns the completion scripts that the program prints, by shell. If no binary
// is for this machine, the program is built for it.
func (p product) completions(ctx context.Context) (map[string][]byte, error) {
	scripts := make(map[string][]byte)
	program := []string{"go", "run", "-buildvcs=false", "./cmd/junctor"}
	if runtime.GOOS == "linux" && slices.Contains(p.archs(), runtime.GOARCH) {
		program = []string{p.binary(runtime.GOARCH)}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		cmd := exec.CommandContext(ctx, program[0], append(slices.Clone(program[1:]), "completion", shell)...)
		cmd.Dir = p.source
		var failure bytes.Buffer
		cmd.Stderr = &failure
		script, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("completions of %s: %w: %s", shell, err, failure.String())
		}
		scripts[shell] = script
	}
	return scripts, nil
}

const sumsName = "SHA256SUMS"

// readSums returns the checksums in the folder's SHA256SUMS, by file name.
func readSums(dir string) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string)
	for line := range strings.Lines(string(data)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not a checksum and a name", sumsName, line)
		}
		sums[name] = sum
	}
	return sums, nil
}

// formatSums returns the input of sha256sum -c, in the order of names.
func formatSums(sums map[string]string) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&b, "%s  %s\n", sums[name], name)
	}
	return b.Bytes()
}

func report(what string, start time.Time) {
	fmt.Printf("%-14s %s\n", what, time.Since(start).Round(time.Second/10))
}
