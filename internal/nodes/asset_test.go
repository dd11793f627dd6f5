package nodes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/internal/testkit/inproc"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// blobs are real, and may be made to tell what is not there.
type blobs struct {
	*blob.Store
	mu    sync.Mutex
	reads int
	spoil bool
}

func (b *blobs) Read(ref blob.Ref) (io.ReadSeekCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	if b.spoil {
		return spoiled{bytes.NewReader(make([]byte, ref.Size))}, nil
	}
	return b.Store.Read(ref)
}

type spoiled struct{ *bytes.Reader }

func (spoiled) Close() error { return nil }

func newBlobs(t *testing.T) *blobs {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "junctor.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := blob.Tables().Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s, err := blob.Open(t.TempDir(), db.SQL(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &blobs{Store: s}
}

// gateways are n stores that run on one bus.
func gateways(t *testing.T, n int) (all []*assetStore, kept []*blobs) {
	t.Helper()
	bus := inproc.New(func(context.Context, messaging.Credential) (messaging.Identity, error) {
		return messaging.Identity{}, nil
	})
	t.Cleanup(bus.Close)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for range n {
		b := newBlobs(t)
		s := newAssetStore(assetConfig{Blobs: b, Bus: bus.Conn()})
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		all, kept = append(all, s), append(kept, b)
	}
	return all, kept
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// get asks until the others are there to answer.
func get(t *testing.T, s *assetStore, name string) ([]byte, string, error) {
	t.Helper()
	for {
		file, kind, err := s.Get(t.Context(), name)
		if err == nil {
			data, err := io.ReadAll(file)
			file.Close()
			return data, kind, err
		}
		if !messaging.Is(err, messaging.ReasonNoResponders) && capability.CodeOf(err) != capability.CodeNotFound {
			return nil, kind, err
		}
		if t.Context().Err() != nil {
			t.Fatalf("%v; want t.Context().Err() = nil", err)
		}
	}
}

func TestAValueOfAnotherGatewayIsFetchedOnceAndKept(t *testing.T) {
	t.Parallel()
	all, kept := gateways(t, 3)
	for size, what := range map[int]string{0: "empty", 10: "small", 256 << 10: "one piece", 10<<20 + 7: "many pieces"} {
		value := bytes.Repeat([]byte(what), size/len(what)+1)[:size]
		if _, err := all[0].Put(t.Context(), "laptop", digestOf(value), "application/json", bytes.NewReader(value)); err != nil {
			t.Fatal(err)
		}
		got, kind, err := get(t, all[1], digestOf(value))
		if err != nil || !bytes.Equal(got, value) || kind != "application/json" {
			t.Errorf(`%s: %d bytes of %d, %s, %v; want no error, got = %v, kind = "application/json"`,
				what, len(got), size, kind, err, value)
		}
		kept[0].mu.Lock()
		before := kept[0].reads
		kept[0].mu.Unlock()
		a := cmp.Asset{Digest: "sha256:" + digestOf(value), Size: int64(size)}
		if again, err := all[1].Fetch(t.Context(), a); err != nil || !bytes.Equal(again, value) {
			t.Errorf("%s again: %v; want no error, again = %v", what, err, value)
		}
		kept[0].mu.Lock()
		if kept[0].reads != before {
			t.Errorf("%s was fetched twice; want kept[0].reads = %v", what, before)
		}
		kept[0].mu.Unlock()
		a.Size++
		if _, err := all[1].Fetch(t.Context(), a); capability.AsError(err).Reason != cmp.ReasonDigest {
			t.Errorf("%s of another size: %v; want capability.AsError(err).Reason = cmp.ReasonDigest", what, err)
		}
	}
}

func TestAValueThatNobodyHasIsNotFound(t *testing.T) {
	t.Parallel()
	all, _ := gateways(t, 2)
	alone := newAssetStore(assetConfig{Blobs: newBlobs(t)})
	if err := alone.Run(t.Context()); err != nil {
		t.Error(err)
	}
	for _, s := range []*assetStore{all[0], alone} {
		_, _, err := s.Get(t.Context(), digestOf([]byte("nothing")))
		if e := capability.AsError(err); e.Code != capability.CodeNotFound || e.Reason != "asset_not_found" {
			t.Errorf(`%v; want e.Code = capability.CodeNotFound, e.Reason = "asset_not_found"`, err)
		}
	}
}

func TestWhatAnotherGatewaySendsIsHeldToItsDigest(t *testing.T) {
	t.Parallel()
	all, kept := gateways(t, 2)
	value := bytes.Repeat([]byte("x"), 300<<10)
	if _, err := all[0].Put(t.Context(), "laptop", digestOf(value), "", bytes.NewReader(value)); err != nil {
		t.Fatal(err)
	}
	kept[0].mu.Lock()
	kept[0].spoil = true
	kept[0].mu.Unlock()
	if _, _, err := get(t, all[1], digestOf(value)); capability.AsError(err).Reason != "asset_broken" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "asset_broken"`, err)
	}
	if refs, err := kept[1].List(t.Context(), "asset:"+digestOf(value)); err != nil || len(refs) != 0 {
		t.Errorf("%v %v; want no error, len(refs) = 0", refs, err)
	}
}

func TestAPutIsHeldToItsDigest(t *testing.T) {
	t.Parallel()
	s := newAssetStore(assetConfig{Blobs: newBlobs(t)})
	if _, err := s.Put(t.Context(), "laptop", digestOf([]byte("a")), "",
		strings.NewReader("b")); capability.AsError(err).Reason != cmp.ReasonDigest {
		t.Errorf("%v; want capability.AsError(err).Reason = cmp.ReasonDigest", err)
	}
	a, err := s.Keep(t.Context(), "agent:a", []byte(`{"args":[]}`))
	if err != nil || a.Check() != nil || a.MediaType != "application/json" {
		t.Errorf(`%+v %v; want no error, a.Check() = nil, a.MediaType = "application/json"`, a, err)
	}
	if got, err := s.Fetch(t.Context(), a); err != nil || string(got) != `{"args":[]}` {
		t.Errorf(`%s %v; want no error, string(got) = "{\"args\":[]}"`, got, err)
	}
}
