package queue

import (
	"container/list"
	"sync"
	"time"
)

// Cache caches results of actions that declare it. The key must include all values that a
// result depends on: package, action, arguments, user and settings. Callers must store only
// successful results. It is safe for concurrent use.
type Cache struct {
	now func() time.Time

	mu    sync.Mutex
	items map[string]*list.Element // of *cached
	order list.List                // most recently used first
	bytes int
}

type cached struct {
	key     string
	value   []byte
	stored  time.Time
	expires time.Time
}

// NewCache returns an empty cache that reads the time from now.
func NewCache(now func() time.Time) *Cache {
	return &Cache{now: now, items: make(map[string]*list.Element)}
}

// Get returns a result and its age. An expired result is dropped. The bytes must not be changed.
func (c *Cache) Get(key string) (value []byte, age time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.items[key]
	if el == nil {
		return nil, 0, false
	}
	item := el.Value.(*cached)
	now := c.now()
	if !now.Before(item.expires) {
		c.drop(el)
		return nil, 0, false
	}
	c.order.MoveToFront(el)
	return item.value, now.Sub(item.stored), true
}

// Put stores a result for ttl. A result larger than a sixteenth of the cache is not stored.
func (c *Cache) Put(key string, value []byte, ttl time.Duration) {
	if ttl <= 0 || len(value) > maxCached/16 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.items[key]; el != nil {
		c.drop(el)
	}
	now := c.now()
	c.items[key] = c.order.PushFront(&cached{key, value, now, now.Add(ttl)})
	c.bytes += len(key) + len(value)
	for c.bytes > maxCached {
		c.drop(c.order.Back())
	}
}

// Clear drops all results, because a value that they depend on has changed.
func (c *Cache) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.items)
	c.order.Init()
	c.bytes = 0
}

func (c *Cache) drop(el *list.Element) {
	item := c.order.Remove(el).(*cached)
	delete(c.items, item.key)
	c.bytes -= len(item.key) + len(item.value)
}
