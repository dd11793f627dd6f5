package sandbox

import (
	"context"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel keeps System V objects beyond the end of every process.
func TestAVictimRemovesItsObjects(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(v *victimProcess, cancel context.CancelFunc) error{
		"when its input ends, as when the server is killed": func(v *victimProcess, _ context.CancelFunc) error {
			return v.Close()
		},
		"when its context ends": func(_ *victimProcess, cancel context.CancelFunc) error {
			cancel()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			v, err := startVictim(ctx, os.Getpid()%1000+DefaultUID-5000)
			if err != nil {
				t.Fatalf("startVictim: %v", err)
			}
			defer v.Close()
			if v.ipc == nil {
				t.Skip("SKIPPED: this machine has no System V objects")
			}
			exist := func() map[string]error {
				_, memory := unix.SysvShmCtl(v.ipc.Memory, unix.IPC_STAT, &unix.SysvShmDesc{})
				_, _, set := unix.Syscall6(unix.SYS_SEMCTL, uintptr(v.ipc.Semaphores), 0, 12, 0, 0, 0) // GETVAL
				_, _, queue := unix.Syscall6(unix.SYS_MSGRCV, uintptr(v.ipc.Messages), 0, 0, 0, unix.IPC_NOWAIT, 0)
				return map[string]error{"shared memory": memory, "semaphores": set, "messages": queue}
			}
			for object, err := range exist() {
				if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM) {
					t.Errorf("%s while the victim runs: got %v, want that they exist", object, err)
				}
			}
			if err := end(v, cancel); err != nil {
				t.Fatalf("end: %v", err)
			}
			_ = v.Close() // the end of a cancelled context is an error
			for object, err := range exist() {
				if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
					t.Errorf("%s after its end: got %v, want EINVAL or EIDRM", object, err)
				}
			}
		})
	}
}
