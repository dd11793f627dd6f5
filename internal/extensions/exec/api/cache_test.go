package api

import (
	"net/http"
	"strconv"
	"testing"
	"time"
)

func TestTheCacheDropsWhatWasNotUsedForLongest(t *testing.T) {
	c := cache{entries: map[string]*stored{}}
	now := time.Unix(0, 0)
	put := func(key string) {
		c.put(key, answer{Result: Result{Status: http.StatusOK, Output: "x"}, header: http.Header{}}, time.Minute, now)
	}
	for i := range maxStored {
		put(strconv.Itoa(i))
	}
	c.get("0")
	put("one more")
	for key, want := range map[string]bool{"0": true, "1": false, "2": true, "one more": true} {
		if got := c.get(key) != nil; got != want {
			t.Errorf(`full of 0, 1, 2 and so on, "0" read, one more stored: %q is stored: got %t, want %t`, key, got, want)
		}
	}
	if len(c.entries) != maxStored {
		t.Errorf("number of entries: got %d, want %d", len(c.entries), maxStored)
	}
}
