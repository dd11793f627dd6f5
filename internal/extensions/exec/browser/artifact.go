package browser

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// artifactsDir is the directory of artifacts below the work directory.
const artifactsDir = "artifacts"

// Artifact is a file that a call made in the work directory's artifacts folder.
type Artifact struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
	MIME   string `json:"mime"`
}

// keep writes a new file to the artifacts directory, which it creates if needed. It uses an
// [os.Root], so that links in the work directory cannot lead outside. If the server is root, user
// becomes the owner of both. Errors: too_large; failed, reason resource_limit (maxArtifacts files
// exist) or execution_failed (also if the file exists); denied, reason security_violation.
func keep(work string, user int, name, mime string, data []byte) (Artifact, error) {
	if len(data) > MaxArtifact {
		return Artifact{}, capability.Errorf(capability.CodeTooLarge, op, "the file has %d bytes; %d are the most", len(data), MaxArtifact)
	}
	failed := func(err error) (Artifact, error) {
		return Artifact{}, capability.Wrap(capability.CodeFailed, op, "the file cannot be written to the working folder",
			err).With("execution_failed", "")
	}
	root, err := os.OpenRoot(work)
	if err != nil {
		return failed(err)
	}
	defer root.Close()
	if err := root.Mkdir(artifactsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return failed(err)
	}
	if info, err := root.Lstat(artifactsDir); err != nil || !info.IsDir() {
		return Artifact{}, fault.SecurityViolation("artifacts is not a folder of the working folder")
	}
	dir, err := root.OpenRoot(artifactsDir)
	if err != nil {
		return failed(err)
	}
	defer dir.Close()
	if list, err := fs.ReadDir(dir.FS(), "."); err != nil || len(list) >= maxArtifacts {
		return Artifact{}, capability.Errorf(capability.CodeFailed, op, "there are %d files in artifacts already; %d are the most", len(list),
			maxArtifacts).With("resource_limit", "remove some")
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed(err)
	}
	_, err = f.Write(data)
	if os.Geteuid() == 0 { // the extension's programs run as another user
		err = errors.Join(err, f.Chown(user, user), root.Lchown(artifactsDir, user, user))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return failed(err)
	}
	sum := sha256.Sum256(data)
	return Artifact{Name: name, Size: len(data), SHA256: hex.EncodeToString(sum[:]), MIME: mime}, nil
}
