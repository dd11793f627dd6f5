package db

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Dialect is the SQL dialect of a statement.
type Dialect int

// The dialects.
const (
	SQLite Dialect = iota
	Postgres
)

// Statement is one parsed statement.
type Statement struct {
	Text string // without trailing semicolons, spaces and comments
	Kind string // "select", "insert", "create", …
	// Params are the names of its :name parameters, each once, in order.
	Params []string

	tokens []token
}

// Reads reports whether the kind is select or values. A SELECT may still call a function
// that writes, so the connection is read-only too.
func (s Statement) Reads() bool { return s.Kind == "select" || s.Kind == "values" }

// writes reports whether the kind is one of the others that are accepted.
func (s Statement) writes() bool {
	return slices.Contains([]string{
		"insert", "update", "delete", "replace", "merge", "create", "alter", "drop", "truncate", "reindex",
		"analyze",
	}, s.Kind)
}

type class int

const (
	word class = iota
	quoted
	literal
	number
	param
	mark
)

type token struct {
	class      class
	value      string // a word in lower case, a quoted token without its quotes
	start, end int
}

// Parse splits one statement into tokens and determines its kind and parameters. It does not
// validate the statement further; the database does. Errors: invalid_input, reason invalid_args
// (none or several statements, a kind that is not allowed, such as transactions, settings, ATTACH,
// COPY or DO, an unterminated quote or comment); denied, reason security_violation (a function that
// accesses something outside the database); too_large.
func Parse(sql string, d Dialect) (Statement, error) {
	if len(sql) > MaxStatement {
		return Statement{}, capability.Errorf(capability.CodeTooLarge, op, "the statement has %d bytes; %d are the most", len(sql), MaxStatement)
	}
	if !utf8.ValidString(sql) || strings.ContainsRune(sql, 0) {
		return Statement{}, fault.InvalidArgs("", "the statement is not text in UTF-8, or holds a NUL")
	}
	tokens, err := scan(sql, d)
	if err != nil {
		return Statement{}, err
	}
	for len(tokens) > 0 && tokens[len(tokens)-1].is(";") {
		tokens = tokens[:len(tokens)-1]
	}
	if len(tokens) == 0 {
		return Statement{}, fault.InvalidArgs("", "the statement is missing")
	}
	s := Statement{Text: sql[:tokens[len(tokens)-1].end], tokens: tokens}
	s.Kind = kind(tokens)
	// Only the body of a trigger may contain semicolons.
	if at := slices.IndexFunc(tokens, func(t token) bool { return t.is(";") }); at >= 0 && (d != SQLite || !trigger(tokens)) {
		return Statement{}, fault.InvalidArgs("", "one statement at a time: there is something behind the first")
	}
	if !s.Reads() && !s.writes() {
		return Statement{}, fault.InvalidArgs("", "a statement of the kind %.32q cannot be run here", strings.ToUpper(s.Kind))
	}
	for i, t := range tokens {
		if t.class == param && !slices.Contains(s.Params, t.value) {
			if s.Params = append(s.Params, t.value); len(s.Params) > maxParams {
				return Statement{}, fault.InvalidArgs("", "a statement has %d parameters at most", maxParams)
			}
		}
		if (t.class == word || t.class == quoted) && i+1 < len(tokens) && tokens[i+1].is("(") && reachesOut(strings.ToLower(t.value), d) {
			return Statement{}, fault.SecurityViolation("the function " + strings.ToLower(t.value) + " reaches out of the database")
		}
	}
	return s, nil
}

func (t token) is(s string) bool { return t.class == mark && t.value == s }

// kind returns the statement's verb. For WITH, it is the verb after the queries.
func kind(tokens []token) string {
	switch first := tokens[0]; {
	case first.class == quoted || first.class == literal:
		return "" // a quoted name is never a verb
	case first.class != word || first.value != "with":
		return first.value
	}
	depth := 0
	for i, t := range tokens[1:] {
		before := tokens[i] // a query may be named like a verb
		switch {
		case t.is("("):
			depth++
		case t.is(")"):
			depth--
		case before.is(",") || before.class == word && (before.value == "with" || before.value == "recursive"):
		case depth == 0 && t.class == word && slices.Contains([]string{"select", "values", "insert", "update", "delete", "replace", "merge"},
			t.value):
			return t.value
		}
	}
	return "with"
}

// trigger reports whether a statement is CREATE [TEMP] TRIGGER … END.
func trigger(tokens []token) bool {
	i := 1
	if tokens[0].value != "create" || tokens[0].class != word || len(tokens) < 4 {
		return false
	}
	if tokens[i].class == word && (tokens[i].value == "temp" || tokens[i].value == "temporary") {
		i++
	}
	last := tokens[len(tokens)-1]
	if tokens[i].class != word || tokens[i].value != "trigger" || last.class != word || last.value != "end" {
		return false
	}
	// SQLite ends a trigger at the first "; END", so only the last tokens may be that.
	for n := 0; n+2 < len(tokens)-1; n++ {
		if tokens[n].is(";") && tokens[n+1].class == word && tokens[n+1].value == "end" {
			return false
		}
	}
	return tokens[len(tokens)-2].is(";")
}

// reachesOut reports whether a function accesses the server's files, other connections
// or settings, or runs a text as a statement. The list is an additional check: the
// rights of the connection's role are what protects a database.
func reachesOut(name string, d Dialect) bool {
	if d == SQLite {
		return slices.Contains([]string{"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"}, name)
	}
	for _, prefix := range []string{
		"pg_read_", "pg_ls_", "pg_stat_file", "pg_file_", "pg_logfile", "lo_", "dblink", "pg_terminate", "pg_cancel", "pg_reload", "pg_rotate",
		"pg_promote", "pg_switch_", "pg_create_", "pg_drop_",
		"pg_logical_", "pg_replication_", "pg_wal_", "pg_start_", "pg_stop_", "pg_backup_", "pg_export_", "pg_import_", "pg_advisory_",
		"pg_try_advisory_", "pg_sleep", "query_to_xml", "cursor_to_xml", "binary_upgrade_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"loread", "lowrite", "set_config", "ts_stat", "ts_rewrite", "crosstab", "connectby", "plpy", "pg_notify"},
		name)
}

// numbered returns the text with $1, $2, … in place of the :name parameters, because
// Postgres does not support names. Nothing else changes.
func (s Statement) numbered() string {
	var b strings.Builder
	from := 0
	for _, t := range s.tokens {
		if t.class != param {
			continue
		}
		b.WriteString(s.Text[from:t.start])
		b.WriteString("$" + strconv.Itoa(slices.Index(s.Params, t.value)+1))
		from = t.end
	}
	b.WriteString(s.Text[from:])
	return b.String()
}

// behind returns the statement with words put in front of it.
func (s Statement) behind(words string) Statement {
	out := Statement{Text: words + s.Text, Kind: s.Kind, Params: s.Params}
	for _, t := range s.tokens {
		t.start += len(words)
		t.end += len(words)
		out.tokens = append(out.tokens, t)
	}
	return out
}
