package audit

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestLastingTroubleIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := &Log{cfg: Config{Logger: slog.New(slog.NewTextHandler(&out, nil))}}
	for _, err := range []error{errors.New("gone"), errors.New("gone"), nil, nil, errors.New("gone"), errors.New("gone")} {
		l.warn("audit index behind", err)
	}
	l.warn("audit copy not written", errors.New("gone"))
	if got, want := strings.Count(out.String(), "index behind"), 2; got != want {
		t.Errorf("lines about the index = %d, want %d:\n%s", got, want, out.String())
	}
	if got, want := strings.Count(out.String(), "copy not written"), 1; got != want {
		t.Errorf("lines about the copies = %d, want %d:\n%s", got, want, out.String())
	}
}
