package analyze

import (
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
)

// Flags returns the flags that every analyze action accepts. They are declared beside
// the action's own, so that the parser treats the word after a flag as its value.
func Flags() []command.Flag {
	value := func(name, text string) command.Flag {
		return command.Flag{Arg: command.Arg{Name: name, Description: text}, TakesValue: true}
	}
	return []command.Flag{
		value("file", "a work file to analyse"),
		value("schema_json", "the schema itself"),
		value("schema", "a work file with the schema"),
		value("schema_id", "the schema's id"),
	}
}

// FromRoute returns the requests for analyze.response and analyze.schema that a route
// contains. The caller sets Last, Read, Resolve, Usage and AllowModel. The flags of
// [Flags] are not part of the text.
func FromRoute(r *command.Route) (Request, SchemaRequest) {
	s := Source{Args: r.Positional, Raw: r.Raw}
	if len(r.Positional) != len(r.Args) {
		s.Raw = strings.Join(r.Positional, " ")
	}
	s.File, _ = r.Flag("file")
	schema := SchemaRequest{Source: s}
	schema.SchemaJSON, _ = r.Flag("schema_json")
	schema.SchemaFile, _ = r.Flag("schema")
	schema.SchemaID, _ = r.Flag("schema_id")
	return Request{Source: s, Task: r.Action.Description}, schema
}
