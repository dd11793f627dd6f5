package endpoint

// Running reports whether endpoints can be connected: Run has begun and has not
// ended.
func (r *Registry) Running() bool {
	_, err := r.running()
	return err == nil
}
