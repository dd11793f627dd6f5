package sandbox

// Status is the report as sandbox status and GET /api/v1/sandbox give it.
func (r Report) Status() map[string]any {
	d := DefaultLimits()
	return map[string]any{
		"tier": r.Facts.Tier, "layers": r.Layers(), "held": r.Held(), "facts": r.Facts, "tiers": r.Tiers, "at": r.At,
		"limits": map[string]any{
			"memory_bytes": d.Memory, "processes": d.Processes, "cpu_seconds": d.CPU.Seconds(), "file_bytes": d.FileSize, "open_files": d.OpenFiles, "disk_bytes": d.Disk, "temp_bytes": d.Temp,
		},
	}
}
