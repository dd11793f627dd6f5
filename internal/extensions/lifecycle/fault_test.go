package lifecycle_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
)

// scenario is a change that may break at any point.
type scenario struct {
	name   string
	before func(r *rig)
	change func(r *rig) error
}

func scenarios() []scenario {
	upgradable := func(r *rig) {
		r.must(r.install(sample("1.0.0"), lifecycle.Options{}))
		r.enable("tools.sample")
		work := filepath.Join(r.cfg.Dir, "tools.sample", "work")
		for _, err := range []error{
			os.Mkdir(filepath.Join(work, "kept"), 0o750), os.WriteFile(filepath.Join(work, "kept", "data"), []byte("mine"), 0o640),
			os.Symlink("/etc/passwd", filepath.Join(work, "link")),
		} {
			if err != nil {
				r.t.Fatal(err)
			}
		}
		if _, err := r.SetConfig(r.t.Context(), admin(), "tools.sample", []byte(`{"mode":"mine","api_key":"k"}`)); err != nil {
			r.t.Fatal(err)
		}
	}
	return []scenario{
		{"install", func(*rig) {}, func(r *rig) error {
			_, err := r.install(sample("1.0.0"), lifecycle.Options{})
			return err
		}},
		{"install beside another and over a stray folder", func(r *rig) {
			r.must(r.install(sample("1.0.0").with("manifest.json", "tools.sample", "tools.other").with("manifest.json", `["exec"]`,
				`["exec","llm"]`), lifecycle.Options{}))
			if err := os.MkdirAll(filepath.Join(r.cfg.Dir, "tools.sample", "x"), 0o755); err != nil {
				r.t.Fatal(err)
			}
		}, func(r *rig) error {
			_, err := r.install(sample("1.0.0"), lifecycle.Options{})
			return err
		}},
		{"upgrade", upgradable, func(r *rig) error {
			_, err := r.install(sample("2.0.0"), lifecycle.Options{})
			return err
		}},
		{"uninstall", upgradable, func(r *rig) error {
			_, err := r.Uninstall(r.t.Context(), admin(), "tools.sample", lifecycle.Removal{})
			return err
		}},
		{"uninstall and keep the work", upgradable, func(r *rig) error {
			_, err := r.Uninstall(r.t.Context(), admin(), "tools.sample", lifecycle.Removal{KeepWork: true, Strict: true})
			return err
		}},
	}
}

// killed is what stands for the end of the process: nothing of ours catches it.
type killed struct{}

var errFault = errors.New("a fault")

// bench is a scenario with its beginning made once: each try starts from a copy.
type bench struct {
	scenario
	home, old string
}

func (s scenario) bench(t *testing.T) bench {
	t.Helper()
	r := newRig(t)
	s.before(r)
	r.open()
	b := bench{s, r.home, r.state()}
	if err := errors.Join(r.Close(), r.db.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}

// try runs the change with a fault at the n-th point (from 1; 0 for no fault) and
// returns the points that were passed.
func (s *bench) try(t *testing.T, n int, kill bool) (r *rig, points []string, err error) {
	t.Helper()
	home := t.TempDir()
	if out, err := exec.Command("cp", "-a", s.home+"/.", home).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	r = rigIn(t, home)
	plain := r.cfg
	r.cfg = r.cfg.WithFault(func(point string) error {
		points = append(points, point)
		if len(points) != n {
			return nil
		}
		if kill {
			panic(killed{})
		}
		return fmt.Errorf("%s: %w", point, errFault)
	})
	r.open()
	err = r.attempt(func() error { return s.change(r) })
	r.cfg = plain
	return r, points, err
}

func (r *rig) attempt(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if _, ours := p.(killed); !ours {
				panic(p)
			}
			err = errFault
		}
	}()
	return f()
}

// without drops the file that the uninstall step removes: steps are the extension's
// own, so it cannot be undone, and one that a crash left out is not made up for.
func without(state string) string {
	var out []string
	for line := range strings.Lines(state) {
		if !strings.HasPrefix(line, "file tools.sample/"+archive.WorkDir+"/one ") &&
			!strings.HasPrefix(line, "file .trash/kept."+archive.WorkDir+"/one ") {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

func TestEveryFaultLeavesTheOldOrTheNew(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s := s.bench(t)
			old := s.old
			r, points, err := s.try(t, 0, false)
			if err != nil || len(points) < 5 {
				t.Fatalf("err = %v, want nil; len(points) = %v, want at least 5; points = %q", err, len(points), points)
			}
			fresh := r.state()
			for n := 1; n <= len(points); n++ {
				for _, kill := range []bool{false, true} {
					at := fmt.Sprintf("%s (kill %v)", points[n-1], kill)
					r, _, err := s.try(t, n, kill)
					if !kill {
						want := old
						if err == nil {
							want = fresh
						}
						if err != nil && !errors.Is(err, errFault) && reason(err) == "" && !strings.Contains(err.Error(), "junctor") {
							t.Errorf("%s: %v", at, err)
						}
						// After the change is done, a leftover in the trash may wait for the next start.
						if d := cmp.Diff(without(want), without(r.state())); d != "" && err != nil {
							t.Errorf(`%s, at once: %s; want not (d != "" && err != nil)`, at, d)
						}
					}
					r.open()
					got := r.state()
					if without(got) != without(old) && without(got) != without(fresh) {
						t.Errorf("%s: neither old nor new\n%s\nwant not (without(got) != without(old) && without(got) != without(fresh))",
							at, cmp.Diff(without(old), without(got)))
					}
					if !kill && err != nil && without(got) != without(old) {
						t.Errorf("%s: it failed and is not the old; want not (!kill && err != nil && without(got) != without(old))", at)
					}
					if !kill && err == nil && without(got) != without(fresh) {
						t.Errorf("%s: it succeeded and is not the new: %s; want not (!kill && err == nil && without(got) != "+
							"without(fresh))", at, cmp.Diff(fresh, got))
					}
					// And it can be done now.
					if without(got) == without(old) {
						if err := s.change(r); err != nil {
							t.Errorf("%s, again: %v", at, err)
						} else if d := cmp.Diff(without(fresh), without(r.state())); d != "" {
							t.Errorf(`%s, again: %s; want d = ""`, at, d)
						}
					}
				}
			}
		})
	}
}

func TestRepairItselfMayBeInterrupted(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s := s.bench(t)
			old := s.old
			r, points, err := s.try(t, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			fresh := r.state()
			for n := 1; n <= len(points); n++ {
				for again := 1; again < 10; again++ {
					r, _, _ := s.try(t, n, true)
					plain, seen, died := r.cfg, 0, false
					r.cfg = plain.WithFault(func(string) error {
						if seen++; seen == again {
							died = true
							panic(killed{})
						}
						return nil
					})
					_ = r.Close()
					_ = r.attempt(func() error {
						m, err := lifecycle.Open(t.Context(), r.cfg)
						if err == nil {
							_ = m.Close()
						}
						return err
					})
					if r.cfg = plain; !died {
						break
					}
					r.Manager = nil
					r.open()
					if got := r.state(); without(got) != without(old) && without(got) != without(fresh) {
						t.Errorf("killed at %s, then at point %d of the repair: %s; want not (without(got) != without(old) && "+
							"without(got) != without(fresh))", points[n-1], again, cmp.Diff(without(old), without(got)))
					}
				}
			}
		})
	}
}
