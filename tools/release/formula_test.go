package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// archiveSums returns checksums of the four archives that a formula needs.
func archiveSums(p product) map[string]string {
	sums := make(map[string]string)
	for _, system := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
		sum := sha256.Sum256([]byte(system))
		sums[p.name(system+".tar.gz")] = hex.EncodeToString(sum[:])
	}
	return sums
}

func TestFormulaHasTheChecksums(t *testing.T) {
	t.Parallel()
	p := fakeProduct(t)
	sums := archiveSums(p)
	data, err := p.formula(sums)
	if err != nil {
		t.Fatalf("formula() = %v, want no error", err)
	}
	text := string(data)
	for name, sum := range sums {
		want := "      url \"https://github.com/junctor-run/junctor/releases/download/v1.2.3-rc.1/" + name + "\"\n      sha256 \"" + sum + "\"\n"
		if strings.Count(text, want) != 1 {
			t.Errorf("the formula is %s; want it with %s", text, want)
		}
	}
	for _, want := range []string{"class Junctor < Formula\n", "  version \"1.2.3-rc.1\"\n", "  on_macos do\n    on_arm do\n", "  license \"Apache-2.0\"\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the formula is %s; want it with %q", text, want)
		}
	}
	p.downloads = "https://example.org/files/"
	if data, err := p.formula(sums); err != nil || !strings.Contains(string(data), "url \"https://example.org/files/junctor_1.2.3-rc.1_darwin_arm64.tar.gz\"") {
		t.Errorf("formula(downloads) = %s, %v; want archives below the given URL", data, err)
	}
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		t.Log("not run: ruby -c, because ruby is not installed")
		return
	}
	path := filepath.Join(t.TempDir(), formulaName)
	write(t, path, text, 0o644)
	if got := strings.TrimSpace(output(t, ruby, "-c", path)); got != "Syntax OK" {
		t.Errorf("ruby -c = %q, want Syntax OK", got)
	}
}

func TestFormulaNeedsAllArchivesAndHTTPS(t *testing.T) {
	t.Parallel()
	p := fakeProduct(t)
	sums := archiveSums(p)
	delete(sums, p.name("darwin_arm64.tar.gz"))
	if data, err := p.formula(sums); err != nil || data != nil {
		t.Errorf("formula(three archives) = %s, %v; want none", data, err)
	}
	for _, downloads := range []string{"http://example.org", "example.org", "https://example.org/\"#{x}"} {
		p.downloads = downloads
		if data, err := p.formula(archiveSums(p)); err == nil {
			t.Errorf("formula(%q) = %s, want an error", downloads, data)
		}
	}
}

func TestReleaseHasAFormula(t *testing.T) {
	t.Parallel()
	p := fakeProduct(t)
	write(t, filepath.Join(p.out, sumsName), string(formatSums(archiveSums(p))), 0o644)
	if err := run(context.Background(), p, nil); err != nil {
		t.Fatalf("run() = %v, want no error", err)
	}
	sums, err := readSums(p.out)
	if sum := sha256.Sum256(read(t, filepath.Join(p.out, formulaName))); err != nil || sums[formulaName] != hex.EncodeToString(sum[:]) {
		t.Errorf("the sums are %v, %v; want that of the formula", sums, err)
	}
}
