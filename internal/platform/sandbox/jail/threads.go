//go:build linux

package jail

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// threadsHad is the number of threads that haveThreads starts.
const threadsHad = 8

// haveThreads makes the runtime start threads in advance. Otherwise a program that uses up
// the process limit would prevent the runtime from starting one, which ends the helper, and
// at T2 the program's tree would continue without it.
func haveThreads() {
	var locked, all sync.WaitGroup
	locked.Add(threadsHad)
	for range threadsHad {
		all.Go(func() { // ends when all have started
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			locked.Done()
			locked.Wait()
		})
	}
	all.Wait()
}

// onThread runs f on a separate thread, which ends with it, and waits for f. It never uses
// the first thread, whose user and Landlock domain count as the process's: a program with
// the same ones could signal the helper.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			onThread(f) // runs f on another thread, because this one stays locked
			return
		}
		f()
	}()
	<-done
}
