package capability

// The reasons of errors that several packages raise, or that one raises and another
// handles. A reason that a single package raises is a constant of that package;
// docs/errors.md explains every one.
const (
	ReasonAddressDenied      = "address_denied"
	ReasonConfirmation       = "confirmation_required"
	ReasonConnectionFailed   = "connection_failed"
	ReasonIdleTimeout        = "idle_timeout"
	ReasonOutputLimit        = "output_limit"
	ReasonOutputSchema       = "output_schema_violation"
	ReasonPanic              = "panic"
	ReasonRateLimited        = "rate_limited"
	ReasonResourceLimit      = "resource_limit"
	ReasonRetracted          = "capability_retracted"
	ReasonSecurityViolation  = "security_violation"
	ReasonServiceUnavailable = "service_unavailable"
	ReasonToolError          = "tool_error"
)
