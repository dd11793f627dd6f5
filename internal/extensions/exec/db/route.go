package db

import (
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// defaultFile is the database file unless --database names another.
const defaultFile = "data.db"

// Flags returns the flags that every db action accepts. They are declared beside the
// action's own, so that the parser treats the word after a flag as its value.
func Flags() []command.Flag {
	return []command.Flag{
		{
			Arg: command.Arg{Name: "p", Description: "a parameter of the statement, name=text or name:=number"}, Short: "p", TakesValue: true,
			Repeat: true,
		},
		{Arg: command.Arg{Name: "database", Description: "the SQLite file in the working folder"}, TakesValue: true},
		{Arg: command.Arg{Name: "json", Description: "the answer as JSON"}},
	}
}

// FromRoute returns the request that a route describes: the action from the runner
// (db.query, …), the statement from the words. If the action declares argv, argv is the
// statement, and the words are the values of its parameters, named as the action's args.
// The caller sets Room, DSN and Policy. The error is invalid_input.
func FromRoute(r *command.Route) (Request, error) {
	req := Request{Extension: r.Command.Extension, File: defaultFile, Timeout: r.Action.Timeout, SQL: strings.Join(r.Positional, " ")}
	verb, _ := strings.CutPrefix(r.Action.Runner, "db.")
	req.Action = Action(verb)
	if len(r.Action.Argv) > 0 {
		req.SQL = strings.Join(r.Action.Argv, " ")
		for _, arg := range r.Action.Args {
			p, err := ReadParam(arg.Name + "=" + r.Values[arg.Name])
			if err != nil {
				return req, err
			}
			if _, given := r.Values[arg.Name]; !given {
				p.Value = []byte("null")
			}
			req.Params = append(req.Params, p)
		}
		if len(r.Positional) > len(r.Action.Args) {
			return req, fault.InvalidArgs("", "there are %d words too many", len(r.Positional)-len(r.Action.Args))
		}
	}
	typed, _ := r.Flags["p"].([]string)
	for _, text := range typed {
		p, err := ReadParam(text)
		if err != nil {
			return req, err
		}
		req.Params = append(req.Params, p)
	}
	if name, ok := r.Flag("database"); ok {
		req.File = name
	}
	req.JSON = r.Flags["json"] == true || r.Action.Output.Format == "json"
	return req, nil
}
