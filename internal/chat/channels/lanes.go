package channels

import "sync"

// lanes runs functions, those of one key in the order in which they were added, and a bounded
// number at the same time.
type lanes struct {
	slots chan struct{}
	work  sync.WaitGroup
	mu    sync.Mutex
	wait  map[string][]func() // a key is present while its goroutine runs
}

func newLanes(slots int) *lanes {
	return &lanes{slots: make(chan struct{}, slots), wait: make(map[string][]func())}
}

// add adds a function. It never blocks; the caller bounds how many wait.
func (l *lanes) add(key string, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, runs := l.wait[key]
	l.wait[key] = append(list, f)
	if !runs {
		l.work.Go(func() { l.run(key) })
	}
}

func (l *lanes) run(key string) {
	for {
		l.mu.Lock()
		list := l.wait[key]
		if len(list) == 0 {
			delete(l.wait, key)
			l.mu.Unlock()
			return
		}
		f := list[0]
		l.wait[key] = list[1:]
		l.mu.Unlock()
		l.slots <- struct{}{}
		f()
		<-l.slots
	}
}
