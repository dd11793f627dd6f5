package main

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/reference"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

func (a *app) endpointCommand() *cobra.Command {
	return a.group("endpoint", "Run an endpoint on this machine", a.endpointServeCommand())
}

// endpointServeCommand returns the command that runs the reference endpoint: two modules that
// together offer every surface of the protocol.
func (a *app) endpointServeCommand() *cobra.Command {
	var listen, token, tokenFile, bundle, readyFile, root string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the reference endpoint, which offers every surface of the router protocol",
		Long: `Serve the reference endpoint: two modules that together offer every surface of the
router protocol. When it answers it prints one JSON line with its URL.`,
		Example: `  junctor endpoint serve --endpoint-token-file token --ready-file endpoint.json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if tokenFile != "" {
				value, err := a.readSecretFile(tokenFile)
				if err != nil {
					return err
				}
				token = value.Reveal()
			}
			if token == "" && !loopbackAddress(listen) {
				return capability.Errorf(capability.CodeInvalidInput, "",
					"%s is not a loopback address: an endpoint that others can reach needs --endpoint-token-file", listen)
			}
			if root == "" {
				dir, err := os.MkdirTemp("", "junctor-endpoint-")
				if err != nil {
					return err
				}
				defer os.RemoveAll(dir)
				root = dir
			}
			ep, err := reference.New(reference.Config{Root: root, BundleFile: bundle})
			if err != nil {
				return err
			}
			defer ep.Close()
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return capability.Wrap(capability.CodeConflict, "", "the address "+listen+" cannot be listened on, or is in use by another program",
					err).With("address_in_use", "choose another one with --listen; 127.0.0.1:0 takes a free port")
			}
			web := &http.Server{
				Handler:           router.Handler(router.RequireToken(secret.New(token), ep), router.HandlerOptions{OpenAssets: token == ""}),
				ReadHeaderTimeout: 10 * time.Second,
			}
			stopped := make(chan error, 1)
			go func() { stopped <- web.Serve(listener) }()
			if err := a.endpointReady(ep, "http://"+listener.Addr().String(), readyFile); err != nil {
				web.Close()
				return err
			}
			select {
			case err := <-stopped:
				return err
			case <-cmd.Context().Done():
			}
			web.Close()
			if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:0", "`ADDRESS` address to listen on; port 0 picks a free one")
	f.StringVar(&token, "endpoint-token", "", "`TOKEN` token of the endpoint; other processes can see it, so prefer --endpoint-token-file")
	f.StringVar(&tokenFile, "endpoint-token-file", "", "`FILE` file with the token of the endpoint")
	f.StringVar(&bundle, "bundle-file", "", "`FILE` file to serve as the view bundle")
	f.StringVar(&readyFile, "ready-file", "", "`FILE` also write the ready line to this file")
	f.StringVar(&root, "root", "", "`DIR` folder that its fs.* works under (default a temporary one)")
	return c
}

func loopbackAddress(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || (ip != nil && ip.IsLoopback()))
}

// endpointReady prints the line that reports readiness. It has both url and baseUrl,
// and no token.
func (a *app) endpointReady(ep *reference.Endpoint, url, file string) error {
	data, err := json.Marshal(map[string]any{
		"url": url, "baseUrl": url, "pid": os.Getpid(), "moduleIds": ep.ModuleIDs(), "bundlePath": reference.BundlePath,
	})
	if err != nil {
		return err
	}
	if file != "" {
		if err := replaceFile(file, append(data, '\n')); err != nil {
			return err
		}
	}
	return a.printJSON(data)
}
