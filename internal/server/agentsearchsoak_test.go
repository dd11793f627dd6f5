//go:build soak && !race

package server_test

import "testing"

// TestSoakTheAgentFindsToolsAmongHundredThousand is TestTheAgentFindsToolsAtScale with
// 100,000 tools of 25 MCP servers, and the lower rate that the search reaches among them.
func TestSoakTheAgentFindsToolsAmongHundredThousand(t *testing.T) { agentFinds(t, 100_000, 0.6) }
