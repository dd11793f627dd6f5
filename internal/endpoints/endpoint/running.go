package endpoint

// Running reports whether Run has begun and not ended, so that endpoints can be connected.
func (r *Registry) Running() bool {
	_, err := r.running()
	return err == nil
}
