package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
)

// oauthFlags holds the flags about tokens for an upstream.
type oauthFlags struct {
	on, machine                  bool
	login                        string
	id, secret, metadata, issuer string
	subject, subjectType         string
	scopes                       []string
}

func (o *oauthFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.on, "oauth", false, "get tokens from the authorization server that the URL names: see junctor mcp login")
	f.StringVar(&o.login, "login", "", "`WHO` whose login calls use: shared by all, or each principal's own (default shared)")
	f.BoolVar(&o.machine, "client-credentials", false, "get tokens with the client id and its secret alone; without a user logging in")
	f.StringVar(&o.subject, "exchange", "", "`SECRET` secret with a token to exchange for the upstream's (RFC 8693); without a user logging in")
	f.StringVar(&o.subjectType, "exchange-type", "", "`KIND` what that token is: access_token, id_token, jwt, refresh_token, saml1 or saml2 (default access_token)")
	f.StringVar(&o.id, "client-id", "", "`ID` client id that the authorization server gave you (default one is registered)")
	f.StringVar(&o.secret, "client-secret", "", "`SECRET` secret that goes with the client id")
	f.StringVar(&o.metadata, "client-metadata", "", "`URL` URL of a client-id metadata document, where the server takes one")
	f.StringVar(&o.issuer, "issuer", "", "`URL` only authorization server that may be used")
	f.StringArrayVar(&o.scopes, "scope", nil, "`SCOPE` scope to ask for, in place of what the server proposes (repeatable)")
}

// record returns the member oauth of the request, or nil if no such flag was given.
func (o *oauthFlags) record() map[string]any {
	if !o.on && !o.machine && o.subject == "" && o.id == "" && o.metadata == "" && o.secret == "" && o.issuer == "" && o.login == "" &&
		len(o.scopes) == 0 {
		return nil
	}
	body := make(map[string]any)
	for name, text := range map[string]string{
		"client_id": o.id, "client_secret": o.secret, "client_metadata": o.metadata, "issuer": o.issuer,
		"subject_secret": o.subject, "subject_type": o.subjectType, "login": o.login,
	} {
		setText(body, name, text)
	}
	switch {
	case o.machine:
		body["grant"] = "client_credentials"
	case o.subject != "":
		body["grant"] = "token_exchange"
	}
	if len(o.scopes) > 0 {
		body["scopes"] = o.scopes
	}
	return body
}

func (a *app) upstreamsLoginCommand() *cobra.Command {
	var port int
	var principal string
	c := &cobra.Command{
		Use: "login NAME", Short: "Log in to an upstream that was added with --oauth or --login each",
		Long: `Log in to an upstream: open the address that is shown in a browser on this
machine, and consent there. The tokens go to the server's secret store and are
renewed by it; they are never shown. Where each principal has its own login, it
is yours, and that of the task agents and the assistant that act for you.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), loginTimeout)
			defer cancel()
			return a.login(ctx, args[0], principal, port)
		},
	}
	c.Flags().StringVar(&principal, "for", "", "`PRINCIPAL` log in for a program with a token, such as agent:local-agent, where each principal logs in")
	c.Flags().IntVar(&port, "port", 0, "port of 127.0.0.1 that the answer comes to, where the client was registered with one (default any)")
	return c
}

// login starts a login, prints the address for the browser, receives the answer on 127.0.0.1 and
// sends it to the server.
func (a *app) login(ctx context.Context, name, principal string, port int) error {
	client, err := a.client()
	if err != nil {
		return err
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return capability.Wrap(capability.CodeUnavailable, "", "nothing can listen on port "+strconv.Itoa(port)+" of this machine", err)
	}
	defer listener.Close()
	path := upstreamPath(name, "/login")
	var begun struct{ URL string }
	step := map[string]any{"redirect": "http://" + listener.Addr().String() + "/callback"}
	setText(step, "for", principal)
	if err := client.Do(ctx, http.MethodPost, path, step, &begun); err != nil {
		return err
	}
	address, err := url.Parse(begun.URL)
	if err != nil || address.Scheme != "https" && address.Scheme != "http" {
		return capability.Errorf(capability.CodeFailed, "", "the authorization server of %s has no address that a browser can open", name)
	}
	fmt.Fprintf(a.stderr, "open this address in a browser on this machine, within %s:\n\n  %s\n\n", loginTimeout, plainText(address.String()))
	query, err := awaitCallback(ctx, listener, address.Query().Get("state"))
	if err != nil {
		return err
	}
	step = map[string]any{"answer": query}
	setText(step, "for", principal)
	return a.call(ctx, http.MethodPost, path, step, decoded(func(out struct {
		Upstream  upstreamRow
		Principal string
	},
	) error {
		if out.Principal != "" {
			a.printf("%s is logged in to %s\n", plainText(out.Principal), plainText(name))
			return nil
		}
		a.printf("logged in to %s: %s\n", plainText(name), out.Upstream.counted())
		return nil
	}))
}

func (a *app) upstreamsLogoutCommand() *cobra.Command {
	var principal string
	c := &cobra.Command{
		Use: "logout NAME", Short: "Remove your login to an upstream, or the one that all share", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := make(map[string]any)
			setText(body, "for", principal)
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/logout"), body, a.done("logged out of %s\n", plainText(args[0])))
		},
	}
	c.Flags().StringVar(&principal, "for", "", "`PRINCIPAL` log out a program with a token, such as agent:local-agent")
	return c
}

// awaitCallback serves the redirect address until a request with this state arrives, and returns its
// query. Other requests get status 404. It fails with timeout or cancelled when ctx ends.
func awaitCallback(ctx context.Context, listener net.Listener, state string) (string, error) {
	answers := make(chan string, 1)
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Referrer-Policy", "no-referrer")
			if r.Method != http.MethodGet || r.URL.Path != "/callback" || state == "" || r.URL.Query().Get("state") != state {
				http.Error(w, "this is not the answer that is waited for", http.StatusNotFound)
				return
			}
			select {
			case answers <- r.URL.RawQuery:
			default:
			}
			fmt.Fprintln(w, "The answer has arrived. You can close this window; the terminal says how it went.")
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener) // returns after Shutdown
	}()
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping) // after the browser has received its page
		<-ended
	}()
	select {
	case query := <-answers:
		return query, nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return "", capability.Errorf(capability.CodeCancelled, "", "the login was interrupted before the browser came back")
		}
		return "", capability.Errorf(capability.CodeTimeout, "", "the login was not completed within %s", loginTimeout)
	}
}
