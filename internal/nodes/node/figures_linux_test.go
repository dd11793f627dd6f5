package node

import "testing"

func TestFiguresOfTheMachine(t *testing.T) {
	t.Parallel()
	busy, idle := processors("cpu  100 5 20 300 25 1 2 3 50 0")
	if busy != 131 || idle != 325 {
		t.Errorf("busy = %v, want 131; idle = %v, want 325", busy, idle)
	}
	if busy, idle := processors(""); busy+idle != 0 {
		t.Errorf(`processors(""): busy+idle = %v, want 0`, busy+idle)
	}
	for text, want := range map[string]float64{
		"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\n": 75, "MemTotal: 0 kB\n": 0, "x": 0, "MemTotal: 10 kB\nMemAvailable: 20 kB": 0,
	} {
		if got := memory(text); got != want {
			t.Errorf("%q: %v; want got = %v", text, got, want)
		}
	}
	g := machine()
	g.figures()
	if cpu, mem, _ := g.figures(); cpu < 0 || cpu > 100 || mem <= 0 || mem > 100 {
		t.Errorf("g.figures(): cpu = %v, want at least 0 and at most 100; mem = %v, want more than 0 and at most 100", cpu, mem)
	}
}
