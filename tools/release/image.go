package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	imageUser      = 10001 // as in the container file
	certsPath      = "/etc/ssl/certs/ca-certificates.crt"
	healthDelay    = 30 * time.Second // before the first health check counts
	healthInterval = 30 * time.Second
	healthTimeout  = 10 * time.Second
)

// image returns an OCI layout in a tar file: an index of one image for each architecture,
// with the program, the certificates of public authorities and an empty home.
func (p product) image() ([]byte, error) {
	temp, err := os.MkdirTemp("", "junctor-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range p.archs() {
		img, err := p.imageOf(arch)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	index = mutate.Annotations(index, p.labels()).(v1.ImageIndex)
	dir := filepath.Join(temp, "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	// One index of all architectures, under the name that engines load it by.
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": p.version})); err != nil {
		return nil, err
	}
	return tarOf(dir, p.at)
}

// labels describe an image, and annotate the index.
func (p product) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "junctor",
		"org.opencontainers.image.description": "Capability plane for AI agents",
		"org.opencontainers.image.version":     p.version,
		"org.opencontainers.image.created":     p.at.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// imageOf returns the image of one architecture.
func (p product) imageOf(arch string) (v1.Image, error) {
	files, err := p.imageFiles(arch)
	if err != nil {
		return nil, err
	}
	// The program is a layer of its own, because only it changes between two versions.
	var layers []v1.Layer
	for _, list := range [][]imageFile{files[:len(files)-1], files[len(files)-1:]} {
		var raw bytes.Buffer
		if err := writeLayer(&raw, list, p.at); err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw.Bytes())), nil },
			tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range layers {
		if img, err = mutate.Append(img, mutate.Addendum{
			Layer: layer, History: v1.History{Created: v1.Time{Time: p.at}, CreatedBy: "make release"},
		}); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Author = "linux", arch, v1.Time{Time: p.at}, "the junctor authors"
	if arch == "arm64" {
		config.Variant = "v8"
	}
	config.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", imageUser, imageUser), WorkingDir: homeDir,
		Env:          []string{"PATH=/usr/bin", "HOME=" + homeDir, "JUNCTOR_HOME=" + homeDir, "SSL_CERT_FILE=" + certsPath},
		ExposedPorts: map[string]struct{}{"7777/tcp": {}},
		Volumes:      map[string]struct{}{homeDir: {}},
		Entrypoint:   []string{"junctor"},
		// Within the container, each address but loopback belongs to its own network: what
		// is reachable is decided where a port is published.
		Cmd: []string{"serve", "--listen", "0.0.0.0:7777", "--insecure-plain-http"},
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "junctor", "health"},
			Interval: healthInterval, Timeout: healthTimeout, StartPeriod: healthDelay,
		},
		Labels:     p.labels(),
		StopSignal: "SIGTERM",
	}
	return mutate.ConfigFile(img, config)
}

// imageFile is a file or, if its data are nil, a folder of an image.
type imageFile struct {
	path  string
	data  []byte
	mode  int64
	owner int
}

// imageFiles returns the files of an image, the program last.
func (p product) imageFiles(arch string) ([]imageFile, error) {
	account := fmt.Sprintf("junctor:x:%d:%d:junctor:%s:/sbin/nologin\n", imageUser, imageUser, homeDir)
	files := []imageFile{
		{path: "/etc", mode: 0o755},
		{path: "/etc/group", data: fmt.Appendf([]byte("root:x:0:\n"), "junctor:x:%d:\n", imageUser), mode: 0o644},
		{path: "/etc/passwd", data: []byte("root:x:0:0:root:/root:/sbin/nologin\n" + account), mode: 0o644},
		{path: "/etc/ssl", mode: 0o755},
		{path: "/etc/ssl/certs", mode: 0o755},
		{path: certsPath, data: certificates(), mode: 0o644},
		{path: "/tmp", mode: 0o1777},
		{path: "/usr", mode: 0o755},
		{path: "/usr/bin", mode: 0o755},
		{path: "/usr/share", mode: 0o755},
		{path: "/usr/share/doc", mode: 0o755},
		{path: docDir, mode: 0o755},
	}
	for name, source := range map[string]string{
		"LICENSE":                  filepath.Join(p.source, "LICENSE"),
		"THIRD-PARTY-LICENSES.txt": filepath.Join(filepath.Dir(p.binary(arch)), "THIRD-PARTY-LICENSES.txt"),
	} {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		files = append(files, imageFile{path: docDir + "/" + name, data: data, mode: 0o644})
	}
	// A new named volume receives the owner and mode of the folder it is mounted over.
	files = append(files, imageFile{path: "/var", mode: 0o755}, imageFile{path: "/var/lib", mode: 0o755},
		imageFile{path: homeDir, mode: 0o700, owner: imageUser})
	slices.SortFunc(files, func(a, b imageFile) int { return bytes.Compare([]byte(a.path), []byte(b.path)) })
	program, err := os.ReadFile(p.binary(arch))
	if err != nil {
		return nil, err
	}
	return append(files, imageFile{path: programPath, data: program, mode: 0o755}), nil
}

// certificates returns the certificates of public authorities in PEM. They are of a module
// at a fixed version, so that an image does not depend on the machine it is made on. Those
// that are trusted under further conditions only are left out, because PEM cannot hold the
// conditions.
func certificates() []byte {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return b.Bytes()
}

func writeLayer(out io.Writer, files []imageFile, at time.Time) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.path[1:], Mode: f.mode, Size: int64(len(f.data)), Uid: f.owner, Gid: f.owner,
			ModTime: at, Format: tar.FormatUSTAR,
		}
		if f.data == nil {
			h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// tarOf returns the files below dir in a tar file, in the order of their names.
func tarOf(dir string, at time.Time) ([]byte, error) {
	var list []imageFile
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		f := imageFile{path: filepath.ToSlash(path[len(dir):]), mode: 0o755}
		if !d.IsDir() {
			f.mode = 0o644
			f.data, err = os.ReadFile(path)
		}
		list = append(list, f)
		return err
	}); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := writeLayer(&buf, list, at); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
