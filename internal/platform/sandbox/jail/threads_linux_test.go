package jail

import (
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The first thread's user and domain are what others take for the process's.
func TestWallsNeverStandOnTheFirstThread(t *testing.T) {
	t.Parallel()
	haveThreads() // so that the first one may be among those that wait
	var mu sync.Mutex
	seen := map[int]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				onThread(func() {
					mu.Lock()
					defer mu.Unlock()
					seen[unix.Gettid()] = true
				})
			}
		})
	}
	all.Wait()
	if len(seen) < 100 || seen[unix.Getpid()] {
		t.Errorf("%d threads were used; the first among them: %v", len(seen), seen[unix.Getpid()])
	}
}
