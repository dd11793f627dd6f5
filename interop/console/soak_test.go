//go:build soak

package console

import "testing"

// TestSoakTheTerminals has a program that writes for a minute before three watchers. CONSOLE_TIMES=1 judges the echo
// of a key as well, on an idle machine.
func TestSoakTheTerminals(t *testing.T) {
	t.Setenv("CONSOLE_SECONDS", "60")
	TestTwelveTabsShareOneFeed(t)
}

// TestSoakLongLists prints what pages with 100,000 tools, 10,000 nodes and 1,000,000 records took. CONSOLE_TIMES=1
// judges that as well, on an idle machine.
func TestSoakLongLists(t *testing.T) {
	for name, value := range map[string]string{"CONSOLE_TOOLS": "100000", "CONSOLE_NODES": "10000", "CONSOLE_RECORDS": "1000000"} {
		t.Setenv(name, value)
	}
	TestLongLists(t)
}
