package memory

// LegacyMark returns the mark of a workspace as the first version of the tables wrote it.
func LegacyMark(workspace string) string { return mark("w", workspace) }
