package device_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/secret"
)

// A device that cannot enrol states why before it touches the network.
//
//nolint:lll // the output is one line
func ExampleRun() {
	shout := device.Func("demo.shout", func(_ context.Context, in struct {
		Text string `json:"text"`
	},
	) (string, error) {
		return in.Text + "!", nil
	})
	err := device.Run(context.Background(), device.Config{
		Gateway: "http://gateway.example", Token: secret.New("the operator's node token"), Functions: []device.Function{shout},
	})
	if e, ok := errors.AsType[*capability.Error](err); ok {
		fmt.Println(e.Code, e.Message)
	}
	// Output:
	// invalid_input this is not the address of a gateway: without encryption only this machine is reached; use https or tls, or the near end of a tunnel
}
