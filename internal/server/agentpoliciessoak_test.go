//go:build soak

package server_test

import (
	"math/rand/v2"
	"testing"
)

// TestSoakTheAgentMakesNoCallWithoutAPermit is TestTheAgentMakesNoCallWithoutAPermit with 10,000 policies.
func TestSoakTheAgentMakesNoCallWithoutAPermit(t *testing.T) { agentPolicies(t, 10_000, rand.Uint64()) }
