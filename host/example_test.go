package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// A module with one action and one route, served with a token and called as a
// router calls it.
func ExampleNewEndpoint() {
	greet := func(name string) string { return "Hello, " + name + "." }
	endpoint, err := host.NewEndpoint(host.Module{
		ID: "greeter", Name: "@you/greeter",
		Actions: []host.Action{{
			Name: "GREET", Description: "Greet somebody by name.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`),
			Handle: func(_ context.Context, content, _ json.RawMessage) (host.ActionResult, error) {
				var who struct{ Name string }
				if err := json.Unmarshal(content, &who); err != nil {
					return host.ActionResult{}, err
				}
				return host.ActionResult{Text: greet(who.Name)}, nil
			},
		}},
		Routes: []host.Route{{
			Method: "GET", Path: "/greetings/:name",
			Handle: func(_ context.Context, r host.RouteRequest) (host.RouteResponse, error) {
				return host.RouteResponse{Body: map[string]string{"greeting": greet(r.Params["name"])}}, nil
			},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	token := secret.New("a-token")
	server := httptest.NewServer(endpoint.Handler(token))
	defer server.Close()

	client, err := router.NewClient(router.ClientConfig{ID: "greeter-1", BaseURL: server.URL, Token: token})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdle()
	for _, call := range []struct{ method, params string }{
		{"plugin.action.invoke", `{"moduleId":"greeter","action":"GREET","content":{"name":"Ada"}}`},
		{"plugin.route.call", `{"moduleId":"greeter","method":"GET","path":"/greetings/Jos%C3%A9"}`},
	} {
		result, err := client.Invoke(context.Background(), call.method, json.RawMessage(call.params))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(result))
	}
	// Output:
	// {"text":"Hello, Ada."}
	// {"status":200,"body":{"greeting":"Hello, José."}}
}

// A declaration that routers would refuse is an error at start.
func ExampleNewEndpoint_wrongDeclaration() {
	_, err := host.NewEndpoint(host.Module{
		ID: "greeter", Name: "@you/greeter",
		Widgets: []host.Widget{{ID: "w", Label: "Greeter", Slot: "wallet"}},
	})
	fmt.Println(err)
	// Output:
	// host.endpoint: module "greeter": Widgets[0].Slot is "wallet"; the slots every router knows are chat-sidebar, character, nav-page
}
