package gateway

// Unhealthy reports whether calls of a function to a node are held back for now,
// because too many of them could not even start.
func (g *Gateway) Unhealthy(function, node string) bool { return g.breaker.open(node, function) }
