package seccomp

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// run interprets a filter as the kernel does.
func run(t *testing.T, prog []Instruction, arch, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[offNr:], nr)
	binary.LittleEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArgs+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		in := prog[pc]
		branch := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case opLoad:
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case opEqual:
			branch(acc == in.K)
		case opMore:
			branch(acc >= in.K)
		case opSet:
			branch(acc&in.K != 0)
		case opAnd:
			acc &= in.K
		case opRet:
			return in.K
		default:
			t.Fatalf("unknown opcode %#x", in.Code)
		}
	}
	t.Fatal("the filter ran off its end")
	return 0
}

func TestFilterAnswers(t *testing.T) {
	t.Parallel()
	const perm = retErrno | errPerm
	tests := []struct {
		call       string
		args       []uint64
		plain, net uint32
		shared     uint32
	}{
		{"ptrace", nil, perm, perm, perm},
		{"mount", nil, perm, perm, perm},
		{"io_uring_setup", nil, perm, perm, perm},
		{"keyctl", nil, perm, perm, perm},
		{"open_by_handle_at", nil, perm, perm, perm},
		{"clone3", nil, retErrno | errNoSys, retErrno | errNoSys, retErrno | errNoSys},
		{"clone", []uint64{17}, retAllow, retAllow, retAllow},
		{"clone", []uint64{0x3d0f00}, retAllow, retAllow, retAllow}, // a thread
		{"clone", []uint64{0x10000000 | 17}, perm, perm, perm},
		{"clone", []uint64{0x00020000 | 17}, perm, perm, perm},
		{"clone", []uint64{0x02000000 | 17}, perm, perm, perm},
		{"socket", []uint64{1, 1 | 0x80000}, retAllow, retAllow, retAllow},
		{"socket", []uint64{1, 2}, retAllow, retAllow, retAllow},
		{"socket", []uint64{1, 3}, perm, perm, perm},
		{"socket", []uint64{2, 1}, perm, retAllow, perm},
		{"socket", []uint64{10, 2 | 0x800}, perm, retAllow, perm},
		{"socket", []uint64{2, 3}, perm, perm, perm},                 // raw
		{"socket", []uint64{16, 3}, perm, perm, perm},                // netlink
		{"socket", []uint64{17, 3}, perm, perm, perm},                // packet
		{"socket", []uint64{40, 1}, perm, perm, perm},                // vsock
		{"socket", []uint64{38, 5}, perm, perm, perm},                // alg
		{"socket", []uint64{1<<32 | 2, 1}, perm, retAllow, perm},     // the kernel reads 32 bits
		{"socketpair", []uint64{1, 1}, retAllow, retAllow, retAllow}, //
		{"socketpair", []uint64{1, 5}, retAllow, retAllow, retAllow}, // messages with bounds, between our own
		{"socketpair", []uint64{1, 3}, perm, perm, perm},             // raw
		{"ioctl", []uint64{0, tiocsti}, perm, perm, perm},            //
		{"ioctl", []uint64{0, 1<<32 | tiocsti}, perm, perm, perm},    // an old trick: the upper half is dropped later
		{"ioctl", []uint64{0, tioclinux}, perm, perm, perm},          //
		{"ioctl", []uint64{0, 0x5401}, retAllow, retAllow, retAllow}, //
		{"personality", []uint64{0}, retAllow, retAllow, retAllow},   //
		{"personality", []uint64{0xffffffff}, retAllow, retAllow, retAllow},
		{"personality", []uint64{0x0040000}, perm, perm, perm},          // no address randomisation
		{"prctl", []uint64{4, 0}, retErrno, retErrno, retErrno},         // its open files are counted
		{"prctl", []uint64{38, 1}, retAllow, retAllow, retAllow},        //
		{"setsockopt", []uint64{3, 1, 7}, retAllow, retAllow, retAllow}, //
		{"fchmodat", nil, retAllow, retAllow, perm},
		{"fchownat", nil, retAllow, retAllow, retErrno},
		{"setxattr", nil, retAllow, retAllow, retErrno},
		{"setpriority", nil, retAllow, retAllow, perm},
		{"sched_setaffinity", nil, retAllow, retAllow, perm},
		{"fchmod", []uint64{3, 0o777}, retAllow, retAllow, perm},
		{"fchown", nil, retAllow, retAllow, retErrno},
		{"fsetxattr", nil, retAllow, retAllow, retErrno},
		{"fremovexattr", nil, retAllow, retAllow, retErrno},
		{"utimensat", []uint64{3, 0}, retAllow, retAllow, retErrno},
		{"utimensat", []uint64{3, 4096}, retAllow, retAllow, perm},
		{"utimensat", []uint64{3, 1 << 32}, retAllow, retAllow, perm},
		{"prlimit64", []uint64{0, 7, 4096}, retAllow, retAllow, retAllow},
		{"prlimit64", []uint64{9, 7, 0}, retAllow, retAllow, retAllow},
		{"prlimit64", []uint64{9, 7, 4096}, retAllow, retAllow, perm},
		{"prlimit64", []uint64{9, 7, 1 << 40}, retAllow, retAllow, perm},
	}
	for name, tab := range tables() {
		plain, net, shared := build(tab, Options{}), build(tab, Options{Internet: true}), build(tab, Options{Processes: true, Files: true})
		for _, tt := range tests {
			nr, ok := tab.numbers[tt.call]
			if !ok {
				t.Errorf("%s has no number for %s; want ok = true", name, tt.call)
				continue
			}
			for _, v := range []struct {
				name string
				prog []Instruction
				want uint32
			}{{"plain", plain, tt.plain}, {"internet", net, tt.net}, {"shared", shared, tt.shared}} {
				if got := run(t, v.prog, tab.arch, nr, tt.args...); got != v.want {
					t.Errorf("%s, %s filter: %s(%#x) is answered %#x, want %#x", name, v.name, tt.call, tt.args, got, v.want)
				}
			}
		}
	}
}

