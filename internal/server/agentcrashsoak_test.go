//go:build soak

package server_test

import "testing"

func TestSoakKill9AtAnyInstantLosesNothingOfTheAgent(t *testing.T) { agentKills(t, 2000) }
