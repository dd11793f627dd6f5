package device

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// assets transfers large values to and from a gateway. Requests are signed with the
// node's key, or carry the operator's token if the node has no key.
type assets struct {
	web   *web
	node  string
	sign  func([]byte) ([]byte, error)
	token secret.Value
	now   func() time.Time // the gateway's
}

// request builds an authenticated request for the asset with this digest.
func (a *assets) request(ctx context.Context, base *url.URL, method, digest string, body []byte) (*http.Request, error) {
	path := wire.AssetsPath + digest // nothing in it is escaped
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, base.JoinPath(path).String(), content)
	if err != nil {
		return nil, err
	}
	if a.sign == nil {
		req.Header.Set("Authorization", "Bearer "+a.token.Reveal())
		req.Header.Set("Junctor-Node", a.node)
		return req, nil
	}
	proof, err := wire.SignRequest(a.node, method, path, a.now(), a.sign)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", proof)
	return req, nil
}

// fetch reads an asset from the gateway and fails unless its size and digest are those
// of the reference.
func (a *assets) fetch(ctx context.Context, asset cmp.Asset) ([]byte, error) {
	if err := asset.Check(); err != nil {
		return nil, err
	}
	digest := strings.TrimPrefix(asset.Digest, "sha256:")
	ctx, cancel := context.WithTimeout(ctx, assetTimeout)
	defer cancel()
	resp, err := a.web.send(ctx, func(base *url.URL) (*http.Request, error) {
		return a.request(ctx, base, http.MethodGet, digest, nil)
	})
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "node.asset", "the asset "+asset.Digest+" cannot be fetched",
			err).With(cmp.ReasonConnection, "")
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, a.refused(resp, "node.asset")
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, asset.Size+1))
	if err != nil {
		return nil, capability.Wrap(capability.CodeUnavailable, "node.asset", "the asset "+asset.Digest+" broke off",
			err).With(cmp.ReasonConnection, "")
	}
	if sum := sha256.Sum256(data); int64(len(data)) != asset.Size || hex.EncodeToString(sum[:]) != digest {
		return nil, cmp.Errorf(cmp.ReasonDigest, "the asset %s is not what its digest and size say", asset.Digest)
	}
	return data, nil
}

// put uploads a value, which the gateway stores for a limited time, and returns its
// reference.
func (a *assets) put(ctx context.Context, data []byte, mediaType string) (cmp.Asset, error) {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	asset := cmp.Asset{Digest: "sha256:" + digest, Size: int64(len(data)), MediaType: mediaType}
	if err := asset.Check(); err != nil {
		return asset, err
	}
	ctx, cancel := context.WithTimeout(ctx, assetTimeout)
	defer cancel()
	resp, err := a.web.send(ctx, func(base *url.URL) (*http.Request, error) {
		req, err := a.request(ctx, base, http.MethodPut, digest, data)
		if err == nil {
			req.Header.Set("Content-Type", mediaType)
		}
		return req, err
	})
	if err != nil {
		return asset, capability.Wrap(capability.CodeUnavailable, "node.asset", "a value of the answer cannot be sent to the gateway",
			err).With(cmp.ReasonConnection, "")
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return asset, nil
	}
	return asset, a.refused(resp, "node.asset")
}

// refused returns the error of a response other than success; 413 has the reason for a
// value that is too large.
func (a *assets) refused(resp *http.Response, op string) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		data = nil
	}
	e := refusal(resp, data, op)
	if resp.StatusCode == http.StatusRequestEntityTooLarge {
		return e.With(cmp.ReasonTooLarge, e.Hint)
	}
	return e
}
