// Package device lets a program join a gateway as a node: what it registers can be
// called by everybody the gateway lets, and skills can be put on it while it runs.
//
//	echo := device.Func("demo.echo", func(ctx context.Context, in struct{ Text string }) (string, error) {
//		return in.Text, nil
//	})
//	err := device.Run(ctx, device.Config{
//		Gateway: "https://gateway.example", Token: secret.New(token), Dir: "node", Functions: []device.Function{echo},
//	})
//
// The first time, the node makes a key, shows the gateway its public half together
// with the operator's node token, and keeps both the key and its id in Dir; from
// then on the token is not needed. Without a Dir nothing is kept: the token is shown
// each time, and it has no skills.
//
// Run comes back by itself whatever happens to the network. It ends when its context
// does, when the node drains or leaves, and with an error when coming back would do
// no good.
//
// A handler runs on a goroutine of its own, beside others of its kind unless
// MaxConcurrent says otherwise. Its context ends when the caller goes away, when the
// time of the call is over, or when the session is lost: no caller waits for the answer
// then. A panic is the failure of one call.
package device
