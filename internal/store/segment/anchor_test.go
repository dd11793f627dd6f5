package segment

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestAnchorInTheHomeIsRefused(t *testing.T) {
	home, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(home, filepath.Join(other, "link")); err != nil {
		t.Fatalf("Symlink: got %v, want no error", err)
	}
	for target, want := range map[string]capability.Code{
		filepath.Join(home, "anchor"):          capability.CodeInvalidInput,
		filepath.Join(other, "link", "anchor"): capability.CodeInvalidInput,
		filepath.Join(other, "no", "anchor"):   capability.CodeInvalidInput,
		filepath.Join(other, "anchor"):         "",
		"https://anchor.example/x":             "",
		"syslog":                               "",
	} {
		_, err := NewAnchor(target, home)
		if (err == nil) != (want == "") || err != nil && capability.CodeOf(err) != want {
			t.Errorf("NewAnchor(%s) = %v, want code %q", target, err, want)
		}
	}
}

func TestAnchorFileKeepsWhatItHas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "anchor")
	for _, line := range []string{"one", "two"} {
		a, err := NewAnchor(path, t.TempDir())
		if err != nil {
			t.Fatalf("NewAnchor: got %v, want no error", err)
		}
		if err := a.Write(t.Context(), []byte(line)); err != nil {
			t.Fatalf("Write(%s): got %v, want no error", line, err)
		}
	}
	r, err := ReadAnchor(path)
	if err != nil {
		t.Fatalf("ReadAnchor: got %v, want no error", err)
	}
	defer r.Close()
	if data, err := io.ReadAll(r); err != nil || string(data) != "one\ntwo\n" {
		t.Errorf("the anchor = %q, %v, want both lines", data, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("Stat = %v, %v, want mode 0600", info, err)
	}
	if r, err := ReadAnchor(path + "2"); r != nil || err != nil {
		t.Errorf("ReadAnchor(missing) = %v, %v, want neither lines nor an error", r, err)
	}
	if r, err := ReadAnchor(filepath.Dir(path)); r != nil || err == nil {
		t.Errorf("ReadAnchor(folder) = %v, %v, want an error", r, err)
	}
}

func TestAnchorOfAURLReportsRefusalsWithoutTheURL(t *testing.T) {
	status, got := http.StatusOK, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		got = string(body)
		if err != nil {
			got = err.Error()
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer s.Close()
	a, err := NewAnchor(s.URL+"/hook?token=SECRET", t.TempDir())
	if err != nil {
		t.Fatalf("NewAnchor: got %v, want no error", err)
	}
	if err := a.Write(t.Context(), []byte("line")); err != nil || got != "line\n" {
		t.Errorf("Write = %v, received %q, want no error and the line", err, got)
	}
	for _, status = range []int{http.StatusFound, http.StatusForbidden, http.StatusInternalServerError} {
		if err := a.Write(t.Context(), []byte("line")); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("Write(status %d) = %v, want an error without the URL", status, err)
		}
	}
	s.Close()
	if err := a.Write(t.Context(), []byte("line")); err == nil || strings.Contains(err.Error(), "SECRET") || errors.Unwrap(err) != nil {
		t.Errorf("Write(nothing listens) = %v, want an error without the URL", err)
	}
}
