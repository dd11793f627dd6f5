package sandbox

import (
	"cmp"
	"fmt"
)

// Status returns the report in the form of sandbox status and GET /api/v1/sandbox.
func (r Report) Status() map[string]any {
	d := DefaultLimits()
	return map[string]any{
		"tier": r.Facts.Tier, "layers": r.Layers(), "held": r.Held(), "facts": r.Facts, "tiers": r.Tiers, "at": r.At,
		"limits": map[string]any{
			"memory_bytes": d.Memory, "processes": d.Processes, "cpu_seconds": d.CPU.Seconds(), "file_bytes": d.FileSize, "open_files": d.OpenFiles,
			"disk_bytes": d.Disk, "temp_bytes": d.Temp,
		},
	}
}

// text returns the value of a limit for the error message of a run that exceeded it.
func (l Limits) text(kind string) string {
	d := DefaultLimits()
	mib := func(n, def int64) string { return fmt.Sprintf(" of %d MiB", cmp.Or(n, def)>>20) }
	switch kind {
	case "memory":
		return mib(l.Memory, d.Memory)
	case "disk":
		return mib(l.Disk, d.Disk)
	case "file_size":
		return mib(l.FileSize, d.FileSize)
	case "cpu":
		return fmt.Sprintf(" of %g seconds", cmp.Or(l.CPU, d.CPU).Seconds())
	case "processes":
		return fmt.Sprintf(" of %d", cmp.Or(l.Processes, d.Processes))
	}
	return ""
}
