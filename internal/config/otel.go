package config

import (
	"fmt"
	"net/url"
)

// OTel configures the export of calls and metrics to an OpenTelemetry collector.
type OTel struct {
	Endpoint    string `koanf:"endpoint" doc:"URL of an OpenTelemetry collector for metrics and traces of calls, without inputs and results: OTLP over HTTP, without v1/traces, such as http://127.0.0.1:4318."`
	TokenSecret string `koanf:"token_secret" doc:"Bearer token for otel.endpoint, which must be https or on this machine."`
}

func (o OTel) validate() error {
	if o.Endpoint == "" {
		if o.TokenSecret != "" {
			return fmt.Errorf("otel.token_secret: it is for otel.endpoint, which is empty")
		}
		return nil
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("otel.endpoint: give an http or https URL without a user, password or query")
	case o.TokenSecret != "" && u.Scheme == "http" && !isLoopback(u.Hostname()):
		return fmt.Errorf("otel.token_secret: the token would leave this machine unencrypted; use an https URL in otel.endpoint")
	}
	return nil
}
