package signin

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// recorded is the sign-in screen of Codex 0.169.0, whose address is three and a bit lines
// long at 120 columns.
func recorded(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../term/testdata/golden/codex-login-menu.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, screen, ok := strings.Cut(string(data), "--- screen\n")
	if !ok {
		t.Fatal("the recording has another form")
	}
	return strings.Split(screen, "\n")
}

const codexAddress = "https://auth.openai.com/oauth/authorize?response_type=code&client_id=app_EMoamEEZ73f0CkXaXp7hrann&redirect_uri=http%3A%2F%2F127.0.0.1%3A1455%2Fauth%2Fcallback&code_challenge=fh5qZB6NEUrGTM3v3KX10dLV6Dr3cL7Hpaedd_iFZHw&code_challenge_method=S256&state=A031TobKlawHN90cttvlinS1aZrpHN20BbOMLjgrq18&scope=openid+profile+email+offline_access+api.connectors.read+api.connectors.invoke&id_token_add_organizations=true&codex_cli_simplified_flow=true&originator=codex-tui"

func TestWhatALoginShows(t *testing.T) {
	t.Parallel()
	edge := "https://claude.ai/oauth/authorize?code=true&" + strings.Repeat("x", 76)
	for name, tt := range map[string]struct {
		lines, links []string
		want         found
	}{
		"a recorded screen": {lines: recorded(t), want: found{url: codexAddress}},
		"a plain address": {
			lines: []string{"If the browser didn't open, visit: https://claude.ai/oauth/authorize?code=true."},
			want:  found{url: "https://claude.ai/oauth/authorize?code=true"},
		},
		"a link is whole": {
			lines: []string{"Open https://auth.openai.com/oauth…"},
			links: []string{"https://auth.openai.com/oauth/authorize?a=b"}, want: found{url: "https://auth.openai.com/oauth/authorize?a=b"},
		},
		"a link whose text says another host": {
			lines: []string{"https://claude.ai/login"}, links: []string{"https://evil.example/claude.ai"},
			want: found{url: "https://claude.ai/login", others: []string{"https://evil.example/claude.ai"}},
		},
		"our own machine is not where people log in": {
			lines: []string{"Starting local login server on http://localhost:1455.", "navigate to this URL:", "", "https://auth.openai.com/x"},
			want:  found{url: "https://auth.openai.com/x"},
		},
		"a device code": {
			lines: []string{
				"1. Open this link in your browser", "   https://auth.openai.com/codex/device",
				"2. Enter this one-time code (expires in 15 minutes)", "   ABCD-12345",
			},
			want: found{url: "https://auth.openai.com/codex/device", code: "ABCD-12345"},
		},
		"no code where nobody speaks of one": {lines: []string{"GPT5-MINI is here", "ABCD-1234"}, want: found{}},
		"a code inside of an address": {
			lines: []string{"the code: https://claude.ai/x?c=ABCD-1234"},
			want:  found{url: "https://claude.ai/x?c=ABCD-1234"},
		},
		"another's host": {
			lines: []string{"https://claude.ai.evil.example/login"},
			want:  found{others: []string{"https://claude.ai.evil.example/login"}},
		},
		"without TLS": {
			lines: []string{"http://claude.ai/login"},
			want:  found{others: []string{"http://claude.ai/login"}},
		},
		"with a user": {
			lines: []string{"https://claude.ai@evil.example/"},
			want:  found{others: []string{"https://claude.ai@evil.example/"}},
		},
		"with a password": {
			lines: []string{"https://x:y@claude.ai/"},
			want:  found{others: []string{"https://x:y@claude.ai/"}},
		},
		"with a port": {
			lines: []string{"https://claude.ai:8443/"},
			want:  found{others: []string{"https://claude.ai:8443/"}},
		},
		"one that ends at the edge":  {lines: []string{edge, "Then press Enter to go on"}, want: found{url: edge}},
		"one that goes on, indented": {lines: []string{"  " + edge[:118], "  " + edge[118:] + "y"}, want: found{url: edge + "y"}},
		"nothing":                    {lines: []string{"", "Welcome"}, want: found{}},
	} {
		if d := cmp.Diff(tt.want, look(tt.lines, cols, tt.links), cmp.AllowUnexported(found{})); d != "" {
			t.Errorf(`%s: %s; want d = ""`, name, d)
		}
	}
}

func FuzzLook(f *testing.F) {
	f.Add("https://claude.ai/x\nABCD-1234", "https://auth.openai.com/")
	f.Add(strings.Repeat("https://chatgpt.com/"+strings.Repeat("a", 100)+"\n", 50), "")
	f.Add("code\nhttps://[::1", "http://%zz")
	f.Fuzz(func(t *testing.T, screen, link string) {
		got := look(strings.Split(screen, "\n"), cols, []string{link})
		if got.url != "" && !openable(got.url) {
			t.Errorf(`%q may not be opened; want not (got.url != "" && !openable(got.url))`, got.url)
		}
		if got.code != "" && !code.MatchString(got.code) {
			t.Errorf(`%q is not a code; want not (got.code != "" && !code.MatchString(got.code))`, got.code)
		}
		if p := got.prompt([]string{"x"}); len(p.Instructions) > 2*maxTold {
			t.Errorf("%d bytes of instructions; want len(p.Instructions) at most 2 * maxTold", len(p.Instructions))
		}
	})
}
