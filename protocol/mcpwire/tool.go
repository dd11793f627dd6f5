package mcpwire

// Tool is the definition of a tool in the result of tools/list.
type Tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	InputSchema any             `json:"inputSchema"`
	Annotations map[string]bool `json:"annotations"` // hints, such as readOnlyHint
	Meta        any             `json:"_meta,omitempty"`
}
