//go:build linux

package jail

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// threadsHad is how many threads haveThreads leaves for later.
const threadsHad = 8

// haveThreads makes the runtime start the threads that it may come to need: a
// program at its process limit leaves it none, and a runtime that gets none ends
// the process, which at T2 would leave the program's tree to itself.
func haveThreads() {
	var locked, all sync.WaitGroup
	locked.Add(threadsHad)
	for range threadsHad {
		all.Go(func() { // ends when all of them are there
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait()
		})
	}
	all.Wait()
}

// onThread runs f on a thread that is used for nothing else and ends with it, and
// returns when f has. It is never the first thread: that one's user and domain are
// what others take for the process's, so that a program behind the same walls could
// signal us.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			onThread(f) // on another one, since this is taken
			return
		}
		f()
	}()
	<-done
}
