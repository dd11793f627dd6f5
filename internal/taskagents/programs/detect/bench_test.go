package detect

import "testing"

// BenchmarkLook is one look at a full screen: 50 busy sessions have 1000 of them in a
// second, and must stay below one core.
func BenchmarkLook(b *testing.B) {
	s := atWork(b)
	var above string
	for range 24 {
		above += "  some line of an answer that is about as long as lines of answers are, more or less\n"
	}
	s.show(claude("❯ do it\n" + above + "✽ Baking… (1s)"))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		s.now = s.now.Add(evaluateInterval)
		s.print(string("|/-+"[n%4]))
		n++
		s.now = s.now.Add(evaluateInterval)
		s.Tick(s.now)
	}
}
