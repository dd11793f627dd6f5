package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
)

// beCollector is a collector of OTLP over HTTP that accepts everything and keeps nothing.
func beCollector() error {
	return serveAndAnnounce(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
}

// telemetry compares reads through a server with those through one that sends each call to a
// collector, both connected to one endpoint.
func telemetry(sh *sheet, calls, rounds int) error {
	stage, err := newStage()
	if err != nil {
		return err
	}
	defer stage.close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	collector, err := start(self, "-collector")
	if err != nil {
		return err
	}
	defer collector.stop()
	told, token, err := stage.serve(filepath.Join(stage.dir, "told"), "JUNCTOR_OTEL_ENDPOINT="+collector.url)
	if err != nil {
		return err
	}
	defer told.stop()
	doors := []door{
		plainDoor("without", stage.server.url, stage.operatorToken, stage.server),
		plainDoor("with OTLP", told.url, token, told),
	}
	req := requests()[0]
	for _, concurrency := range []int{16, 64} {
		results, err := measure(doors, req, concurrency, calls, rounds)
		if err != nil {
			return err
		}
		for i, r := range results {
			fmt.Fprintf(sh.out, "%s, %d at once: p50 %s, %.0f calls/s, %s of processor a call\n", doors[i].name, concurrency,
				us(r.p50), r.rate, us(r.cpu))
		}
		what := fmt.Sprintf("Read with each call sent to a collector (OTLP), %d at once", concurrency)
		sh.rate(what, "without", results[0].rate, results[1].rate, "go run ./bench -otlp")
	}
	return nil
}
