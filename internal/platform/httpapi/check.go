package httpapi

// Check is one finding of the doctor. Name identifies what was examined, Detail
// describes its state, and Remedy is what the operator can do about it. A check that is OK
// and has a remedy is a warning.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}
