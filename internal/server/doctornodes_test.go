package server_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestDoctorKnowsOfNodes: the bus, the gateway and how many nodes there are; the
// scraper has the figures.
func TestDoctorKnowsOfNodes(t *testing.T) {
	t.Parallel()
	n := serve(t, t.TempDir())
	a := n.request(t, http.MethodGet, "/api/v1/doctor", n.token(t, "admin"), "")
	for _, want := range []string{`"message bus"`, "open, inside this process", `"nodes"`, "0 connected, 0 leaving, 0 away"} {
		if a.status != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("%d: no %s in %s; want a.status = http.StatusOK, a.body with %v", a.status, want, a.body, want)
		}
	}
	metrics := n.request(t, http.MethodGet, "/metrics", "", "").body
	for _, want := range []string{"junctor_nodes 0", "junctor_nodes_away 0", "junctor_node_calls 0", "junctor_nodes_refused 0"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s; want metrics with %v", want, want)
		}
	}
	if ready := n.request(t, http.MethodGet, "/readyz", "", ""); ready.body != `{"ready":true,"reasons":[]}` {
		t.Errorf("readyz = %s, want ready without reasons", ready.body)
	}
}
