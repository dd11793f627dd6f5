package extension_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/command"
	"github.com/junctor-run/junctor/internal/intake/extension"
)

func TestCommandsAreRoutedAsThePackageDeclaresThem(t *testing.T) {
	t.Parallel()
	p, err := extension.Read(tree(t, "testdata/postman"), rules())
	if err != nil {
		t.Fatal(err)
	}
	router := command.New(command.Table{Commands: p.Table(true, "h")})
	if problems := router.Problems(); len(problems) != 0 {
		t.Fatal(problems)
	}
	route, is, err := router.Route("/postman get https://api.example.com/x")
	if err != nil || !is {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]string{"url": "https://api.example.com/x"}, route.Values); d != "" || route.Action.Runner != "exec.postman_cli" || route.Command.Generation != "h" {
		t.Error(d, route.Action)
	}
	for i := range p.Commands[0].Actions {
		want, got := &p.Commands[0].Actions[i], &route.Command.Actions[i]
		seconds := want.TimeoutSec
		if seconds == 0 {
			seconds = p.Manifest.Limits.TimeoutSec
		}
		if got.ID != want.ID || got.Timeout != time.Duration(seconds)*time.Second || len(got.Args) != len(want.Args) || len(got.Flags) != len(want.Flags) || len(got.Permissions) == 0 {
			t.Errorf("%+v\n%+v", want, got)
		}
	}
	if off := command.New(command.Table{Commands: p.Table(false, "h")}); off != nil {
		if _, _, err := off.Route("/postman get https://a"); err == nil {
			t.Error("a disabled extension's command was routed")
		}
	}
}
