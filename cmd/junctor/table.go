package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table prints rows under a head; cells are made harmless for a terminal. If
// rows is empty, standard output stays empty and none states what to do about it.
func (a *app) table(head []string, rows [][]string, none string) error {
	if len(rows) == 0 {
		a.note(none)
		return nil
	}
	tw := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, row := range rows {
		for i := range row {
			row[i] = plainText(row[i])
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// fields prints what one thing is, a line for each of its sides.
func (a *app) fields(rows [][]string) error { return a.table([]string{"FIELD", "VALUE"}, rows, "") }

// note says something about an answer that is not part of it; nothing for "".
func (a *app) note(text string) {
	if text != "" {
		a.warnf("%s", plainText(text))
	}
}

// plainText drops control characters: names and texts come from strangers and
// must not steer the terminal.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// plainLines does it for a text of several lines, without empty ones around it.
func plainLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		lines[i] = plainText(l)
	}
	return strings.Join(lines, "\n")
}

// when prints a time for people: their own, to the second. JSON has UTC and
// milliseconds.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
