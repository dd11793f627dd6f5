package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// oneName resolves a.test and b.test to public addresses, and one name inside.
type oneName struct{}

func (oneName) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if host == "inside.test" {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
}

// dialTo reaches one server, whatever the address.
type dialTo string

func (d dialTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, string(d))
}

func TestOnlyTheDeclaredHostIsReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "answer from ", r.Host) }))
	t.Cleanup(server.Close)
	box := New(Config{Resolver: oneName{}, Dialer: dialTo(server.Listener.Addr().String())})
	if f := box.Facts(); f.NoT3 != "" {
		t.Skipf("SKIPPED: %s", f.NoT3)
	}
	var mu sync.Mutex
	var heard []string
	c := Confinement{
		Work: workDir(t), Network: NetworkProxy, Egress: egress.Policy{Allow: []string{"a.test", "inside.test"}},
		OnEgress: func(d egress.Decision) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, d.Event()+" "+d.Host)
		},
	}
	host := server.Listener.Addr().String()
	spec := attacker(t, "fetch", "http://a.test/", "http://b.test/", "http://inside.test/", "http://93.184.216.34/", "http://127.0.0.1:3128/",
		"http://"+host+"/", "direct http://a.test/", "direct http://"+host+"/", "direct http://93.184.216.34/")
	r, err := box.Run(t.Context(), spec, c)
	if err != nil {
		t.Fatalf("err = %v, r.Stderr.Text() = %v, want err == nil", err, r.Stderr.Text())
	}
	got := strings.Split(strings.TrimSpace(r.Stdout.Text()), "\n")
	want := []string{"200 answer from a.test", "403", "403", "403", "error", "error", "error", "error", "error"}
	for i, line := range got {
		// Addresses on the loopback are dialled without the proxy, and nothing is there.
		if i >= len(want) || !strings.HasPrefix(line, want[i]) && !(want[i] == "error" && strings.HasPrefix(line, "400")) {
			t.Errorf("request %d: %s", i, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d answers: %q %s; want len(got) = %v", len(got), got, r.Stderr.Text(), len(want))
	}
	mu.Lock()
	defer mu.Unlock()
	if events := strings.Join(heard, ", "); !strings.HasPrefix(events,
		"egress_allowed a.test, egress_denied b.test, egress_denied inside.test, egress_denied 93.184.216.34") {
		t.Errorf("heard %s", events)
	}
	if r.Placement.Network != NetworkProxy {
		t.Errorf("the result says network %s; want r.Placement.Network = %v", r.Placement.Network, NetworkProxy)
	}
}

// At T2 a proxy would only be advice, so a person must have agreed to that.
func TestAnUnfilteredNetworkIsNotGivenSilently(t *testing.T) {
	t.Parallel()
	box := New(Config{})
	if f := box.Facts(); f.NoT2 != "" {
		t.Skipf("SKIPPED: %s", f.NoT2)
	}
	c := Confinement{Work: workDir(t), Network: NetworkProxy, MinTier: T2, MaxTier: T2}
	_, err := box.Run(t.Context(), hostile("true"), c)
	if e := capability.AsError(err); e == nil || e.Code != capability.CodeApprovalRequired {
		t.Errorf("got %v; want e not nil, e.Code = capability.CodeApprovalRequired", err)
	}
	c.AllowUnfiltered = true
	r, err := box.Run(t.Context(), hostile("true"), c)
	if err != nil || r.Placement.Network != NetworkUnfiltered {
		t.Errorf("got %+v, %v; want no error, r.Placement.Network = %v", r.Placement, err, NetworkUnfiltered)
	}
}

// Directories that do not belong to the run are refused.
func TestWorkDirectoriesAreJudged(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		link := filepath.Join(workDir(t), "link")
		if err := os.Symlink(c.Work, link); err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(*Confinement, *Spec){
			func(c *Confinement, _ *Spec) { c.Work = link },
			func(c *Confinement, _ *Spec) { c.Work += "/../work" },
			func(c *Confinement, _ *Spec) { c.Work = "work" },
			func(c *Confinement, _ *Spec) { c.Work = "/" },
			func(c *Confinement, _ *Spec) { c.Work = filepath.Join(c.Work, "absent") },
			func(c *Confinement, s *Spec) { s.Dir = filepath.Dir(c.Work) },
			func(c *Confinement, s *Spec) { s.Dir = c.Work + "-evil" },
			func(c *Confinement, s *Spec) { s.Dir = c.Work + "/../x" },
			func(c *Confinement, _ *Spec) { c.ReadOnly = []string{"/"} },
			func(c *Confinement, _ *Spec) { c.Package = "relative" },
		} {
			bad, spec := c, hostile("echo ran")
			change(&bad, &spec)
			r, err := box.Run(t.Context(), spec, bad)
			if e := capability.AsError(err); e == nil || e.Reason != "security_violation" || len(r.Stdout.Bytes()) != 0 {
				t.Errorf(`%+v %q: got %v, %q; want e not nil, e.Reason = "security_violation", len(r.Stdout.Bytes()) = 0`,
					bad, spec.Dir, err, r.Stdout.Text())
			}
		}
	})
}

