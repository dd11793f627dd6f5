// Command release makes what is given to others of one commit: static binaries for each
// system, packed with their licences and the installer, their checksums, a bill of
// materials for each, the npm package of the TypeScript SDK, the wheel and the source distribution of the
// Python SDK, and the entry of the changelog. All of it follows from the commit and the Go version: times are
// the commit's, folders are named away, and one binary is built a second time, from another folder, to see
// that it does.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// target is a system that a binary is built for.
type target struct{ os, arch string }

// targets are built in this order. On Windows there is the command line alone; see
// internal/platform/hostfs.
func targets() []target {
	return []target{
		{"linux", "amd64"},
		{"linux", "arm64"},
		{"darwin", "amd64"},
		{"darwin", "arm64"},
		{"windows", "amd64"},
		{"windows", "arm64"},
	}
}

func (t target) String() string { return t.os + "_" + t.arch }

func (t target) program() string {
	if t.os == "windows" {
		return "junctor.exe"
	}
	return "junctor"
}

func main() {
	version := flag.String("version", "", "version to release, such as 1.2.3")
	out := flag.String("out", "dist", "folder for what is made; what a release left there before goes")
	only := flag.String("only", "", "systems to build for, such as linux_amd64,darwin_arm64 (default all)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, *version, *out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// maker is one release under way.
type maker struct {
	version, commit string
	at              time.Time // the commit's
	source          string    // the commit, unpacked
	out             string
	sums            map[string]string // file below out → SHA-256
}

func release(ctx context.Context, version, out, only string) error {
	list, err := chosen(only)
	if err != nil {
		return err
	}
	if !validVersion(version) {
		return fmt.Errorf("the version %q is not of the form 1.2.3 or 1.2.3-rc.1", version)
	}
	m := &maker{version: version, out: out, sums: map[string]string{}}
	temp, err := os.MkdirTemp("", "junctor-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := m.export(ctx, temp); err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(m.source, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	notes, err := entry(string(changelog), version)
	if err != nil {
		return err
	}
	if err := emptied(out); err != nil {
		return err
	}
	if err := m.write("RELEASE_NOTES.md", []byte(notes)); err != nil {
		return err
	}
	for i, t := range list {
		start := time.Now()
		if err := m.make(ctx, t, temp, i == 0); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
		fmt.Printf("%-14s %s\n", t, time.Since(start).Round(time.Second/10))
	}
	if err := m.makeTypeScript(ctx); err != nil {
		return err
	}
	if err := m.writePython(); err != nil {
		return err
	}
	installer, err := os.ReadFile(filepath.Join(m.source, "release", "install.sh"))
	if err != nil {
		return err
	}
	if err := m.write("install.sh", installer); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(out, "install.sh"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "SHA256SUMS"), sumsFile(m.sums), 0o644); err != nil {
		return err
	}
	return m.packages(ctx, temp)
}

// packages makes the packages of systems from the binaries in temp. The program that makes
// them is a module of its own, because of its dependencies; it adds to SHA256SUMS.
func (m *maker) packages(ctx context.Context, temp string) error {
	out, err := filepath.Abs(m.out)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "-C", "tools/release", "run", "-buildvcs=false", ".",
		"-version", m.version, "-time", strconv.FormatInt(m.at.Unix(), 10), "-source", m.source, "-binaries", temp, "-out", out)
	cmd.Dir = m.source
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func chosen(only string) ([]target, error) {
	if only == "" {
		return targets(), nil
	}
	var list []target
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(targets(), func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("%s is not a system that is built for; there are %v", name, targets())
		}
		list = append(list, targets()[i])
	}
	return list, nil
}

// export unpacks the commit that is checked out, so that nothing else gets in.
func (m *maker) export(ctx context.Context, temp string) error {
	said, err := output(ctx, "", "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	hash, seconds, _ := strings.Cut(strings.TrimSpace(said), " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || len(hash) < 12 {
		return fmt.Errorf("git says %q about the commit", said)
	}
	m.commit, m.at = hash[:12], time.Unix(unix, 0).UTC()
	if changed, err := output(ctx, "", "git", "status", "--porcelain"); err != nil || changed != "" {
		fmt.Fprintf(os.Stderr, "release: what is not committed is not in it; this is commit %s\n", m.commit)
	}
	m.source = filepath.Join(temp, "source")
	return m.unpackCommit(ctx, m.source)
}

// unpackCommit unpacks the commit into dir and makes the page of the web console in it.
func (m *maker) unpackCommit(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	tarball := dir + ".tar"
	defer os.Remove(tarball)
	if _, err := output(ctx, "", "git", "archive", "--format=tar", "--output="+tarball, m.commit); err != nil {
		return err
	}
	if _, err := output(ctx, "", "tar", "-xf", tarball, "-C", dir); err != nil {
		return err
	}
	return makeConsole(ctx, dir)
}

// make builds and packs one target. The binary is in a temporary folder until it is packed.
func (m *maker) make(ctx context.Context, t target, temp string, again bool) error {
	binary := filepath.Join(temp, t.String(), t.program())
	if err := m.build(ctx, t, m.source, binary); err != nil {
		return err
	}
	if again {
		if err := m.buildAgain(ctx, t, temp, binary); err != nil {
			return err
		}
	}
	contents, err := readContents(binary)
	if err != nil {
		return err
	}
	bill, err := contents.bill(m.version, m.commit, m.at, t)
	if err != nil {
		return err
	}
	base := "junctor_" + m.version + "_" + t.String()
	if err := m.write(base+".cdx.json", bill); err != nil {
		return err
	}
	licences, err := m.licences(ctx, t, contents)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(binary), "THIRD-PARTY-LICENSES.txt"), licences, 0o644); err != nil {
		return err
	}
	files, err := m.files(t, binary, licences)
	if err != nil {
		return err
	}
	name, data, err := pack(base, t, files, m.at)
	if err != nil {
		return err
	}
	return m.write(name, data)
}

