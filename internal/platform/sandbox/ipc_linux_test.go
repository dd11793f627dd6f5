package sandbox

import (
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProgramCannotUseSharedMemoryByItsID(t *testing.T) {
	perl, err := exec.LookPath("perl")
	if err != nil {
		t.Skip("perl is not installed")
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		t.Skipf("this machine has no shared memory: %v", err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	data, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	copy(data, "secret")
	if err := unix.SysvShmDetach(data); err != nil {
		t.Fatal(err)
	}
	for _, tier := range []Tier{T3, T2} {
		b := New(Config{})
		if f := b.Facts(); tier == T3 && f.NoT3 != "" || tier == T2 && f.NoT2 != "" {
			t.Logf("tier %s is not available: %s%s", tier, f.NoT3, f.NoT2)
			continue
		}
		r, err := b.Run(t.Context(), Spec{
			Path: perl, Args: []string{"-e", `my $data; print(shmread(` + strconv.Itoa(id) + `, $data, 0, 6) ? $data : "refused")`},
		}, Confinement{MinTier: tier, MaxTier: tier, Work: ownDir(t)})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Stdout.Text(); got != "refused" {
			t.Errorf("%s: shmread of another program's segment = %q, want it refused", tier, got)
		}
	}
}
