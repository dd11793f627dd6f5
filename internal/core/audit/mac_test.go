package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// forgeTail appends n records with right numbers and hashes, as a writer of the files makes them
// without the key. mac is the code that they carry, "" for none.
func forgeTail(segs *memSegments, n int, mac string) {
	last := &segs.segs[len(segs.segs)-1]
	all := bytes.Split(bytes.TrimSuffix(*last, []byte("\n")), []byte("\n"))
	k, _ := parseLink(all[len(all)-1])
	c := chain{seq: k.seq, prev: k.hash, digest: sha256.New()}
	body := all[len(all)-1][:bytes.LastIndex(all[len(all)-1], []byte(seqKey))]
	for range n {
		c.buf = c.buf[:0]
		c.seq++
		c.link(body)
		line := string(c.buf)
		if mac != "" {
			line = strings.TrimSuffix(line, "}\n") + macKey + mac + "\"}\n"
		}
		*last = append(*last, line...)
	}
}

func TestForgedTailIsFoundByItsMissingCode(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	other := strings.Repeat("ab", macLen)
	for _, tt := range []struct {
		name, mac string
		key       []byte
		want      string
	}{
		{"no code, with the key", "", key, BadNoMAC},
		{"no code, without the key", "", nil, BadNoMAC},
		{"another code, with the key", other, key, BadMAC},
		{"another code, without the key", other, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			segs := &memSegments{}
			l := open(t, Config{Segments: segs, Key: key})
			for i := range 10 {
				add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%d", i), capability.EffectRead), Written)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			rep, err := VerifySegments(t.Context(), segs, Proofs{Key: tt.key})
			if err != nil || rep.FirstBad != nil || rep.MACs != 10 || rep.Keyed != (tt.key != nil) {
				t.Fatalf("Verify(genuine) = %+v, %v, want 10 records with codes", rep, err)
			}
			forgeTail(segs, 3, tt.mac)
			rep, err = VerifySegments(t.Context(), segs, Proofs{Key: tt.key})
			got := ""
			if rep.FirstBad != nil {
				got = rep.FirstBad.Reason
			}
			if err != nil || got != tt.want || got != "" && rep.FirstBad.Seq != 11 {
				t.Errorf("Verify(forged) = %+v, %v, want %q at record 11", rep.FirstBad, err, tt.want)
			}
			// The next start continues the chain after the last genuine record, and records that.
			l = open(t, Config{Segments: segs, Key: key})
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if text := string(bytes.Join(segs.segs, nil)); !strings.Contains(text, `"chain_broken"`) {
				t.Errorf("the log after a start = %s, want a record about the broken chain", text)
			}
		})
	}
}

func TestRecordsFromBeforeCodesStillVerify(t *testing.T) {
	segs := &memSegments{}
	for round, key := range [][]byte{nil, bytes.Repeat([]byte{7}, 32)} {
		l := open(t, Config{Segments: segs, Key: key})
		for i := range 5 {
			add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%d_%d", round, i), capability.EffectRead), Written)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	rep, err := VerifySegments(t.Context(), segs, Proofs{Key: bytes.Repeat([]byte{7}, 32)})
	if err != nil || rep.FirstBad != nil || rep.Records != 10 || rep.MACs != 5 {
		t.Errorf("Verify = %+v, %v, want 10 records, 5 with codes", rep, err)
	}
}

// TestDigestsOfCallersAreNoCodes holds that a caller who obtains digests of chosen values cannot
// make codes of records from them.
func TestDigestsOfCallersAreNoCodes(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	l := open(t, Config{Segments: &memSegments{}, Key: key})
	defer l.Close()
	hash := sha256.Sum256([]byte("a record"))
	if got, digest := string(appendMAC(nil, newMAC(key), &hash)), l.Digest(hash[:]); strings.Contains(digest, got) {
		t.Errorf("Digest(%s) = %s, want another than the code %s", hex.EncodeToString(hash[:]), digest, got)
	}
}

func TestTailCutBehindTheIndexedEndIsFound(t *testing.T) {
	segs, index := &memSegments{}, &memIndex{}
	l := open(t, Config{Segments: segs, Index: index})
	for i := range 10 {
		add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%d", i), capability.EffectRead), Written)
	}
	if err := l.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	cut := &memSegments{segs: [][]byte{bytes.Clone(segs.segs[0])}}
	lines := bytes.SplitAfter(cut.segs[0], []byte("\n"))
	cut.segs[0] = bytes.Join(lines[:8], nil)
	rep, err := VerifySegments(t.Context(), cut, Proofs{Points: index})
	if err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != BadTail {
		t.Errorf("Verify(cut) = %+v, %v, want %s", rep.FirstBad, err, BadTail)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
