//go:build unix && !linux

package sandbox

func attackMain([]string) int { return 2 }
