package agentserve

import (
	"net/http"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestACheckoutOfAnotherMachineIsRefused(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for _, address := range []string{"192.0.2.1:4711", "[2001:db8::1]:4711", "@", ""} {
		r := &http.Request{RemoteAddr: address}
		_, err := s.create(r, capability.Principal{Role: capability.RoleAdmin}, createRequest{Task: "x", Checkout: "/work"})
		if e := capability.AsError(err); e == nil || e.Code != capability.CodeInvalidInput || e.Reason != "remote_checkout" {
			t.Errorf("create(from %q) = %v, want invalid_input, remote_checkout", address, err)
		}
	}
	for _, address := range []string{"127.0.0.1:4711", "[::1]:4711"} {
		if !local(&http.Request{RemoteAddr: address}) {
			t.Errorf("local(%s) = false, want true", address)
		}
	}
}