// Whatever number is called under a foreign ABI, the program dies; calls the
// filter does not name pass.
func TestForeignABIAndUnnamedCalls(t *testing.T) {
	t.Parallel()
	for name, tab := range tables() {
		prog := build(tab, Options{Processes: true, Files: true})
		if len(prog) > 4096 {
			t.Errorf("%s: %d instructions are more than the kernel takes; want len(prog) at most 4096", name, len(prog))
		}
		named := slices.Collect(maps.Values(tab.numbers))
		for nr := range uint32(600) {
			if got := run(t, prog, 0x40000003, nr); got != retKill {
				t.Errorf("%s: i386 call %d is answered %#x; want got = %v", name, nr, got, retKill)
			}
			if tab.x32 {
				if got := run(t, prog, tab.arch, 0x40000000|nr); got != retKill {
					t.Errorf("%s: x32 call %d is answered %#x; want got = %v", name, nr, got, retKill)
				}
			}
			if got := run(t, prog, tab.arch, nr); !slices.Contains(named, nr) && got != retAllow {
				t.Errorf("%s: unnamed call %d is answered %#x; want not (!slices.Contains(named, nr) && got != retAllow)",
					name, nr, got)
			}
		}
	}
}

// A name without a number would be an unnoticed gap, so only calls that an
// architecture really lacks may be missing.
func TestEveryNameHasANumber(t *testing.T) {
	t.Parallel()
	lacks := map[string][]string{
		"amd64": nil,
		"arm64": {"iopl", "ioperm", "modify_ldt", "chmod", "utime", "utimes", "futimesat", "chown", "lchown"},
	}
	for arch, tab := range tables() {
		for _, name := range slices.Concat(denied(), processDenied(), processIgnored(), fileDenied(), fileIgnored()) {
			_, ok := tab.numbers[name]
			if ok == slices.Contains(lacks[arch], name) {
				t.Errorf("%s on %s: has a number: %t; want ok other than slices.Contains(lacks[arch], name)", name, arch, ok)
			}
		}
	}
}

func TestEveryLineOfTheTableOfCallsIsRead(t *testing.T) {
	t.Parallel()
	amd64, arm64 := numbers(1), numbers(2)
	seen := make(map[string]bool)
	for line := range strings.Lines(calls) {
		var name string
		var want [2]string
		if _, err := fmt.Sscan(line, &name, &want[0], &want[1]); err != nil || seen[name] {
			t.Fatalf("line %q: got %v, seen before %v, want a new name and two columns", line, err, seen[name])
		}
		if name == "#" {
			continue
		}
		seen[name] = true
		for i, column := range []map[string]uint32{amd64, arm64} {
			got := "-"
			if nr, ok := column[name]; ok {
				got = fmt.Sprint(nr)
			}
			if got != want[i] {
				t.Errorf("%s, column %d: got %s, want %s", name, i+1, got, want[i])
			}
		}
	}
	if len(seen) < 95 {
		t.Errorf("calls: got %d, want at least 95", len(seen))
	}
}

func TestQueuesOfSocketsKeepTheirSizeWhereMemoryIsUncounted(t *testing.T) {
	for name, tab := range tables() {
		prog := build(tab, Options{Uncounted: true})
		for _, c := range []struct {
			level, option uint64
			want          uint32
		}{
			{1, 7, retErrno},
			{1, 32, retErrno},
			{1<<32 | 1, 1<<32 | 7, retErrno}, // the kernel reads 32 bits
			{1, 2, retAllow},
			{6, 7, retAllow},
		} {
			if got := run(t, prog, tab.arch, tab.numbers["setsockopt"], 3, c.level, c.option); got != c.want {
				t.Errorf("%s: setsockopt(3, %#x, %#x) is answered %#x, want %#x", name, c.level, c.option, got, c.want)
			}
		}
	}
}
