// Package host is for those who offer something: it carries functions and
// modules, and serves modules on the capability-router wire.
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
// NewEndpoint reads each declaration with the decoder that routers use, so a
// module that starts is a module that routers accept, of every generation: it
// writes only what all of them understand. Each answer of a closure is held to
// the protocol before it leaves, and a panic becomes the failure of one call;
// both are reported in the name of the module and the item at fault.
//
// The rules for closures: they are called concurrently, they must honour ctx,
// and they may neither change nor keep the JSON they are given. An error that is
// a *capability.Error or a *router.Error reaches the caller as it is; the text of
// any other stays in this process, and the caller learns that the item failed.
// Optional objects that a caller left out arrive as {}, any other absent value
// as nil.
//
// # Functions
//
// A [Host] carries functions inside a process: things that can be called,
// registered, replaced and withdrawn while calls are running. The server carries
// its own files, terminals and git this way; a device that joins a gateway
// carries its functions with the same code. [ModuleOf] offers the functions of a
// Host as the actions of a module.
//
// A host decides nothing about who may call. It finds the function, contains a
// panic, and sees to it that no progress is reported after the answer.
//
//	h := host.New(host.Config{})
//	err := h.Register(host.Function{
//		ID: "greet", Tool: "greet", Effect: capability.EffectRead,
//		Handle: func(ctx context.Context, c capability.Call) (capability.Result, error) {
//			return capability.Result{Value: json.RawMessage(`{"text":"hello"}`)}, nil
//		},
//	})
package host
