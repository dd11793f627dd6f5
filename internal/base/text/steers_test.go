package text_test

import (
	"testing"

	"github.com/junctor-run/junctor/internal/base/text"
)

func TestVariablesThatSteerLoadersAndClients(t *testing.T) {
	for name, want := range map[string]bool{
		"LD_PRELOAD": true, "ld_audit": true, "GLIBC_TUNABLES": true, "MALLOC_CHECK_": true, "OPENSSL_CONF": true, "SSL_CERT_FILE": true,
		"CURL_HOME": true, "PERL5DB": true, "RUBYOPT": true, "NODE_OPTIONS": true, "LESSOPEN": true, "HOSTALIASES": true,
		"TAR_OPTIONS": true, "BASH_ENV": true, "GIT_CONFIG_COUNT": true, "GIT_SSH_COMMAND": true, "PYTHONSTARTUP": true,
		"JAVA_TOOL_OPTIONS": true, "DYLD_INSERT_LIBRARIES": true, "NODE_EXTRA_CA_CERTS": true,

		"PATH": false, "HOME": false, "LANG": false, "NODE_ENV": false, "PYTHONUNBUFFERED": false, "GIT_AUTHOR_NAME": false,
		"MEMORY_FILE_PATH": false, "API_KEY": false, "LESS": false,
	} {
		if got := text.IsSteering(name); got != want {
			t.Errorf("IsSteering(%q) = %v, want %v", name, got, want)
		}
	}
}
