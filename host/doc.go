// Package host is the SDK for providers. It holds functions and modules, and serves
// modules over the capability-router protocol.
//
// # Endpoints
//
// An [Endpoint] is a program of yours that a router (an agent, a junctor
// server) calls over HTTP. What it offers is a list of [Module] values: plain
// structs whose closures do the work. There is a field for every surface of the
// protocol; leave out what you do not have.
//
//	greeter := host.Module{
//		ID: "greeter", Name: "@you/greeter",
//		Actions: []host.Action{{
//			Name: "GREET", Description: "Greet a person by name.",
//			Handle: func(ctx context.Context, content, _ json.RawMessage) (host.ActionResult, error) {
//				return host.ActionResult{Text: "hello"}, nil
//			},
//		}},
//		Views: []host.View{{ID: "greeter", Label: "Greeter", Bundle: viewJS}},
//	}
//	endpoint, err := host.NewEndpoint(greeter)
//	if err != nil {
//		log.Fatal(err) // names the field that is wrong
//	}
//	log.Fatal(http.ListenAndServe("127.0.0.1:7777", endpoint.Handler(secret.New(token))))
//
// NewEndpoint reads each declaration with the decoder that routers use, so that routers of
// every generation accept a module that starts. Each result of a closure is checked
// against the protocol before it is sent, and a panic becomes the failure of one call.
// Both errors name the module and the item.
//
// The rules for closures: they are called concurrently, they must honour ctx,
// and they may neither change nor retain the JSON that they receive. An error that is
// a *capability.Error or a *router.Error is sent to the caller unchanged. The text of
// any other error stays in this process; the caller receives the code failed.
// Optional objects that a caller left out arrive as {}, any other absent value
// as nil.
//
// # Functions
//
// A [Host] holds the functions of a process. They can be registered, replaced and removed
// while calls are running. The server offers its own files, terminals and git this way.
// [ModuleOf] offers the functions of a Host as the actions of a module.
//
// A host does not decide who may call. It finds the function, recovers from a panic, and
// discards progress that is reported after the result.
//
//	h := host.New(host.Config{})
//	err := h.Register(host.Function{
//		ID: "greet", Tool: "greet", Effect: capability.EffectRead,
//		Handle: func(ctx context.Context, c capability.Call) (capability.Result, error) {
//			return capability.Result{Value: json.RawMessage(`{"text":"hello"}`)}, nil
//		},
//	})
package host
