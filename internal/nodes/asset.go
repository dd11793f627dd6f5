package nodes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// assetTTL is how long a value is kept.
const assetTTL = time.Hour

// assetBlobs stores the bytes.
type assetBlobs interface {
	Put(ctx context.Context, ref blob.Ref, from io.Reader, limit int64) (blob.Ref, error)
	List(ctx context.Context, run string) ([]blob.Ref, error)
	Read(ref blob.Ref) (io.ReadSeekCloser, error)
}

// assetConfig is the configuration of an assetStore; Blobs is required.
type assetConfig struct {
	Blobs assetBlobs
	// Bus connects the gateways. If nil, this gateway is alone.
	Bus    messaging.Conn
	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger
}

// assetStore keeps values. It is safe for concurrent use.
type assetStore struct {
	cfg      assetConfig
	name     string        // among the others, new with every New
	fetching chan struct{} // places of what is fetched from others
}

// newAssetStore returns an assetStore; Run answers requests of other gateways.
func newAssetStore(cfg assetConfig) *assetStore {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &assetStore{cfg: cfg, name: ids.Text()[:16], fetching: make(chan struct{}, maxAssetFetches)}
}

// assetRunPrefix and a digest are the run of a stored value.
const assetRunPrefix = "asset:"

// Put stores what a node sends; digest is its SHA-256 in hex. Errors: digest_mismatch,
// payload_too_large above cmp.MaxAsset.
func (s *assetStore) Put(ctx context.Context, node, digest, mediaType string, body io.Reader) (cmp.Asset, error) {
	return s.put(ctx, "node:"+node, digest, mediaType, body)
}

func (s *assetStore) put(ctx context.Context, owner, digest, mediaType string, body io.Reader) (cmp.Asset, error) {
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	ref, err := s.cfg.Blobs.Put(ctx, blob.Ref{
		Principal: owner, Run: assetRunPrefix + digest, Name: "value", MIME: mediaType, Expires: s.cfg.Now().Add(assetTTL),
	}, &verifiedReader{from: body, sum: sha256.New(), want: digest}, cmp.MaxAsset)
	if errors.Is(err, errAssetDigest) {
		err = cmp.Errorf(cmp.ReasonDigest, "the bytes are not those of the digest %s", digest)
	}
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		err = cmp.Errorf(cmp.ReasonTooLarge, "a value has at most %d bytes", cmp.MaxAsset)
	}
	return cmp.Asset{Digest: "sha256:" + digest, Size: ref.Size, MediaType: ref.MIME, URL: "/nodes/assets/" + digest}, err
}

// verifiedReader fails at its end where the bytes were not those of the digest, so that
// they are not kept.
type verifiedReader struct {
	from io.Reader
	sum  hash.Hash
	want string
}

var errAssetDigest = errors.New("the digest is another one")

func (v *verifiedReader) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	if err == io.EOF && hex.EncodeToString(v.sum.Sum(nil)) != v.want {
		err = errAssetDigest
	}
	return n, err
}

// Keep holds arguments that are too large for one message to a node.
func (s *assetStore) Keep(ctx context.Context, node string, arguments []byte) (cmp.Asset, error) {
	sum := sha256.Sum256(arguments)
	return s.put(ctx, "node:"+node, hex.EncodeToString(sum[:]), "application/json", bytes.NewReader(arguments))
}

// Get returns a value of this gateway, or of another one, from where it is kept here
// from then on; not_found, reason asset_not_found, if no gateway or node has it. The caller
// closes it.
func (s *assetStore) Get(ctx context.Context, digest string) (data io.ReadSeekCloser, mediaType string, err error) {
	ref, there, err := s.find(ctx, digest)
	if err == nil && !there && s.cfg.Bus != nil {
		if err = s.fromOthers(ctx, digest); err == nil {
			ref, there, err = s.find(ctx, digest)
		}
	}
	if err == nil && !there {
		err = assetNotFound(digest)
	}
	if err != nil {
		return nil, "", err
	}
	data, err = s.cfg.Blobs.Read(ref)
	return data, ref.MIME, err
}

// Fetch reads what a reference that a node sent leads to, and holds it to its size.
func (s *assetStore) Fetch(ctx context.Context, a cmp.Asset) ([]byte, error) {
	file, _, err := s.Get(ctx, strings.TrimPrefix(a.Digest, "sha256:"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, a.Size+1))
	if err == nil && int64(len(data)) != a.Size {
		err = cmp.Errorf(cmp.ReasonDigest, "the value has other than the %d bytes that were announced", a.Size)
	}
	return data, err
}

func (s *assetStore) find(ctx context.Context, digest string) (ref blob.Ref, there bool, err error) {
	refs, err := s.cfg.Blobs.List(ctx, assetRunPrefix+digest)
	if err != nil || len(refs) == 0 {
		return blob.Ref{}, false, err
	}
	return refs[0], true, nil
}

func assetNotFound(digest string) error {
	return capability.Errorf(capability.CodeNotFound, "assets", "there is no value %s, or not any more", digest).
		With("asset_not_found", "values are kept for an hour")
}