// Status and Place tell the truth when layers are switched off one by one, and
// nothing runs below the tier that is demanded.
func TestSwitchedOffLayers(t *testing.T) {
	t.Parallel()
	if f := New(Config{}).Facts(); f.NoT3 != "" || f.NoT2 != "" {
		t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
	}
	for layer, best := range map[string]Tier{
		LayerNamespaces: T2, LayerRoot: T2, LayerNetwork: T2, LayerSeccomp: T1, LayerLandlock: T3, LayerCgroup: T3,
	} {
		t.Run(layer, func(t *testing.T) {
			t.Parallel()
			box := New(Config{Off: map[string]string{layer: "by the test"}})
			f := box.Facts()
			if f.Tier != best || !strings.Contains(f.Missing[layer], "by the test") {
				t.Errorf(`%+v; want f.Tier = %v, f.Missing[layer] with "by the test"`, f, best)
			}
			if layer == LayerLandlock && f.NoT2 == "" {
				t.Error(`T2 without Landlock is not a tier; want not (layer == LayerLandlock && f.NoT2 == "")`)
			}
			c := Confinement{Work: workDir(t), MinTier: best}
			r, err := box.Run(t.Context(), hostile("echo ran"), c)
			if best == T1 {
				c.AllowUnfiltered = true
				r, err = box.Run(t.Context(), hostile("echo ran"), c)
			}
			if err != nil || r.Stdout.Text() != "ran\n" || r.Placement.Tier != best || r.Placement.Missing[layer] == "" {
				t.Errorf(`got %v, %q, %+v; want no error, r.Stdout.Text() = "ran\n", r.Placement.Tier = %v, `+
					`r.Placement.Missing[layer] other than ""`, err, r.Stdout.Text(), r.Placement, best)
			}
			if best == T3 {
				return
			}
			c.MinTier = best + 1
			r, err = box.Run(t.Context(), hostile("echo ran"), c)
			e, ok := errors.AsType[*capability.Error](err)
			if !ok || e.Reason != "sandbox_unavailable" || e.Code != capability.CodeUnavailable || e.Hint == "" ||
				!strings.Contains(e.Message, "by the test") || len(r.Stdout.Bytes()) != 0 {
				t.Errorf(`below the demanded tier: %v, %q; want ok = true, e.Reason = "sandbox_unavailable", e.Code = `+
					`capability.CodeUnavailable, e.Hint other than "", e.Message with "by the test", len(r.Stdout.Bytes()) = 0`, err,
					r.Stdout.Text())
			}
		})
	}
}

// What could not be set up is not taken for the program's own failure.
func TestSetupFailuresAreTold(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		notExecutable := filepath.Join(c.Work, "tool")
		if err := os.WriteFile(notExecutable, []byte("#!/bin/sh\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := box.Run(t.Context(), Spec{Path: notExecutable}, c)
		e, ok := errors.AsType[*capability.Error](err)
		if !ok || e.Reason != "sandbox_setup_failed" || e.Details["step"] != "start the program" || e.Details["errno"] != "EACCES" {
			t.Errorf(`got %v %+v; want ok = true, e.Reason = "sandbox_setup_failed", e.Details["step"] = "start the program", `+
				`e.Details["errno"] = "EACCES"`, err, e)
		}
		_, err = box.Run(t.Context(), Spec{Path: "/usr/bin/absent"}, c)
		wantReason(t, err, "tool_not_found", "")
	})
}

