package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// faultyDisk is a disk that fails at one of its operations and then loses power: what was not flushed is kept
// in part, in any order, and the last write may be torn.
type faultyDisk struct {
	rng   *rand.Rand
	left  int // operations until the fault
	kind  int // of the fault, see faultKinds
	dead  bool
	files []*faultyFile
}

const faultKinds = 6

var errPower = errors.New("the power is gone")

// faultyFile is a file whose durable content is known.
type faultyFile struct {
	osFile
	disk    *faultyDisk
	path    string
	durable []byte
	pending []write // since the last flush
	length  int64   // of the file, which truncations change at once
}

type write struct {
	at   int64
	data []byte
}

func (d *faultyDisk) create(path string) (file, error) {
	if d.dead {
		return nil, errPower
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	out := &faultyFile{osFile: f.(osFile), disk: d, path: path, durable: data, length: int64(len(data))}
	d.files = append(d.files, out)
	return out, err
}

// due counts one operation and reports whether it is the one that fails.
func (d *faultyDisk) due() bool { d.left--; return d.left == 0 }

func (f *faultyFile) WriteAt(data []byte, at int64) (int, error) {
	if f.disk.dead {
		return 0, errPower
	}
	n, err := len(data), error(nil)
	if f.disk.due() {
		switch f.disk.kind {
		case 0:
			n, err = 0, syscall.EIO
		case 1:
			n, err = f.disk.rng.IntN(len(data)), syscall.ENOSPC
		case 2:
			n = f.disk.rng.IntN(len(data)) // short, without an error
		default:
			f.disk.dead = true
			n, err = f.disk.rng.IntN(len(data)+1), errPower
		}
	}
	f.pending = append(f.pending, write{at, bytes.Clone(data[:n])})
	f.length = max(f.length, at+int64(n))
	if _, werr := f.osFile.WriteAt(data[:n], at); werr != nil {
		return 0, werr
	}
	return n, err
}

func (f *faultyFile) Truncate(size int64) error {
	if f.disk.dead {
		return errPower
	}
	if f.disk.due() && f.disk.kind < 3 {
		return syscall.EIO
	}
	f.length = size
	return f.osFile.Truncate(size)
}

func (f *faultyFile) Datasync() error {
	if f.disk.dead {
		return errPower
	}
	if f.disk.due() {
		if f.disk.kind == 5 {
			f.disk.dead = true
			return errPower
		}
		return syscall.EIO // the kernel drops the pages: what is pending may be lost, although it can be read
	}
	data, err := os.ReadFile(f.path)
	f.durable, f.pending = data, nil
	return err
}

// loseUnflushed leaves on the disk what a loss of power leaves.
func (d *faultyDisk) loseUnflushed(t *testing.T) {
	for _, f := range d.files {
		data := bytes.Clone(f.durable)
		for _, w := range f.pending {
			if d.rng.IntN(2) == 0 {
				continue
			}
			part := w.data[:d.rng.IntN(len(w.data)+1)]
			if need := int(w.at) + len(part); need > len(data) {
				data = append(data, make([]byte, need-len(data))...)
			}
			copy(data[w.at:], part)
		}
		if _, err := os.Stat(f.path); err != nil {
			continue // it was removed, as an unfinished segment is
		}
		if err := os.WriteFile(f.path, data[:min(int64(len(data)), f.length)], 0o600); err != nil {
			t.Fatalf("WriteFile: got %v, want no error", err)
		}
	}
}

// TestNoFaultOfTheDiskLosesOrForgesARecord fails one operation of the disk at 10,000 points and then cuts the power.
// Each acknowledged record that was flushed is in the log, every record in it was appended, and the
// next start writes on.
func TestNoFaultOfTheDiskLosesOrForgesARecord(t *testing.T) {
	const (
		points       = 10_000
		minPoints    = 500
		spentTimeout = 20 * time.Second // after which minPoints suffice: with the race detector, or on a disk
	)
	begin := time.Now()
	base, err := os.MkdirTemp("/dev/shm", "junctor-faults-")
	if err != nil { // each point flushes, which takes long on a disk
		base = t.TempDir()
	}
	defer os.RemoveAll(base)
	key := bytes.Repeat([]byte{9}, 32)
	run := regexp.MustCompile(`"run_id": "(r[0-9]+)"`)
	for seed := range points {
		if seed >= minPoints && (testing.Short() || time.Since(begin) > spentTimeout) {
			t.Logf("%d of %d points were tried", seed, points)
			break
		}
		rng := rand.New(rand.NewPCG(1, uint64(seed)))
		disk := &faultyDisk{rng: rng, left: 1 + rng.IntN(40), kind: seed % faultKinds}
		dir := filepath.Join(base, fmt.Sprint(seed))
		appended, flushed := make(map[string]bool), []string{}
		open := func(create func(string) (file, error)) (*Segments, *audit.Log, error) {
			segs, err := Open(dir, Config{create: create})
			if err != nil {
				return segs, nil, err
			}
			log, err := audit.Open(context.Background(), audit.Config{Segments: segs, Key: key, SegmentBytes: 6 << 10})
			return segs, log, err
		}
		fill := func(log *audit.Log, from, n int) {
			for i := range n {
				id, durable := fmt.Sprintf("r%d", from+i), audit.Written
				if rng.IntN(2) == 0 {
					durable = audit.Synced
				}
				appended[id] = true
				got, err := log.Append(context.Background(), record(audit.CapabilityExecuted, id, capability.EffectWrite), durable)
				if err == nil && got.Seq > 0 && durable == audit.Synced {
					flushed = append(flushed, id)
				}
			}
		}
		segs, log, err := open(disk.create)
		if err == nil {
			fill(log, 0, 25)
		}
		if segs != nil {
			_ = segs.Close() // without flushing: the process is gone
		}
		disk.loseUnflushed(t)

		segs, log, err = open(nil)
		if err != nil {
			t.Fatalf("seed %d: open after the fault: got %v, want no error", seed, err)
		}
		fill(log, 1000, 3)
		var found []string
		rep, err := audit.VerifySegments(t.Context(), segs, audit.Proofs{Key: key})
		if err != nil {
			t.Fatalf("seed %d: verify: got %v, want no error", seed, err)
		}
		whole := rep.FirstBad == nil
		each(t, segs, func(line []byte) {
			if m := run.FindSubmatch(line); m != nil {
				found = append(found, string(m[1]))
			}
		})
		for _, id := range flushed {
			if !slices.Contains(found, id) {
				t.Fatalf("seed %d, fault %d: got %v, want the acknowledged record %s (the chain holds: %v)", seed, disk.kind, found, id, whole)
			}
		}
		for i, id := range found {
			if !appended[id] || slices.Contains(found[:i], id) {
				t.Fatalf("seed %d, fault %d: record %s in the log: got it from nowhere or twice, want each once: %v", seed, disk.kind, id, found)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatalf("seed %d: Close: got %v, want no error", seed, err)
		}
		_ = os.RemoveAll(dir)
	}
}
