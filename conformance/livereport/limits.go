package livereport

// MaxBytes bounds one report file.
const MaxBytes = 8 << 20
