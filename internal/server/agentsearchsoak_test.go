//go:build soak && !race

package server_test

import "testing"

// TestSoakTheAgentFindsToolsAmongHundredThousand is TestTheAgentFindsToolsAtScale with 100,000 tools.
func TestSoakTheAgentFindsToolsAmongHundredThousand(t *testing.T) { agentFinds(t, 100_000, 0.9) }
