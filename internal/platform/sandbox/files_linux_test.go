package sandbox

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// pipes makes n pipes the program writes to or, for the first, reads from; ours
// are the other ends.
func pipes(t *testing.T, n int) (theirs, ours []*os.File) {
	t.Helper()
	for i := range n {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
		if i == 0 {
			r, w = w, r
		}
		theirs, ours = append(theirs, w), append(ours, r)
	}
	return theirs, ours
}

// Descriptors that are handed over arrive as 3, 4, … at every tier, from fresh
// helpers and from spares, and nothing else is open.
func TestHandedDescriptorsArrive(t *testing.T) {
	t.Parallel()
	// Not a loop in /proc: at T2 it is closed. Streams of the shell's own are above 9.
	const script = `read line <&3; for i in 4 5 6 7 8 9; do if (: >&$i) 2>/dev/null; then eval "echo $line $i >&$i"; fi; done
for i in 0 1 2 3 4 5 6 7 8 9; do if (: >&$i) 2>/dev/null; then printf '%s ' $i; fi; done`
	for _, tier := range []Tier{T3, T2, T1} {
		for _, n := range []int{0, 2, 7} {
			t.Run(fmt.Sprintf("%s, %d", tier, n), func(t *testing.T) {
				t.Parallel()
				box := New(Config{Spares: 1})
				t.Cleanup(box.Close)
				if f := box.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
					t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
				}
				c := Confinement{Work: workDir(t), MinTier: tier, MaxTier: tier, AllowUnfiltered: tier == T1}
				for round := range 3 {
					theirs, ours := pipes(t, n)
					spec := hostile(script)
					spec.Files = theirs
					want := "0 1 2 "
					if n == 0 {
						spec.Args[1] = strings.Replace(script, "read line <&3", ":", 1)
					} else if _, err := fmt.Fprintln(ours[0], "hello"); err != nil {
						t.Fatal(err)
					}
					for i := range n {
						want += fmt.Sprintf("%d ", 3+i)
					}
					r, err := box.Run(t.Context(), spec, c)
					if err != nil || r.Stdout.Text() != want {
						t.Fatalf("round %d: open are %q, want %q; %v %s", round, r.Stdout.Text(), want, err, r.Stderr.Text())
					}
					for i := 1; i < n; i++ {
						_ = theirs[i].Close()
						line, err := bufio.NewReader(ours[i]).ReadString('\n')
						if want := fmt.Sprintf("hello %d\n", 3+i); line != want {
							t.Errorf("round %d: descriptor %d wrote %q, %v; want line = %v", round, 3+i, line, err, want)
						}
					}
					if tier != T1 {
						box.spares.starting.Wait() // the next round takes it
					}
				}
			})
		}
	}
}

func TestTooManyDescriptorsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tier := range []Tier{T3, T2, T1} {
		t.Run(tier.String(), func(t *testing.T) {
			t.Parallel()
			box := New(Config{})
			if f := box.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
				t.Skipf("SKIPPED: %s %s", f.NoT3, f.NoT2)
			}
			spec := hostile("echo ran")
			spec.Files, _ = pipes(t, MaxFiles+1)
			r, err := box.Run(t.Context(), spec, Confinement{Work: workDir(t), MinTier: tier, MaxTier: tier, AllowUnfiltered: tier == T1})
			if e := capability.AsError(err); e == nil || e.Code != capability.CodeTooLarge || len(r.Stdout.Bytes()) > 0 {
				t.Errorf("got %v, %q; want e not nil, e.Code = capability.CodeTooLarge, len(r.Stdout.Bytes()) at most 0",
					err, r.Stdout.Text())
			}
		})
	}
}
