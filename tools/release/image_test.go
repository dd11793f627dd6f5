package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The parts of the OCI image specification that the tests read. They are declared here, so
// that the layout is not read with the library that wrote it.
type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations"`
	Platform    *struct {
		OS           string `json:"os"`
		Architecture string `json:"architecture"`
	} `json:"platform"`
}

type ociManifest struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType"`
	Manifests     []ociDescriptor `json:"manifests"`
	Config        ociDescriptor   `json:"config"`
	Layers        []ociDescriptor `json:"layers"`
}

type ociConfig struct {
	OS           string `json:"os"`
	Architecture string `json:"architecture"`
	Created      string `json:"created"`
	Config       struct {
		User       string
		Env        []string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
		Volumes    map[string]struct{}
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// ociLayout is an unpacked layout of which each blob that was read has been compared with
// its descriptor.
type ociLayout struct {
	t     *testing.T
	files map[string][]byte
	used  map[string]bool
}

func openLayout(t *testing.T, data []byte) *ociLayout {
	t.Helper()
	l := &ociLayout{t: t, files: make(map[string][]byte), used: make(map[string]bool)}
	for _, f := range tarEntries(t, data) {
		if f.header.Typeflag == tar.TypeReg {
			l.files[f.header.Name] = f.data
		}
		if !f.header.ModTime.Equal(commitTime) {
			t.Errorf("%s is of %s, want the time of the commit, %s", f.header.Name, f.header.ModTime, commitTime)
		}
	}
	return l
}

func (l *ociLayout) blob(d ociDescriptor) []byte {
	l.t.Helper()
	name := "blobs/" + strings.Replace(d.Digest, ":", "/", 1)
	data, ok := l.files[name]
	if !ok || int64(len(data)) != d.Size || digestOf(data) != d.Digest {
		l.t.Fatalf("%s: found %v, %d bytes, %s; want %d bytes, %s", name, ok, len(data), digestOf(data), d.Size, d.Digest)
	}
	l.used[name] = true
	return data
}

func (l *ociLayout) decode(data []byte, into any) {
	l.t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		l.t.Fatalf("decode %s: %v; want no error", data, err)
	}
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

type tarEntry struct {
	header *tar.Header
	data   []byte
}

func tarEntries(t *testing.T, data []byte) (list []tarEntry) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("read the tar file: %v; want no error", err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatalf("read %s: %v; want no error", h.Name, err)
		}
		list = append(list, tarEntry{h, text})
	}
}

// images checks the layout of an image and returns the manifest and configuration of each
// architecture.
func (l *ociLayout) images() (manifests map[string]ociManifest, configs map[string]ociConfig) {
	l.t.Helper()
	var marker map[string]string
	l.decode(l.files["oci-layout"], &marker)
	if marker["imageLayoutVersion"] != "1.0.0" {
		l.t.Errorf("oci-layout is %v, want imageLayoutVersion 1.0.0", marker)
	}
	var top, index ociManifest
	l.decode(l.files["index.json"], &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] == "" {
		l.t.Fatalf("index.json is %+v, want one named manifest", top)
	}
	l.decode(l.blob(top.Manifests[0]), &index)
	if index.SchemaVersion != 2 || index.MediaType != "application/vnd.oci.image.index.v1+json" {
		l.t.Errorf("the index is %+v, want an OCI index of version 2", index)
	}
	manifests, configs = make(map[string]ociManifest), make(map[string]ociConfig)
	for _, d := range index.Manifests {
		var m ociManifest
		var c ociConfig
		l.decode(l.blob(d), &m)
		l.decode(l.blob(m.Config), &c)
		if m.MediaType != "application/vnd.oci.image.manifest.v1+json" || m.Config.MediaType != "application/vnd.oci.image.config.v1+json" {
			l.t.Errorf("media types are %s and %s, want those of OCI", m.MediaType, m.Config.MediaType)
		}
		if d.Platform == nil || d.Platform.OS != c.OS || d.Platform.Architecture != c.Architecture || c.OS != "linux" {
			l.t.Fatalf("platform %+v with the configuration of %s %s, want the same of linux", d.Platform, c.OS, c.Architecture)
		}
		if len(c.RootFS.DiffIDs) != len(m.Layers) {
			l.t.Errorf("%d digests of %d layers, want the same number", len(c.RootFS.DiffIDs), len(m.Layers))
		}
		manifests[c.Architecture], configs[c.Architecture] = m, c
	}
	return manifests, configs
}

