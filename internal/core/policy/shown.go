package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// ReasonNotShowable is the reason of a call with more values than an approver can be shown.
const ReasonNotShowable = "approval_not_showable"

// Shown is what an approver is shown of a call: every argument of the program that would run,
// every detail that the provider declares, and every member of the input.
type Shown struct {
	Argv    []ShownValue `json:"argv,omitempty"`
	Details []ShownValue `json:"details,omitempty"`
	Members []ShownValue `json:"members,omitempty"`
	// Choices and Questions are the answers that a waiting program takes.
	Choices   []ShownChoice   `json:"choices,omitempty"`
	Questions []ShownQuestion `json:"questions,omitempty"`
}

// ShownChoice is one option, as the program that waits offers it.
type ShownChoice struct {
	N           int    `json:"n"`
	Label       string `json:"label"`
	Description string `json:"description,omitempty"`
	Effect      string `json:"effect"` // once, session, always, deny or none
}

// ShownQuestion is one question of a form.
type ShownQuestion struct {
	ID       string        `json:"id"`
	Text     string        `json:"text"`
	Choices  []ShownChoice `json:"choices,omitempty"`
	Multiple bool          `json:"multiple,omitempty"`
	FreeText bool          `json:"free_text,omitempty"`
	Secret   bool          `json:"secret,omitempty"`
}

// ShownValue is one value. Its texts contain no invisible characters.
type ShownValue struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value"`
	// Bytes and SHA256 describe the whole value, if only its beginning is in Value.
	Bytes  int    `json:"bytes,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

// Show returns the view of a call. details is a JSON object or empty, input is a JSON value.
// Error: too_large, reason approval_not_showable, if there are too many values.
func Show(argv []string, details, input []byte) (Shown, error) {
	var found [3][]leaf
	for _, arg := range argv {
		found[0] = append(found[0], leaf{text: arg, quoted: true})
	}
	var total int
	for depth := maxShownDepth; ; depth-- { // fewer levels, until the values fit
		found[1], found[2] = nil, nil
		for i, raw := range [][]byte{details, input} {
			if len(raw) > 0 {
				leaves(raw, "", depth, func(l leaf) { found[i+1] = append(found[i+1], l) })
			}
		}
		total = len(argv) + len(found[1]) + len(found[2])
		if total <= maxShown {
			break
		}
		if depth == 1 {
			return Shown{}, capability.Errorf(capability.CodeTooLarge, "authorize",
				"this call needs an approval, and it has %d values, more than the %d that an approver can be shown", total, maxShown).
				With(ReasonNotShowable, "make several smaller calls, or put the values into one array")
		}
	}
	maxBytes := min(maxShownValue, max(minShownValue, maxShownBytes/max(total, 1)))
	var out Shown
	for i, to := range []*[]ShownValue{&out.Argv, &out.Details, &out.Members} {
		for _, l := range found[i] {
			*to = append(*to, l.shown(maxBytes))
		}
	}
	return out, nil
}

// leaf is a value that is shown as a whole: a string, or JSON.
type leaf struct {
	name, text string
	quoted     bool
}

// leaves calls each for every value of at most depth levels of objects and arrays. An array of
// many elements is one value.
func leaves(raw []byte, path string, depth int, each func(leaf)) {
	n := 0
	switch {
	case depth > 0 && raw[0] == '{':
		err := jsonx.Members(raw, func(name string, value []byte) {
			n++
			leaves(value, member(path, name), depth-1, each)
		})
		if err == nil && n > 0 {
			return
		}
	case depth > 0 && raw[0] == '[':
		var elements [][]byte
		err := jsonx.Elements(raw, func(value []byte) error {
			elements = append(elements, value)
			return nil
		})
		if err == nil && len(elements) > 0 && len(elements) <= maxShownList {
			for i, value := range elements {
				leaves(value, fmt.Sprintf("%s[%d]", path, i), depth-1, each)
			}
			return
		}
	case raw[0] == '"':
		if s, ok := jsonx.Text(raw); ok {
			each(leaf{path, s, true})
			return
		}
	}
	each(leaf{path, string(raw), false})
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9_$-]+$`)

// member returns the path of a member. A name that could be mistaken for something else is quoted.
func member(path, name string) string {
	if !plainName.MatchString(name) {
		name = text.Quote(name)
	}
	if len(name) > maxShownName {
		name = text.CutBytes(name, maxShownName) + ofAll(name, digest(name))
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func (l leaf) shown(maxBytes int) ShownValue {
	v, s := ShownValue{Name: l.name}, l.text
	if len(s) > maxBytes {
		v.Bytes, v.SHA256 = len(s), digest(s)
		s = text.CutBytes(s, maxBytes)
	}
	if l.quoted {
		v.Value = text.Quote(s)
	} else {
		v.Value = text.Visible(s)
	}
	return v
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// ofAll describes the whole of a text that is cut.
func ofAll(s, sum string) string { return fmt.Sprintf("… (%d bytes, sha256 %s)", len(s), sum[:16]) }

// String returns the value with its name on one line.
func (v ShownValue) String() string {
	s := v.Value
	if v.SHA256 != "" {
		s += fmt.Sprintf("… (%d bytes, sha256 %.16s)", v.Bytes, v.SHA256)
	}
	if v.Name != "" {
		s = v.Name + ": " + s
	}
	return s
}

// String returns the view on one line.
func (s Shown) String() string {
	line := func(list []ShownValue, separator string) string {
		all := make([]string, len(list))
		for i, v := range list {
			all[i] = v.String()
		}
		return strings.Join(all, separator)
	}
	var parts []string
	if len(s.Argv) > 0 {
		parts = append(parts, "to run: "+line(s.Argv, " "))
	}
	if len(s.Details) > 0 {
		parts = append(parts, line(s.Details, ", "))
	}
	if len(s.Members) > 0 {
		parts = append(parts, "with "+line(s.Members, ", "))
	}
	return strings.Join(parts, "; ")
}

// Cut reports whether a value is not shown whole.
func (s Shown) Cut() bool {
	for _, list := range [][]ShownValue{s.Argv, s.Details, s.Members} {
		for _, v := range list {
			if v.SHA256 != "" {
				return true
			}
		}
	}
	return false
}
