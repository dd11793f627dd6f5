package db

import (
	"strings"

	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// defaultFile is the database if the caller names none.
const defaultFile = "data.db"

// Flags are what every db action understands, to be declared beside its own, so
// that a value may follow as a word.
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

// FromRoute reads a call off a route: what is to be done from the runner (db.query,
// …), the statement from the words. Room, DSN and Policy are the caller's to add.
// An action whose argv is declared has its statement there: its words are
// parameters' values by the names of the action's args.
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
