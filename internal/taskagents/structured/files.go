package structured

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// The errors for a program. They contain nothing that the program does not know.
var (
	errTooMany  = errors.New("too many files are wanted at once")
	errOutside  = errors.New("that path is outside of the working directory")
	errNoFile   = errors.New("there is no such file")
	errNotPlain = errors.New("that is not a regular file")
	errTooLarge = errors.New("the file is larger than 4 MiB")
	errNoText   = errors.New("the file is not UTF-8 text")
	errFile     = errors.New("the file cannot be read or written")
)

// files accesses one working directory by os.Root, so that neither ".." nor a symbolic link leads
// out of it.
type files struct {
	dir  string
	root *os.Root
}

func openFiles(dir string) (*files, error) {
	root, err := os.OpenRoot(dir)
	if err != nil || !filepath.IsAbs(dir) {
		return nil, capability.Wrap(capability.CodeInvalidInput, "tasks.start", "the folder the program is to work in cannot be used",
			err).With("program_missing", "")
	}
	return &files{dir, root}, nil
}

func (f *files) close() { _ = f.root.Close() }

// filed reads or writes a file for the program. The program asks users for permission itself, so
// only a refusal of the preset applies here.
func (s *Session) filed(f *dialect.File) (string, error) {
	if s.spec.Judge != nil {
		input, _ := jsonx.Marshal(map[string]string{"path": f.Path}) // cannot fail for a decoded path
		if d := s.judge(Ask{f.Tool, input, f.Tool + " " + text.ClipBytes(plain(f.Path), 1_000), true}); d.Effect == permit.Deny {
			return "", errors.New(d.Reason)
		}
	}
	rel, err := s.files.rel(f.Path)
	if err != nil {
		return "", err
	}
	if f.Write {
		return "", s.files.write(rel, f.Text)
	}
	content, err := s.files.read(rel)
	if err != nil {
		return "", err
	}
	return part(content, f.Line, f.Limit), nil
}

// rel returns an absolute path relative to the folder, or an error if it is outside.
func (f *files) rel(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", errOutside // the protocol requires absolute paths
	}
	rel, err := filepath.Rel(f.dir, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return "", errOutside
	}
	return rel, nil
}

func (f *files) read(rel string) (string, error) {
	// Without hostfs.NonBlocking, opening a named pipe would block forever.
	file, err := f.root.OpenFile(rel, os.O_RDONLY|hostfs.NonBlocking, 0)
	if err != nil {
		return "", explained(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", errNotPlain
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return "", errFile
	case len(data) > maxFile:
		return "", errTooLarge
	case !utf8.Valid(data):
		return "", errNoText
	}
	return string(data), nil
}

func (f *files) write(rel, text string) error {
	if len(text) > maxFile {
		return errTooLarge
	}
	if dir := filepath.Dir(rel); dir != "." {
		if err := f.root.MkdirAll(dir, 0o755); err != nil {
			return explained(err)
		}
	}
	file, err := f.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|hostfs.NonBlocking, 0o644)
	if err != nil {
		return explained(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errNotPlain
	}
	if err := file.Truncate(0); err != nil {
		return errFile
	}
	if _, err := file.WriteString(text); err != nil {
		return errFile
	}
	if err := file.Close(); err != nil {
		return errFile
	}
	return nil
}

func explained(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errNoFile
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error value for it
		return errOutside
	}
	return errFile
}

// part returns limit lines of a text from line on, counted from 1; 0 means all.
func part(text string, line, limit int) string {
	for ; line > 1 && text != ""; line-- {
		_, text, _ = strings.Cut(text, "\n")
	}
	if limit <= 0 {
		return text
	}
	end := 0
	for ; limit > 0 && end < len(text); limit-- {
		i := strings.IndexByte(text[end:], '\n')
		if i < 0 {
			return text
		}
		end += i + 1
	}
	return text[:end]
}
