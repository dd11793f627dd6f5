package natsdial_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, addresses string
		want            int // 0: refused
		says            string
	}{
		{"one", "https://gateway.example", 1, ""},
		{"several, with spaces", "https://a.example, https://b.example:8443", 2, ""},
		{"with and without encryption on this machine", "http://127.0.0.1:1,https://b.example", 2, ""},
		{"servers", "tls://a.example:4222,nats://[::1]:4222", 2, ""},
		{"none", "", 0, "write https://host"},
		{"an empty one", "https://a.example,", 0, "write https://host"},
		{"a user", "https://u:p@a.example", 0, "without a user"},
		{"another protocol", "https://a.example,ftp://b.example", 0, "its scheme"},
		{"no encryption elsewhere", "https://a.example,http://b.example", 0, "without encryption"},
		{"gateways and servers", "https://a.example,tls://b.example:4222", 0, "all are gateways"},
		{"too many", strings.Repeat("https://a.example,", 16) + "https://a.example", 0, "more than 16"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all, err := natsdial.Addresses(tt.addresses)
			if tt.want > 0 && (err != nil || len(all) != tt.want) || tt.want == 0 && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("%v %v; want not (tt.want > 0 && (err != nil || len(all) != tt.want)), not (tt.want == 0 && (err == "+
					"nil || !strings.Contains(err.Error(), tt.says)))", all, err)
			}
			if _, bad := natsdial.Dialer(tt.addresses, nil); (bad != nil) != (err != nil) {
				t.Errorf("a dialer says %v; want (bad != nil) = (err != nil)", bad)
			}
		})
	}
	if _, err := natsdial.Dialer("http://127.0.0.1:1,https://127.0.0.1:1", nil); err == nil {
		t.Error("one door with and without encryption; want an error")
	}
}