// build is what make build does, for a target and from a folder.
func (m *maker) build(ctx context.Context, t target, dir, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.buildVersion="+m.version+" -X main.buildCommit="+m.commit, "-o", binary, "./cmd/junctor")
	cmd.Dir = dir
	// What else of the environment reaches into a binary is set to what everybody has.
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0",
		"GOEXPERIMENT=", "GOFIPS140=off")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// buildAgain builds from another folder and compares: the same commit is the same bytes.
func (m *maker) buildAgain(ctx context.Context, t target, temp, first string) error {
	dir := filepath.Join(temp, "again", "elsewhere")
	if err := m.unpackCommit(ctx, dir); err != nil {
		return err
	}
	second := filepath.Join(temp, "again", t.program())
	if err := m.build(ctx, t, dir, second); err != nil {
		return err
	}
	a, err := sumOf(first)
	if err != nil {
		return err
	}
	b, err := sumOf(second)
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("built twice, it is not the same: %s and %s", a, b)
	}
	fmt.Printf("%-14s the same when built again from another folder, %s, %s\n", t, runtime.Version(), a)
	return os.RemoveAll(filepath.Join(temp, "again"))
}

func sumOf(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return sum(data), nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// sumsFile is what sha256sum -c reads, in the order of names.
func sumsFile(sums map[string]string) []byte {
	var names []string
	for name := range sums {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "%s  %s\n", sums[name], name)
	}
	return []byte(b.String())
}

func (m *maker) write(name string, data []byte) error {
	m.sums[name] = sum(data)
	return os.WriteFile(filepath.Join(m.out, name), data, 0o644)
}

// emptied makes the folder, and removes what a release before has left in it: nothing
// else, because a user may have named a folder of theirs.
func emptied(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range left {
		name := strings.TrimSuffix(f.Name(), ".minisig")
		if strings.HasPrefix(name, "junctor_") || isPythonPackage(name) ||
			slices.Contains([]string{"SHA256SUMS", "RELEASE_NOTES.md", "install.sh", "junctor.rb"}, name) {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return string(out), nil
}
