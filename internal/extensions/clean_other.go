//go:build !linux

package extensions

import "time"

func fileNow() time.Time { return time.Now() }

// clean does nothing: this system does not report when a file was created.
func clean(string, time.Time) {}
