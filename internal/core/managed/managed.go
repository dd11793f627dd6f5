// Package managed marks the objects that a file of the home declares, which only that file
// may change.
package managed

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/junctor-run/junctor/capability"
)

// Reason is the reason of an error about a change of an object that a file declares.
const Reason = "managed_by_file"

// Mark is stored in the record of an object that a file declares.
type Mark struct {
	File string `json:"file"` // relative to the home, such as config.d/team.yaml
	// Gateway is the id of the one whose home has the file, or "" if the store belongs to one gateway.
	Gateway string `json:"gateway,omitempty"`
}

// OwnedBy reports whether a file of a gateway declares the object; "" is the only gateway of a store.
func (m *Mark) OwnedBy(gateway string) bool {
	return m != nil && (gateway == "" || m.Gateway == gateway)
}

// Refuse returns an error for an object that a file declares: conflict, reason managed_by_file. It
// returns nil for a nil mark. what names the object, such as "the upstream files".
func (m *Mark) Refuse(op, what string) error {
	if m == nil {
		return nil
	}
	return capability.Errorf(capability.CodeConflict, op, "%s is managed by %s; change it there", what, m.File).
		With(Reason, "edit the file in the home of the server, which applies it by itself; see: junctor apply --dry-run")
}

// UserOwned returns the error for a file that declares an object which exists and was not declared by
// any file.
func UserOwned(op, what string) error {
	return capability.Errorf(capability.CodeConflict, op, "%s was added by hand, so a file cannot declare it", what).
		With(Reason, "remove it, or give the declaration another name")
}

// Difference is the result of a comparison of a declaration with the object of its name.
type Difference struct {
	Exists  bool
	Members []string // those that differ, sorted
	Away    string   // why the object does not work at present; "" if it does
}

// Compare returns the difference of two records by their JSON members, of which mark and declared
// are the marks. Marks of the same file are equal, whichever gateway they are of, because gateways
// that share a store may have the same files; but in a shared store every mark has a gateway.
func Compare(have, want any, mark, declared *Mark) (Difference, error) {
	a, err := members(have)
	if err != nil {
		return Difference{}, err
	}
	b, err := members(want)
	if err != nil {
		return Difference{}, err
	}
	delete(a, "managed")
	delete(b, "managed")
	d := Difference{Exists: true}
	if mark.File != declared.File || mark.Gateway == "" && declared.Gateway != "" {
		d.Members = append(d.Members, "managed")
	}
	for name, value := range a {
		if !bytes.Equal(value, b[name]) {
			d.Members = append(d.Members, name)
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			d.Members = append(d.Members, name)
		}
	}
	slices.Sort(d.Members)
	return d, nil
}

func members(record any) (out map[string]json.RawMessage, err error) {
	data, err := json.Marshal(record)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	return out, err
}
