package gateway

// Unhealthy reports whether the circuit of a function on a node is open, because too many
// calls failed in transport.
func (g *Gateway) Unhealthy(function, node string) bool { return g.breaker.open(node, function) }
