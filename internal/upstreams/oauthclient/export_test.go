package oauthclient

import "net/http"

// ReadChallenge is readChallenge of one header.
func ReadChallenge(header string) (metadata string, scopes []string) {
	ch := readChallenge(http.Header{"Www-Authenticate": {header}})
	return ch.metadata, ch.scopes
}