// Input, exit codes, signals and the path of the room reach the program and come
// back.
func TestTheProgramSeesItsRoom(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, tier Tier, c Confinement) {
		c.Package = workDir(t)
		if err := os.WriteFile(filepath.Join(c.Package, "data"), []byte("packaged"), 0o644); err != nil {
			t.Fatal(err)
		}
		p, err := box.Place(c)
		if err != nil {
			t.Fatal(err)
		}
		spec := hostile(`cat; cat "$0/data"; pwd; echo made > "$1/made"; umask; exit 7`)
		spec.Args = append(spec.Args, p.Package, p.Work)
		spec.Stdin = []byte("fed ")
		r, err := box.Run(t.Context(), spec, c)
		if want := "fed packaged" + p.Work + "\n0077\n"; err != nil || r.ExitCode != 7 || r.Stdout.Text() != want {
			t.Errorf("got %d, %v, %q (%s), want %q", r.ExitCode, err, r.Stdout.Text(), r.Stderr.Text(), want)
		}
		if got := readFile(filepath.Join(c.Work, "made")); got != "made\n" {
			t.Errorf(`the work directory holds %q; want got = "made\n"`, got)
		}
		if tier == T3 {
			r, err = box.Run(t.Context(), hostile("echo out > /dev/stdout; echo err > /dev/stderr; cp /bin/true mine; chmod 700 mine; ./mine"), c)
			if err != nil || r.ExitCode != 0 || r.Stdout.Text() != "out\n" || r.Stderr.Text() != "err\n" {
				t.Errorf(`got %d, %v, %q, %q; want no error, r.ExitCode = 0, r.Stdout.Text() = "out\n", r.Stderr.Text() = "err\n"`,
					r.ExitCode, err, r.Stdout.Text(), r.Stderr.Text())
			}
		}
		r, err = box.Run(t.Context(), hostile("kill -USR1 $$"), c)
		if err != nil || r.Signal != "SIGUSR1" || r.ExitCode != -1 {
			t.Errorf(`got %d %s, %v; want no error, r.Signal = "SIGUSR1", r.ExitCode = -1`, r.ExitCode, r.Signal, err)
		}
		c.WorkReadOnly = true
		r, err = box.Run(t.Context(), hostile("echo x > made"), c)
		if err != nil || r.ExitCode == 0 || readFile(filepath.Join(c.Work, "made")) != "made\n" {
			t.Errorf("a read-only work directory was written to: %d, %v; want no error, r.ExitCode other than 0, "+
				`readFile(filepath.Join(c.Work, "made")) = "made\n"`, r.ExitCode, err)
		}
		c.Work = t.TempDir() // empty so far
		if err := os.Chmod(c.Work, 0o700); err != nil {
			t.Fatal(err)
		}
		if r, err = box.Run(t.Context(), hostile("ls"), c); err != nil || r.ExitCode != 0 {
			t.Errorf("a read-only work directory cannot be read: %d, %v, %s; want no error, r.ExitCode = 0",
				r.ExitCode, err, r.Stderr.Text())
		}
	})
}

// Many at once leave nothing behind and do not mix.
func TestRunsAtOnce(t *testing.T) {
	t.Parallel()
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				r, err := box.Run(t.Context(), hostile(fmt.Sprintf("echo %d; exit %d", i, i)), c)
				if err != nil || r.ExitCode != i || r.Stdout.Text() != fmt.Sprintf("%d\n", i) {
					t.Errorf(`run %d: %d, %q, %v; want no error, r.ExitCode = %v, r.Stdout.Text() = fmt.Sprintf("%%d\n", i)`,
						i, r.ExitCode, r.Stdout.Text(), err, i)
				}
			})
		}
		wg.Wait()
	})
}
