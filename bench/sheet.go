package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// sheet is the one table of docs/performance.md: what was measured, against what, and
// how to measure that alone. Everything else goes to out.
type sheet struct {
	out  io.Writer
	rows []sheetRow
}

type sheetRow struct{ what, baseline, ours, ratio, rerun string }

// took adds a row of times; less is better.
func (s *sheet) took(what, against string, base, ours time.Duration, rerun string) {
	s.rows = append(s.rows, sheetRow{what, against + " " + us(base), us(ours), fmt.Sprintf("%.2f", float64(ours)/float64(base)), rerun})
}

// rate adds a row of calls a second; more is better.
func (s *sheet) rate(what, against string, base, ours float64, rerun string) {
	s.rows = append(s.rows, sheetRow{
		what, fmt.Sprintf("%s %.0f/s", against, base), fmt.Sprintf("%.0f/s", ours),
		fmt.Sprintf("%.2f", ours/base), rerun,
	})
}

// budget adds a row whose baseline is what it may cost.
func (s *sheet) budget(what, unit string, budget, ours float64, rerun string) {
	row := sheetRow{what, "–", amount(ours, unit), "–", rerun}
	if budget > 0 {
		row.baseline, row.ratio = "budget "+amount(budget, unit), fmt.Sprintf("%.2f", ours/budget)
	}
	s.rows = append(s.rows, row)
}

func amount(n float64, unit string) string {
	switch {
	case n >= 100 || n == float64(int64(n)):
		return fmt.Sprintf("%.0f %s", n, unit)
	case n >= 1:
		return fmt.Sprintf("%.1f %s", n, unit)
	}
	return fmt.Sprintf("%.3f %s", n, unit)
}

// print writes the table. In the last column, "-x" is "go run ./bench -x", a pattern with a package
// is for "go test -bench", and an empty cell is "make bench".
func (s *sheet) print(to io.Writer) {
	fmt.Fprintln(to, "| what | baseline | ours | ratio | rerun |")
	fmt.Fprintln(to, "|---|---|---|---|---|")
	short := strings.NewReplacer("`make bench`", "", "go run ./bench ", "", "go test -bench ", "")
	for _, r := range s.rows {
		fmt.Fprintf(to, "| %s | %s | %s | %s | %s |\n", r.what, r.baseline, r.ours, r.ratio, short.Replace("`"+r.rerun+"`"))
	}
}
