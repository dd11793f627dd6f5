package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/protocol/router"
)

// door is a way to the endpoint. open prepares it for one load: call is used by
// many workers at once, each with its own number; end gives back what it holds.
type door struct {
	name string
	hop  *process
	open func(req request, workers int) (call func(worker int) error, end func(), err error)
}

// request is one kind of call; params gets the number of the worker.
type request struct {
	name, method string
	params       func(worker int) []byte
}

func fixed(s string) func(int) []byte { return func(int) []byte { return []byte(s) } }

func requests() []request {
	return []request{
		{
			"Read without schema (plugin.provider.get)", "plugin.provider.get",
			fixed(`{"moduleId":"device-tools","provider":"DEVICE_STATUS","state":{"values":{"room":"lab","count":3}}}`),
		},
		{
			"Read with schema (fs.readText)", "fs.readText",
			fixed(`{"endpointId":"bench","path":"hello.txt"}`),
		},
		{
			"Write (fs.writeText, synced by the endpoint)", "fs.writeText",
			func(worker int) []byte {
				return fmt.Appendf(nil, `{"endpointId":"bench","path":"bench-%d.txt","text":"a line of text\n"}`, worker)
			},
		},
	}
}

// plainDoor is the standard library's client, which looks at nothing.
func plainDoor(name, url, token string, hop *process) door {
	return door{name, hop, func(req request, workers int) (func(int) error, func(), error) {
		transport := router.DefaultTransport()
		client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
		bodies := make([][]byte, workers)
		for i := range bodies {
			bodies[i] = fmt.Appendf(nil, `{"method":%q,"params":%s}`, req.method, req.params(i))
		}
		call := func(worker int) error { return post(client, url, token, bodies[worker]) }
		return call, transport.CloseIdleConnections, nil
	}}
}

type result struct {
	p50, p99 time.Duration
	rate     float64
	cpu      time.Duration // of the hop, per call
}

// measure sends the request through every door in turn, round after round, so
// that what else the machine does hits all of them.
func measure(doors []door, req request, concurrency, calls, rounds int) ([]result, error) {
	took := make([][]time.Duration, len(doors))
	rates := make([][]float64, len(doors))
	cpu := make([]time.Duration, len(doors))
	for round := range rounds {
		for i := range doors {
			at := (i + round) % len(doors) // no target is always first
			before := doors[at].hop.cpu()
			samples, rate, err := load(doors[at], req, concurrency, calls)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", doors[at].name, err)
			}
			if round == 0 {
				continue // warms connections, caches and the machine
			}
			cpu[at] += doors[at].hop.cpu() - before
			took[at] = append(took[at], samples...)
			rates[at] = append(rates[at], rate)
		}
	}
	out := make([]result, len(doors))
	for i := range doors {
		slices.Sort(took[i])
		slices.Sort(rates[i])
		out[i] = result{
			p50: took[i][len(took[i])/2], p99: took[i][len(took[i])*99/100],
			rate: rates[i][len(rates[i])/2], cpu: cpu[i] / time.Duration(len(took[i])),
		}
	}
	return out, nil
}

// load sends calls requests from concurrency workers and returns how long each
// took and the overall rate.
func load(d door, req request, concurrency, calls int) ([]time.Duration, float64, error) {
	call, end, err := d.open(req, concurrency)
	if err != nil {
		return nil, 0, err
	}
	defer end()
	each := max(calls/concurrency, 20)
	samples := make([][]time.Duration, concurrency)
	errs := make([]error, concurrency)
	began := time.Now()
	var wg sync.WaitGroup
	for worker := range concurrency {
		wg.Go(func() {
			samples[worker] = make([]time.Duration, 0, each)
			for range each {
				start := time.Now()
				if err := call(worker); err != nil {
					errs[worker] = err
					return
				}
				samples[worker] = append(samples[worker], time.Since(start))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return nil, 0, err
		}
	}
	return slices.Concat(samples...), float64(each*concurrency) / elapsed.Seconds(), nil
}

func post(client *http.Client, url, token string, body []byte) error {
	req, err := http.NewRequest(http.MethodPost, url+router.PathInvoke, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.HasPrefix(data, []byte(`{"ok":true`)) {
		return fmt.Errorf("status %d: %.200s", resp.StatusCode, data)
	}
	return nil
}

// text is what a GET is answered with.
func text(req *http.Request) (string, error) {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", resp.StatusCode, data)
	}
	return string(data), err
}
