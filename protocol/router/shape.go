package router

// kind is the required JSON type of a member.
type kind uint8

const (
	anyJSON   kind = iota
	text           // string
	number         // finite number
	boolean        // true or false
	object         // object, content free
	list           // array, content free
	texts          // array of strings
	objects        // array of objects, content free
	textMap        // object of strings
	scalarMap      // object of string, number, boolean or null
	queryMap       // object of string or array of strings
	headerMap      // object of strings under HTTP header rules
	record         // object of a known shape
	records        // array of such objects
	recordMap      // object of such objects
)

// shape describes one object of the protocol: its known members, in the order in which the original
// checks them, which determines the reported error.
type shape struct {
	fields []field
	// aliasFrom is an old name that is accepted for the member aliasTo: git's root for cwd.
	aliasFrom, aliasTo string
	// keepRaw adds a member raw with the whole object (model.status).
	keepRaw bool
}

func (s *shape) index(name []byte) int {
	for i := range s.fields {
		if s.fields[i].name == string(name) {
			return i
		}
	}
	return -1
}

// field is one known member.
type field struct {
	name     string
	kind     kind
	optional bool
	null     bool // null is allowed and kept
	own      bool // a wrong type is reported at <path>.<name>, not at <path>
	nonEmpty bool // a list must have an item
	unique   bool // a list of strings must not repeat one
	at       string
	check    func(string) error  // of a string, of each item, of a number's text
	enum     []string            // the values that check permits, if they are listed
	rewrite  func(string) string // normalises an accepted string
	sub      *shape
}

func need(name string, k kind) field { return field{name: name, kind: k} }
func opt(name string, k kind) field  { return field{name: name, kind: k, optional: true} }

func (f field) orNull() field                        { f.null = true; return f }
func (f field) apart() field                         { f.own = true; return f }
func (f field) filled() field                        { f.nonEmpty = true; return f }
func (f field) distinct() field                      { f.unique = true; return f }
func (f field) where(check func(string) error) field { f.check = check; return f }
func (f field) among(values ...string) field {
	f.enum, f.check = values, oneOf(values...)
	return f
}
func (f field) of(sub *shape) field                  { f.sub = sub; return f }
func (f field) reportedAt(at string) field           { f.at = at; return f }
func (f field) as(rewrite func(string) string) field { f.rewrite = rewrite; return f }

func shapeOf(fields ...field) *shape { return &shape{fields: fields} }

func needs(k kind, names ...string) []field {
	out := make([]field, len(names))
	for i, n := range names {
		out[i] = need(n, k)
	}
	return out
}

func opts(k kind, names ...string) []field {
	out := make([]field, len(names))
	for i, n := range names {
		out[i] = opt(n, k)
	}
	return out
}

// fields joins single members and groups of them.
func fields(parts ...any) []field {
	var out []field
	for _, p := range parts {
		switch p := p.(type) {
		case field:
			out = append(out, p)
		case []field:
			out = append(out, p...)
		}
	}
	return out
}
