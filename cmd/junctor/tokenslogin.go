package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/secret"
)

// signedIn is what junctor login keeps in login.json of the home.
type signedIn struct {
	URL       string    `json:"url"` // "": the server that runs on the home
	Token     string    `json:"token"`
	Principal string    `json:"principal"`
	Role      string    `json:"role"`
	Expires   time.Time `json:"expires"`
}

func (a *app) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use: "login", Short: "Sign in to a server with the account of your organization", Args: cobra.NoArgs,
		Long: `Signs you in to a server that admits people by an OpenID provider (oidc.issuer). Open
the address that is shown in any browser and confirm the code there. Further commands
then act as you, until the sign-in ends or "junctor logout": at the server named with
--server, also without naming it again, otherwise at the server of the home.

A token that is given (--token, JUNCTOR_TOKEN) or another --server has precedence.`,
		Example: `  junctor login --server https://junctor.example.org
  junctor login`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.signIn(cmd.Context()) },
	}
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "End what junctor login began", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.signOut(cmd.Context()) },
	}
}

func (a *app) signIn(ctx context.Context) error {
	home, address, err := a.serverURL()
	if err != nil {
		return err
	}
	c, err := client.New(client.Config{URL: address})
	if err != nil {
		return err
	}
	var begun struct {
		URL, Code, Complete, Login string
		Expires                    time.Time
	}
	if err := c.Do(ctx, http.MethodPost, "/api/v1/login", nil, &begun); err != nil {
		return err
	}
	show := cmp.Or(begun.Complete, begun.URL)
	if u, err := url.Parse(show); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return capability.Errorf(capability.CodeFailed, "", "the sign-in provider has no address that a browser can open")
	}
	fmt.Fprintf(a.stderr, "open this address in a browser, and confirm the code %s there within %s:\n\n  %s\n\n",
		plainText(begun.Code), time.Until(begun.Expires).Round(time.Minute), plainText(show))
	got, err := awaitSignIn(ctx, c, begun.Login, begun.Expires)
	if err != nil {
		return err
	}
	if a.far() {
		got.URL = address
	}
	old, _ := readLogin(home) // one that cannot be read is replaced
	if err = os.MkdirAll(home, 0o700); err == nil {
		err = hostfs.WriteJSON(loginFile(home), got)
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "", "the sign-in cannot be kept in "+loginFile(home), err)
	}
	if old != nil {
		_, _ = a.endLogin(ctx, old) // its end is not far
	}
	if a.json {
		got.Token = "" // it is for the file only
		return a.printObject(got)
	}
	a.printf("signed in as %s until %s\n", plainText(got.Principal), got.Expires.Local().Format(time.DateTime))
	return nil
}

// awaitSignIn asks the server until the person has signed in.
func awaitSignIn(ctx context.Context, c *client.Client, login string, expires time.Time) (signedIn, error) {
	ctx, cancel := context.WithTimeout(ctx, min(time.Until(expires), loginMaxTimeout))
	defer cancel()
	for {
		var got struct {
			signedIn
			Pending bool `json:"pending"`
		}
		err := c.Do(ctx, http.MethodPost, "/api/v1/login/wait", map[string]string{"login": login}, &got)
		switch {
		case err != nil && ctx.Err() != nil:
			return signedIn{}, capability.Errorf(capability.CodeTimeout, "", "the sign-in was not confirmed in time").
				With("", "begin again: junctor login")
		case err != nil:
			return signedIn{}, err
		case got.Token != "":
			return got.signedIn, nil
		case !got.Pending:
			return signedIn{}, capability.Errorf(capability.CodeFailed, "", "the server's answer to the sign-in has no token")
		}
		select { // the server waits by itself, unless it is not ours
		case <-time.After(askInterval):
		case <-ctx.Done():
		}
	}
}

func (a *app) signOut(ctx context.Context) error {
	home, err := a.findHome()
	if err != nil {
		return err
	}
	l, err := readLogin(home)
	if err != nil {
		return err
	}
	if l == nil {
		return capability.Errorf(capability.CodeConflict, "", "you are not signed in").With("not_signed_in", "sign in with: junctor login")
	}
	if err := os.Remove(loginFile(home)); err != nil {
		return capability.Wrap(capability.CodeFailed, "", "the sign-in cannot be removed", err)
	}
	end, err := a.endLogin(ctx, l)
	if err != nil && capability.CodeOf(err) != capability.CodeUnauthenticated {
		a.warnf("the server did not end it, so its token stays valid until %s: %s", l.Expires.Local().Format(time.DateTime),
			capability.AsError(err).Message)
	}
	if a.json {
		out := map[string]any{"ok": true}
		setText(out, "url", end)
		return a.printObject(out)
	}
	a.printf("signed out\n")
	if u, err := url.Parse(end); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		a.note("your browser may still be signed in at the provider; this address signs it out there: " + plainText(end))
	}
	return nil
}

// endLogin revokes the token at the server, and returns the address that signs out at the provider.
func (a *app) endLogin(ctx context.Context, l *signedIn) (end string, err error) {
	address := l.URL
	if address == "" {
		if _, address, err = a.serverURL(); err != nil {
			return "", err
		}
	}
	c, err := client.New(client.Config{URL: address, Token: secret.New(l.Token)})
	if err != nil {
		return "", err
	}
	var out struct{ URL string }
	err = c.Do(ctx, http.MethodDelete, "/api/v1/login", nil, &out)
	return out.URL, err
}

func loginFile(home string) string { return filepath.Join(home, "login.json") }

// readLogin returns the sign-in of the home, or nil if it has none.
func readLogin(home string) (*signedIn, error) {
	var l *signedIn
	err := hostfs.ReadJSON(loginFile(home), &l)
	if err == nil && l == nil {
		return nil, nil //nolint:nilnil // not signed in
	}
	if err != nil || l.Token == "" {
		return nil, capability.Wrap(capability.CodeFailed, "", "the file "+loginFile(home)+" is not a sign-in", err).
			With("", "remove it, and run junctor login")
	}
	return l, nil
}

// loginFor returns the server and token of the sign-in of the home. ok is false if the home has
// none, or if a token or another server was named. A sign-in that has ended is an error, so that
// commands do not go on with the rights of the home's admin token.
func (a *app) loginFor() (address string, token secret.Value, ok bool, err error) {
	if a.token != "" || a.env("JUNCTOR_TOKEN") != "" {
		return "", secret.Value{}, false, nil
	}
	home, err := a.findHome()
	if err != nil {
		return "", secret.Value{}, false, err
	}
	l, err := readLogin(home)
	if err != nil || l == nil {
		return "", secret.Value{}, false, err
	}
	named := a.server
	if named == "" {
		named = a.env("JUNCTOR_URL")
	}
	if named != "" && named != l.URL {
		return "", secret.Value{}, false, nil
	}
	if !time.Now().Before(l.Expires) {
		return "", secret.Value{}, false, capability.Errorf(capability.CodeUnauthenticated, "",
			"the sign-in of %s has ended", plainText(l.Principal)).
			With("login_ended", "sign in again with: junctor login; or drop it with: junctor logout")
	}
	if address = l.URL; address == "" {
		_, address, err = a.serverURL()
	}
	return address, secret.New(l.Token), err == nil, err
}
