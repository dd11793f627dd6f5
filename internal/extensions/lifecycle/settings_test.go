package lifecycle

import (
	"encoding/json"
	"testing"
)

func TestSecretsAreNeverShownAndNeverOverwrittenByWhatIsShown(t *testing.T) {
	t.Parallel()
	stored := json.RawMessage(`{"a":1,"api_key":"k","list":[{"token":"t"}],"nested":{"Password":{"x":1},"b":2}}`)
	masked, err := maskSettings(stored)
	if want := `{"a":1,"api_key":"***","list":[{"token":"***"}],"nested":{"Password":"***","b":2}}`; err != nil || string(masked) != want {
		t.Errorf("%s %v; want no error, string(masked) = %v", masked, err, want)
	}
	public, err := publicSettings(stored)
	if want := `{"a":1,"list":[{}],"nested":{"b":2}}`; err != nil || string(public) != want {
		t.Errorf("%s %v; want no error, string(public) = %v", public, err, want)
	}
	for next, want := range map[string]string{
		string(masked):                  string(stored),
		`{"a":2,"api_key":"***"}`:       `{"a":2,"api_key":"k"}`,
		`{"api_key":"new"}`:             `{"api_key":"new"}`,
		`{"nested":{"Password":"***"}}`: `{"nested":{"Password":{"x":1}}}`,
		`{"note":"***"}`:                `{"note":"***"}`,
		`{"token":"***"}`:               "",
		`{"list":[{"token":"***"},1]}`:  "",
		`[]`:                            "",
		`{"a":1,"a":2}`:                 "",
		`nonsense`:                      "",
	} {
		got, err := mergeSettings(stored, json.RawMessage(next))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf(`%s: %s %v; want string(got) = %v, (err == nil) = (want != "")`, next, got, err, want)
		}
	}
	if hasSecrets(masked) || !hasSecrets(stored) || hasSecrets(json.RawMessage(`{"a":1}`)) {
		t.Error("secrets")
	}
}
