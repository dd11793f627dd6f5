package router

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/secret"
)

func providerResult() json.RawMessage {
	return json.RawMessage(`{"text":"ready","values":{"a":1,"b":"two"},"data":{"rows":[` +
		strings.TrimSuffix(strings.Repeat(`{"id":12,"name":"some name","ok":true},`, 20), ",") + `]}}`)
}

func BenchmarkDecodeResultPassThrough(b *testing.B) {
	raw := providerResult()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeResult("plugin.provider.get", raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeParamsPassThrough(b *testing.B) {
	raw := json.RawMessage(`{"moduleId":"device-tools","provider":"DEVICE_STATUS","state":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeParams("plugin.provider.get", raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallOverHTTP(b *testing.B) {
	raw := providerResult()
	srv := httptest.NewServer(Handler(RequireToken(secret.New("t"),
		scripted(func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			return raw, nil
		})), HandlerOptions{}))
	defer srv.Close()
	c, err := NewClient(ClientConfig{BaseURL: srv.URL, Token: secret.New("t")})
	if err != nil {
		b.Fatal(err)
	}
	defer c.CloseIdle()
	params := json.RawMessage(`{"moduleId":"device-tools","provider":"DEVICE_STATUS","state":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Invoke(b.Context(), "plugin.provider.get", params); err != nil {
			b.Fatal(err)
		}
	}
}
