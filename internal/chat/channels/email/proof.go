package email

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	// keyRounds makes guessing the password slow for those who have a mail of the account.
	keyRounds = 600_000
	idPrefix  = "j."
	nonceSize = 8
	headSize  = 2 + nonceSize // bytes in front of the code
	macSize   = 20
)

var idText = base32.StdEncoding.WithPadding(base32.NoPadding)

// signer makes the ids of the mails of one account. An id is unguessable, and bound to the account,
// its password and the address that the mail is sent to. A later mail that names the id comes from
// a reader of that mailbox, so that nothing needs to be stored.
type signer struct {
	account string // address
	key     []byte
}

func newSigner(account, password string) (*signer, error) {
	key, err := pbkdf2.Key(sha256.New, password, []byte("junctor email "+account), keyRounds, sha256.Size)
	return &signer{account, key}, err
}

func (s *signer) sum(use string, parts ...string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(use + "\x00" + strings.Join(parts, "\x00")))
	return mac.Sum(nil)
}

// domain returns the domain of an address.
func domain(address string) string { return address[strings.LastIndexByte(address, '@')+1:] }

// id returns the Message-ID, without brackets, of the mail with a key to an address. A repeated send
// has the same one.
func (s *signer) id(to, key string, at time.Time) string {
	head := binary.BigEndian.AppendUint16(nil, uint16(at.Unix()/int64(dayInterval/time.Second))) //nolint:gosec // days until 2149
	return s.sealed(append(head, s.sum("nonce", key)[:nonceSize]...), to)
}

func (s *signer) sealed(head []byte, to string) string {
	raw := append(slices.Clone(head), s.sum("proof", string(head), s.account, to)[:macSize]...)
	return idPrefix + strings.ToLower(idText.EncodeToString(raw)) + "@" + domain(s.account)
}

// own returns the content of an id that has the form of the account's, or nil.
func (s *signer) own(id string) []byte {
	local, host, _ := strings.Cut(strings.ToLower(strings.TrimSpace(id)), "@")
	local, ours := strings.CutPrefix(local, idPrefix)
	raw, err := idText.DecodeString(strings.ToUpper(local))
	if !ours || host != domain(s.account) || err != nil || len(raw) != headSize+macSize {
		return nil
	}
	return raw
}

// open returns the part of an id that is not secret, or nil if the id is not that of a mail which
// the account sent to an address.
func (s *signer) open(id, address string) []byte {
	raw := s.own(id)
	if raw == nil {
		return nil
	}
	head, mac := raw[:headSize], raw[headSize:]
	if !hmac.Equal(mac, s.sum("proof", string(head), s.account, address)[:macSize]) {
		return nil
	}
	return head
}

// proves reports whether an id is that of a mail which the account sent to an address, and not too
// long ago.
func (s *signer) proves(id, address string, now time.Time) bool {
	head := s.open(id, address)
	if head == nil {
		return false
	}
	age := now.Sub(time.Unix(int64(binary.BigEndian.Uint16(head))*int64(dayInterval/time.Second), 0))
	return age > -dayInterval && age < proofTTL+dayInterval
}

// ref returns the reference of a mail in the conversation with an address, which has no slash; or ""
// if the id is too long. Agents get references, so that of a mail of the account lacks the part that
// proves: an agent that could send mails would otherwise decide its own approvals.
func (s *signer) ref(id, address string) string {
	if raw := s.own(id); raw != nil { // also that of a mail to another address
		return idPrefix + strings.ToLower(idText.EncodeToString(raw[:headSize]))
	}
	if out := url.PathEscape(id); len(out) <= 2*maxID {
		return out
	}
	return ""
}

// find returns the Message-ID of a reference, or "".
func (s *signer) find(ref, address string) string {
	if local, ours := strings.CutPrefix(ref, idPrefix); ours {
		if head, err := idText.DecodeString(strings.ToUpper(local)); err == nil && len(head) == headSize {
			return s.sealed(head, address)
		}
	}
	if id, err := url.PathUnescape(ref); err == nil && validID(id) {
		return id
	}
	return ""
}
