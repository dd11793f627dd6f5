package lifecycle

// WithFault lets the named points of the Manager fail, or panic.
func (c Config) WithFault(f func(point string) error) Config {
	c.fault = f
	return c
}
