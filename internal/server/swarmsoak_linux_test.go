//go:build soak

package server_test

import "testing"

func TestSoakSwarmsOfAKilledServer(t *testing.T) { killSwarms(t, 100) }
