package sandbox

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
	"github.com/junctor-run/junctor/internal/testkit/programfile"
)

// limitReader returns a program whose first instructions read its limits and write them out, soft and hard.
func limitReader(resources ...byte) []byte {
	code := []byte{0x48, 0x83, 0xec, 0x10} // sub rsp, 16
	for _, resource := range resources {
		code = append(code,
			0x31, 0xff, // xor edi, edi
			0xbe, resource, 0, 0, 0, // mov esi, resource
			0x31, 0xd2, // xor edx, edx
			0x49, 0x89, 0xe2, // mov r10, rsp
			0xb8, 0x2e, 0x01, 0, 0, 0x0f, 0x05, // prlimit64
			0xbf, 1, 0, 0, 0, // mov edi, 1
			0x48, 0x89, 0xe6, // mov rsi, rsp
			0xba, 16, 0, 0, 0, // mov edx, 16
			0xb8, 1, 0, 0, 0, 0x0f, 0x05, // write
		)
	}
	return canary.Program(append(code, 0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05)) // exit(0)
}

// printer returns a program that writes one letter.
func printer(letter byte) []byte {
	return canary.Program([]byte{
		0x68, letter, 0, 0, 0, // push letter
		0xbf, 1, 0, 0, 0, 0x48, 0x89, 0xe6, 0xba, 1, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0x0f, 0x05, // write(1, rsp, 1)
		0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05,
	})
}

func machineCode(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("SKIPPED: the program is written for amd64")
	}
}

func TestLimitsAreFinalBeforeTheFirstInstruction(t *testing.T) {
	machineCode(t)
	eachTier(t, func(t *testing.T, _ *Box, _ Tier, c Confinement) {
		c.Limits = Limits{CPU: 7 * time.Second, OpenFiles: 64, FileSize: 1 << 20, Memory: 64 << 20, AddressSpace: 1 << 30, Processes: 100}
		box := New(Config{Off: map[string]string{LayerCgroup: "by this test"}})
		path := filepath.Join(c.Work, "first")
		programfile.Write(t, path, string(limitReader(unix.RLIMIT_CPU, unix.RLIMIT_AS, unix.RLIMIT_NPROC, unix.RLIMIT_NOFILE,
			unix.RLIMIT_FSIZE, unix.RLIMIT_CORE)), 0o755)
		for i := range 40 {
			res, err := box.Run(t.Context(), Spec{Path: path}, c)
			if err != nil || len(res.Stdout.Bytes()) != 6*16 {
				t.Fatalf("run %d: got %d bytes, %v, want 96 and no error", i, len(res.Stdout.Bytes()), err)
			}
			word := func(n int) uint64 { return binary.LittleEndian.Uint64(res.Stdout.Bytes()[8*n:]) }
			for n, want := range []uint64{7, 8, 1 << 30, 1 << 30, 0, 0, 64, 64, 1 << 20, 1 << 20, 0, 0} {
				if n == 4 || n == 5 { // others of the same user are counted too
					if got := word(n); got < 100 || got > 1<<20 || word(4) != word(5) {
						t.Fatalf("run %d, processes: got %d and %d, want the same bound", i, word(4), word(5))
					}
				} else if got := word(n); got != want {
					t.Fatalf("run %d, value %d: got %d, want %d", i, n, got, want)
				}
			}
		}
	})
}

// TestSwappedProgramDoesNotRun exchanges the program that was verified for another one all the time.
func TestSwappedProgramDoesNotRun(t *testing.T) {
	machineCode(t)
	eachTier(t, func(t *testing.T, box *Box, _ Tier, c Confinement) {
		dir := workDir(t)
		good, evil := filepath.Join(dir, "good"), filepath.Join(dir, "evil")
		programfile.Write(t, good, string(printer('g')), 0o755)
		programfile.Write(t, evil, string(printer('e')), 0o755)
		verified, err := os.Open(good)
		if err != nil {
			t.Fatalf("Open: got %v, want no error", err)
		}
		defer verified.Close()
		info, err := verified.Stat()
		if err != nil {
			t.Fatalf("Stat: got %v, want no error", err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					_ = unix.Renameat2(unix.AT_FDCWD, good, unix.AT_FDCWD, evil, unix.RENAME_EXCHANGE)
				}
			}
		}()
		c.ReadOnly = append(c.ReadOnly, dir)
		for i := range 150 {
			res, err := box.Run(t.Context(), Spec{Path: good, Program: verified}, c)
			switch _, ok := errors.AsType[*capability.Error](err); {
			case err == nil && string(res.Stdout.Bytes()) == "g":
			case err != nil && ok: // it was replaced just then
			default:
				t.Errorf("run %d: got %q, %v, want g or a typed error", i, res.Stdout.Bytes(), err)
			}
		}
		close(stop)
		<-done
		if same, err := os.Stat(good); err != nil || !os.SameFile(same, info) {
			if err := os.Rename(evil, good); err != nil {
				t.Fatalf("Rename: got %v, want no error", err)
			}
		}
		if res, err := box.Run(t.Context(), Spec{Path: good, Program: verified}, c); err != nil || string(res.Stdout.Bytes()) != "g" {
			t.Errorf("the verified program: got %q, %v, want g and no error", res.Stdout.Bytes(), err)
		}
	})
}
