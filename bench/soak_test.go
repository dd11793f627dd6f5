//go:build soak

package main

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/built"
)

// nodesOf is how many nodes the soak has: 1,000, or as many as SOAK_NODES says.
func nodesOf(t *testing.T) int {
	t.Helper()
	n := 1000
	if text := os.Getenv("SOAK_NODES"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("SOAK_NODES is %q, which is not a number of nodes; want no error, n at least 1", text)
		}
	}
	return n
}

// TestSoakManyNodes: nodes in one process join a server in another, all at once, are
// left alone for a minute, and are called. None is lost, and none keeps another out.
func TestSoakManyNodes(t *testing.T) {
	program := built.Junctor(t)
	count := nodesOf(t)
	f, err := many(count, 600, func(home string) (*process, error) {
		return start(program, "--home", home, "serve", "--listen", "127.0.0.1:0")
	}, false)
	f.print(count)
	if err != nil {
		t.Fatal(err)
	}
	if limit := int64(256 << 10); f.perNode > limit {
		t.Errorf("an idle node costs the server %d bytes; the limit is %d; want f.perNode at most %v", f.perNode, limit, limit)
	}
	if f.catalogued > 2*f.joined+5*time.Second {
		t.Errorf("the catalog has them %s after the first came, and the last was let in after %s; want f.catalogued at most "+
			"2*f.joined + 5*time.Second", f.catalogued, f.joined)
	}
}
