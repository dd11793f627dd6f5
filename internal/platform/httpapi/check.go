package httpapi

// Check is one finding of the doctor. Name identifies what was examined, Detail
// describes its state, and Remedy, set only if OK is false, is what the operator
// can do about it.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}
