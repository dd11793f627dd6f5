package extension

import (
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// PolicyCode is the verdict of the strict runtime policy, which an operator may turn on.
type PolicyCode string

// The verdicts.
const (
	PolicyCompliant         PolicyCode = "POLICY_COMPLIANT"
	PolicyRuntimeMissing    PolicyCode = "POLICY_RUNTIME_FIELD_MISSING"
	PolicyBinaryForbidden   PolicyCode = "POLICY_EXTERNAL_BINARY_FORBIDDEN"
	PolicyBinsMissing       PolicyCode = "POLICY_EXTERNAL_BINS_FIELD_MISSING"
	PolicyBinsInvalid       PolicyCode = "POLICY_EXTERNAL_BINS_INVALID_TYPE"
	policyRuntimeMember                = "runtime"
	policyExternalBinMember            = "external_bins"
)

// RuntimePolicy checks the text of a manifest: it must name its runtime, and declare with
// an empty external_bins that it needs no program of the machine.
func RuntimePolicy(manifest []byte) PolicyCode {
	var members map[string]json.RawMessage
	if jsonx.Unmarshal(manifest, &members) != nil || len(members[policyRuntimeMember]) == 0 || string(members[policyRuntimeMember]) == "null" {
		return PolicyRuntimeMissing
	}
	bins, there := members[policyExternalBinMember]
	if !there {
		return PolicyBinsMissing
	}
	var list []string
	if string(bins) == "null" || jsonx.Unmarshal(bins, &list) != nil {
		return PolicyBinsInvalid
	}
	if len(list) > 0 {
		return PolicyBinaryForbidden
	}
	return PolicyCompliant
}