// layers returns the files of an image, whose layers have the digests in its configuration.
func (l *ociLayout) layers(m ociManifest, c ociConfig) map[string]tarEntry {
	l.t.Helper()
	all := make(map[string]tarEntry)
	for i, d := range m.Layers {
		if d.MediaType != "application/vnd.oci.image.layer.v1.tar+gzip" {
			l.t.Errorf("layer %d is %s, want application/vnd.oci.image.layer.v1.tar+gzip", i, d.MediaType)
		}
		z, err := gzip.NewReader(bytes.NewReader(l.blob(d)))
		if err != nil {
			l.t.Fatalf("layer %d: %v; want gzip", i, err)
		}
		raw, err := io.ReadAll(z)
		if err != nil || digestOf(raw) != c.RootFS.DiffIDs[i] {
			l.t.Errorf("layer %d unpacked is %s, %v; want %s", i, digestOf(raw), err, c.RootFS.DiffIDs[i])
		}
		for _, f := range tarEntries(l.t, raw) {
			all["/"+strings.TrimSuffix(f.header.Name, "/")] = f
		}
	}
	return all
}

func TestImageIsAValidLayoutAndRuns(t *testing.T) {
	t.Parallel()
	p := newProduct(t)
	data, err := p.image()
	if err != nil {
		t.Fatalf("image() = %v, want no error", err)
	}
	l := openLayout(t, data)
	manifests, configs := l.images()
	m, c := manifests[runtime.GOARCH], configs[runtime.GOARCH]
	if len(manifests) != 1 || len(m.Layers) != 2 {
		t.Fatalf("the layout has %v, want one image with two layers", manifests)
	}
	files := l.layers(m, c)

	root := t.TempDir()
	for path, f := range files {
		if f.header.Typeflag == tar.TypeReg {
			write(t, filepath.Join(root, path), string(f.data), os.FileMode(f.header.Mode))
		}
	}
	if got := output(t, filepath.Join(root, programPath), "version"); !strings.HasPrefix(got, "junctor 1.2.3 0123456789ab") {
		t.Errorf("version of the program in the layer is %q, want junctor 1.2.3 0123456789ab", got)
	}
	for name := range l.files {
		if strings.HasPrefix(name, "blobs/") && !l.used[name] {
			t.Errorf("%s belongs to no manifest, want only blobs that are used", name)
		}
	}
}

func TestImageOfBothArchitecturesRunsAsAUser(t *testing.T) {
	t.Parallel()
	data, err := fakeProduct(t).image()
	if err != nil {
		t.Fatalf("image() = %v, want no error", err)
	}
	l := openLayout(t, data)
	manifests, configs := l.images()
	if len(manifests) != 2 {
		t.Fatalf("the index has %d images, want amd64 and arm64", len(manifests))
	}
	for arch, m := range manifests {
		c := configs[arch]
		if c.Config.User != "10001:10001" || c.Created != "2026-03-04T05:06:08Z" {
			t.Errorf("%s: user %q, created %s; want 10001:10001, 2026-03-04T05:06:08Z", arch, c.Config.User, c.Created)
		}
		if !slices.Equal(c.Config.Entrypoint, []string{"junctor"}) || len(c.Config.Cmd) == 0 || c.Config.Cmd[0] != "serve" {
			t.Errorf("%s: runs %v %v, want junctor serve", arch, c.Config.Entrypoint, c.Config.Cmd)
		}
		for _, want := range []string{"JUNCTOR_HOME=" + homeDir, "PATH=/usr/bin", "SSL_CERT_FILE=" + certsPath} {
			if !slices.Contains(c.Config.Env, want) {
				t.Errorf("%s: environment is %v, want it with %s", arch, c.Config.Env, want)
			}
		}
		if c.Config.Labels["org.opencontainers.image.version"] != "1.2.3-rc.1" {
			t.Errorf("%s: labels are %v, want the version 1.2.3-rc.1", arch, c.Config.Labels)
		}
		if _, ok := c.Config.Volumes[homeDir]; !ok {
			t.Errorf("%s: volumes are %v, want %s", arch, c.Config.Volumes, homeDir)
		}
		files := l.layers(m, c)
		for path, f := range files {
			uid := 0
			if path == homeDir {
				uid = imageUser
			}
			if f.header.Uid != uid || f.header.Mode&0o022 != 0 && path != "/tmp" || f.header.Mode&0o6000 != 0 {
				t.Errorf("%s: %s belongs to %d with mode %o, want %d and not writable for others", arch, path, f.header.Uid, f.header.Mode, uid)
			}
			if parent := filepath.Dir(path); parent != "/" && files[parent].header == nil {
				t.Errorf("%s: %s is in a folder that the image lacks, want %s", arch, path, parent)
			}
		}
		if home := files[homeDir]; home.header == nil || home.header.Mode != 0o700 {
			t.Errorf("%s: the home is %+v, want a folder with mode 0700", arch, home.header)
		}
		checkCertificates(t, files[certsPath].data)
	}
}

// checkCertificates holds that a program finds authorities in the file.
func checkCertificates(t *testing.T, data []byte) {
	t.Helper()
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(data) {
		t.Errorf("the certificates cannot be read, want PEM")
	}
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA {
			t.Errorf("certificate %d: %v; want one of an authority", n, err)
		}
		n++
	}
	if n < 50 {
		t.Errorf("%d certificates, want at least 50", n)
	}
}
