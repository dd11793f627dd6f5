package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	tty "golang.org/x/term"
)

// wideOnly begins the head of a column that a terminal shows only with -o wide.
const wideOnly = "+"

// table prints rows under a head, without control characters. If rows is empty, it prints only the
// note none on standard error. At a terminal, a list fits the width unless -o wide is given.
func (a *app) table(head []string, rows [][]string, none string) error {
	if len(rows) == 0 {
		a.note(none)
		return nil
	}
	for _, row := range rows {
		for i := range row {
			row[i] = plainText(row[i])
		}
	}
	if a.quiet && head[0] != fieldHead {
		for _, row := range rows {
			fmt.Fprintln(a.stdout, row[0])
		}
		return nil
	}
	if width := a.columns(); width > 0 && head[0] != fieldHead {
		_, err := fmt.Fprint(a.stdout, fitted(head, rows, width, time.Now()))
		return err
	}
	tw := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ReplaceAll(strings.Join(head, "\t"), wideOnly, ""))
	for _, row := range rows {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// columns returns the width of the terminal that standard output is, or 0 without a terminal and with
// -o wide.
func (a *app) columns() int {
	f, ok := a.stdout.(*os.File)
	if !ok || a.wide || !terminal(f) {
		return 0
	}
	width, _, err := tty.GetSize(int(f.Fd()))
	if err != nil || width < minWidth {
		return minWidth
	}
	return width
}

// fitted lays rows out in a number of columns. Times become ages, and the widest columns are cut, the
// first one last, because it identifies the row. The last column continues on further lines instead.
func fitted(head []string, rows [][]string, width int, now time.Time) string {
	var columns []int
	for i, h := range head {
		if !strings.HasPrefix(h, wideOnly) {
			columns = append(columns, i)
		}
	}
	const gap = 2
	lines := [][]string{head}
	for _, row := range rows {
		line := slices.Clone(row)
		for i, cell := range line {
			if t, err := time.ParseInLocation(time.DateTime, cell, time.Local); err == nil {
				line[i] = age(t, now)
			}
		}
		lines = append(lines, line)
	}
	widths := make([]int, len(columns))
	total := gap * (len(columns) - 1)
	for n, i := range columns {
		for _, line := range lines {
			widths[n] = max(widths[n], ansi.StringWidth(line[i]))
		}
		total += widths[n]
	}
	for last := len(widths) - 1; total > width; total-- {
		widest, most := 0, 0
		for n := 1; n <= last; n++ {
			size := widths[n]
			if n == last {
				size /= 2 // a sentence, which is easier to read on few lines
			}
			if widths[n] > max(minColumn, len(head[columns[n]])) && size > most {
				widest, most = n, size
			}
		}
		widths[widest]--
	}
	var b strings.Builder
	for _, line := range lines {
		for n, i := range columns[:len(columns)-1] {
			cell := ansi.Truncate(line[i], widths[n], "…")
			b.WriteString(cell + strings.Repeat(" ", widths[n]+gap-ansi.StringWidth(cell)))
		}
		last := len(columns) - 1
		indent := "\n" + strings.Repeat(" ", min(width, total)-widths[last])
		b.WriteString(strings.ReplaceAll(ansi.Wrap(line[columns[last]], widths[last], ""), "\n", indent) + "\n")
	}
	return b.String()
}

// age returns a time relative to now, such as "5m ago" or "in 3h".
func age(t, now time.Time) string {
	d := now.Sub(t)
	text := ""
	switch span := d.Abs(); {
	case span < time.Minute:
		text = fmt.Sprintf("%ds", int(span.Seconds()))
	case span < time.Hour:
		text = fmt.Sprintf("%dm", int(span.Minutes()))
	case span < 48*time.Hour:
		text = fmt.Sprintf("%dh", int(span.Hours()))
	default:
		text = fmt.Sprintf("%dd", int(span.Hours()/24))
	}
	if d < 0 {
		return "in " + text
	}
	return text + " ago"
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
	return t.Local().Format(time.DateTime)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
