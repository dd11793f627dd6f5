package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

const (
	// syslogAnchor is the target that means the log of this system.
	syslogAnchor = "syslog"
	// syslogHeader is the facility authpriv with the level info, and the name of the program.
	syslogHeader = "<86>junctor: "
)

// Anchor writes checkpoints of the audit log to a file, to a URL or to syslog. It implements
// [audit.Anchor]; only a file can be read back.
type Anchor struct{ target string }

// NewAnchor returns the anchor for a value of audit.anchor, or nil for the empty one. A file in the home
// is invalid_input, because it would go back together with the log.
func NewAnchor(target, home string) (audit.Anchor, error) {
	if target == "" {
		return nil, nil
	}
	if filepath.IsAbs(target) {
		dir, err := filepath.EvalSymlinks(filepath.Dir(target))
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "config", "audit.anchor: the folder of "+target+" cannot be used", err)
		}
		if own, err := filepath.EvalSymlinks(home); err == nil {
			home = own
		}
		if rel, err := filepath.Rel(home, dir); err == nil && filepath.IsLocal(rel) {
			return nil, capability.Errorf(capability.CodeInvalidInput, "config", "audit.anchor: %s is in the home, so it proves nothing "+
				"if the home is replaced; name a file on another disk", target)
		}
	}
	return &Anchor{target}, nil
}

// Write implements audit.Anchor. The error does not contain the URL, which may hold a credential.
func (a *Anchor) Write(ctx context.Context, line []byte) error {
	switch {
	case a.target == syslogAnchor:
		return writeSyslog(ctx, line)
	case filepath.IsAbs(a.target):
		f, err := os.OpenFile(a.target, os.O_WRONLY|os.O_APPEND|os.O_CREATE, fileMode)
		if err != nil {
			return err
		}
		_, err = f.Write(append(line, '\n'))
		return errors.Join(err, datasync(f), f.Close())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.target, bytes.NewReader(append(line, '\n')))
	if err != nil {
		return errors.New("the URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		return errors.New("the receiver cannot be reached")
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver answered %d", res.StatusCode)
	}
	return nil
}

func writeSyslog(ctx context.Context, line []byte) error {
	var failed []error
	for _, socket := range []string{"/dev/log", "/var/run/syslog"} {
		c, err := (&net.Dialer{}).DialContext(ctx, "unixgram", socket)
		if err == nil {
			_, err = c.Write(append([]byte(syslogHeader), line...))
			err = errors.Join(err, c.Close())
		}
		if err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// Read implements audit.Anchor. It returns the file up to its present end.
func (a *Anchor) Read() (io.ReadCloser, error) { return ReadAnchor(a.target) }

// ReadAnchor returns the lines of an anchor up to its present end, or nil if they cannot be read back or
// none was written yet.
func ReadAnchor(target string) (io.ReadCloser, error) {
	if !filepath.IsAbs(target) {
		return nil, nil
	}
	f, err := os.Open(target)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), fmt.Errorf("%s is not a file", target))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, info.Size()), f}, nil
}
