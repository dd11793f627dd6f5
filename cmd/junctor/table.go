package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// table prints rows under a head, without control characters. If rows is empty, it prints only the
// note none on standard error.
func (a *app) table(head []string, rows [][]string, none string) error {
	if len(rows) == 0 {
		a.note(none)
		return nil
	}
	if a.quiet && head[0] != fieldHead {
		for _, row := range rows {
			fmt.Fprintln(a.stdout, plainText(row[0]))
		}
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

// fieldHead is the first head of the table of one object.
const fieldHead = "FIELD"

// fields prints one object, with a line for each field.
func (a *app) fields(rows [][]string) error { return a.table([]string{fieldHead, "VALUE"}, rows, "") }

// note prints a remark about the answer on standard error, unless text is "".
func (a *app) note(text string) {
	if text != "" {
		a.warnf("%s", plainText(text))
	}
}

// plainText removes control characters, because names and texts are untrusted and must not control
// the terminal.
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// plainLines applies plainText to each line of a text, without empty lines around it.
func plainLines(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for i, l := range lines {
		lines[i] = plainText(l)
	}
	return strings.Join(lines, "\n")
}

// when returns a time for users: local time with seconds.
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
