// Package device lets a program join a gateway as a node. The functions that it registers
// can be called by all principals that the gateway permits, and skills can be installed
// while it runs.
//
//	echo := device.Func("demo.echo", func(ctx context.Context, in struct{ Text string }) (string, error) {
//		return in.Text, nil
//	})
//	err := device.Run(ctx, device.Config{
//		Gateway: "https://gateway.example", Token: secret.New(token), Dir: "node", Functions: []device.Function{echo},
//	})
//
// At its first start the node creates a key, sends its public half with the operator's
// node token to the gateway, and stores the key and its id in Dir. Later starts do not
// need the token. Without a Dir nothing is stored: the token is sent at each start, and
// skills are refused.
//
// Run reconnects after every loss of the network. It returns when its context ends, when
// the node drains or leaves, and with an error if the gateway refuses the node for good.
//
// A handler runs on a goroutine of its own, concurrently with others unless MaxConcurrent
// is 1. Its context ends when the caller cancels or disconnects, at the call's deadline,
// and when the session is lost, because no caller waits for the answer then. A panic is
// reported as the failure of one call.
package device
