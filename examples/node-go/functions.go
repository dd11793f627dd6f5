package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/junctor-run/junctor/host/device"
)

// functions are what others may call.
func functions() []device.Function {
	about := device.Func("about", func(context.Context, struct{}) (machine, error) {
		name, err := os.Hostname()
		return machine{name, runtime.GOOS, runtime.GOARCH, runtime.NumCPU()}, err
	})
	about.Description, about.Effect = "Say what this machine is.", device.Read

	timer := device.Func("timer", func(ctx context.Context, in struct {
		Seconds float64 `json:"seconds"`
	},
	) (string, error) {
		if in.Seconds < 0 || in.Seconds > 3600 {
			return "", fmt.Errorf("a timer of %v seconds: it must be 0 to 3600", in.Seconds)
		}
		select {
		case <-time.After(time.Duration(in.Seconds * float64(time.Second))):
			return "time is up", nil
		case <-ctx.Done(): // the caller is gone, or their time is
			return "", ctx.Err()
		}
	})
	timer.Description, timer.Effect, timer.MaxConcurrent = "Wait, and say so.", device.Read, 4
	timer.InputSchema = json.RawMessage(`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":3600}},"required":["seconds"]}`)

	return []device.Function{about, timer, {
		Name: "primes", Description: "Count the primes up, one by one.", Effect: device.Read, Stream: primes,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"below":{"type":"integer","minimum":2,"maximum":1000000}}}`),
	}}
}

type machine struct {
	Name string `json:"name"`
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPUs int    `json:"cpus"`
}

// primes is a stream: emit waits while the reader is slow, and fails when it is gone.
func primes(_ context.Context, a device.Args, emit func(any) error) error {
	in := struct {
		Below int `json:"below"`
	}{Below: 100}
	if err := a.Decode(&in, "below"); err != nil {
		return err
	}
	for n := 2; n < min(in.Below, 1_000_000); n++ {
		if prime(n) {
			if err := emit(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}
