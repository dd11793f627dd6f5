package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/intake"
	"github.com/junctor-run/junctor/internal/store/segment"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pipeline(t *testing.T, changed func(catalog.Change)) (*intake.Pipeline, *catalog.Catalog, *audit.Log) {
	t.Helper()
	files, err := segment.Open(t.TempDir(), segment.Config{})
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(t.Context(), audit.Config{Segments: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	c := catalogtest.New(t)
	return intake.New(intake.Config{Catalog: c, Log: log, Changed: changed}), c, log
}

func batch(source string, modules ...string) capability.Batch {
	b := capability.Batch{Source: source}
	for _, m := range modules {
		id, digest := m, ""
		if n := len(m); m[n-1] == '2' {
			id, digest = m[:n-1], "sha256:2"
		}
		b.Modules = append(b.Modules, capability.Module{
			Extension: "remote." + id, ID: id, Origin: "endpoint", Digest: digest,
			Contributions: []capability.Contribution{
				{
					ID: "tool", Kind: "capability.agent-tool", Effect: capability.EffectRead,
					Provider: capability.NewProviderKey("ext", "endpoint", source), Description: digest,
				},
			},
		})
	}
	return b
}

func events(t *testing.T, log *audit.Log) (out []string) {
	t.Helper()
	lines, err := log.Query(t.Context(), audit.Query{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		var v struct {
			Event     string `json:"event"`
			Extension string `json:"extension_id"`
			Metadata  struct{ Source string }
		}
		if err := json.Unmarshal(lines[len(lines)-1-i], &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v.Event+" "+v.Extension)
	}
	return out
}

func TestWhatBecameOfEachModuleIsRecorded(t *testing.T) {
	t.Parallel()
	generations := []uint64{}
	p, c, log := pipeline(t, func(c catalog.Change) { generations = append(generations, c.After.Generation) })
	for _, b := range []capability.Batch{
		batch("one", "a", "b"), batch("two", "c"), batch("one", "a", "b"), batch("one", "a2"), batch("two"),
		batch("never"),
	} {
		if err := p.Publish(b); err != nil {
			t.Fatal(err)
		}
	}
	err := p.Publish(batch("two", "d", "A"))
	if capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("an id was taken over: %v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	want := []string{
		"module_loaded remote.a", "module_loaded remote.b", "module_loaded remote.c", "module_reloaded remote.a", "module_unloaded remote.b",
		"module_unloaded remote.c",
	}
	if d := cmp.Diff(want, events(t, log)); d != "" {
		t.Errorf("events(t, log) differs from want (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]uint64{1, 2, 3, 4}, generations); d != "" {
		t.Errorf("generations differs from want (-want +got):\n%s", d)
	}
	if n := c.Snapshot().ModuleCount(); n != 1 {
		t.Errorf("%d modules; want n = 1", n)
	}
}

func TestSourcesThatRaceRecordEachModuleOnce(t *testing.T) {
	t.Parallel()
	p, _, log := pipeline(t, nil)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			if err := p.Publish(batch(fmt.Sprintf("s%02d", i), fmt.Sprintf("m%02dx", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := make(map[string]int)
	for _, e := range events(t, log) {
		got[e]++
	}
	for e, n := range got {
		if n != 1 {
			t.Errorf("%s %d times; want n = 1", e, n)
		}
	}
	if len(got) != 30 {
		t.Errorf("%d records; want len(got) = 30", len(got))
	}
}

type source func(context.Context, func(capability.Batch) error) error

func (s source) Run(ctx context.Context, publish func(capability.Batch) error) error {
	return s(ctx, publish)
}

func TestASourceThatStopsIsStartedAgainAndStopsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := intake.New(intake.Config{Catalog: catalogtest.New(t)})
		began := time.Now()
		var starts []time.Duration
		steady := 0
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Second)
		defer cancel()
		err := p.Run(ctx,
			source(func(ctx context.Context, _ func(capability.Batch) error) error {
				starts = append(starts, time.Since(began))
				switch len(starts) {
				case 1:
					panic("broken")
				case 2:
					return nil
				case 3:
					return context.Canceled // not ours
				case 8:
					<-ctx.Done()
				}
				return errors.New("broken")
			}),
			source(func(ctx context.Context, _ func(capability.Batch) error) error {
				steady++
				<-ctx.Done()
				return ctx.Err()
			}))
		s := time.Second
		if d := cmp.Diff([]time.Duration{0, s, 3 * s, 7 * s, 15 * s, 31 * s, 63 * s, 123 * s}, starts); err != nil || steady != 1 || d != "" {
			t.Errorf(`%v, steady %d, %s; want no error, steady = 1, d = ""`, err, steady, d)
		}
	})
}

func TestBatchesThatWaitAreAppliedTogetherAndOneThatIsRefusedKeepsNoneOut(t *testing.T) {
	t.Parallel()
	const count = 40
	first, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	changes := 0
	p, c, log := pipeline(t, func(catalog.Change) {
		changes++
		once.Do(func() { close(first); <-goOn })
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.Publish(batch("first", "taken")); err != nil {
			t.Error(err)
		}
	})
	<-first
	var begun sync.WaitGroup
	errs := make([]error, count)
	for i := range count {
		begun.Add(1)
		wg.Go(func() {
			name := fmt.Sprintf("m%02dx", i)
			if i == 17 {
				name = "taken"
			}
			begun.Done()
			errs[i] = p.Publish(batch(fmt.Sprintf("s%02d", i), name))
		})
	}
	begun.Wait()
	close(goOn)
	wg.Wait()
	for i, err := range errs {
		if (capability.CodeOf(err) == capability.CodeConflict) != (i == 17) || err != nil && i != 17 {
			t.Errorf("s%02d: %v; want (capability.CodeOf(err) == capability.CodeConflict) = (i == 17), not (err != nil && i != 17)",
				i, err)
		}
	}
	if n := c.Snapshot().ModuleCount(); n != count {
		t.Errorf("%d modules; want n = %v", n, count)
	}
	if n := len(events(t, log)); n != count {
		t.Errorf("%d records; want n = %v", n, count)
	}
	if changes > count { // how many wait at once is the scheduler's to say
		t.Errorf("%d changes; want changes at most %v", changes, count)
	}
	// Two batches of one source are never one change: the later one holds.
	for range 10 {
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { _ = p.Publish(batch("twice", "twice")) })
		}
		both.Wait()
	}
	if _, ok := c.Snapshot().Module("remote.twice"); !ok {
		t.Error("it is not there")
	}
}
