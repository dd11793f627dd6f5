package router

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// members checks an object with arbitrary names and values of a known kind.
func (d *decoder) members(f *field, value []byte, at string) ([]byte, error) {
	if value[0] != '{' {
		return nil, d.mismatch(f, value, at, "an object")
	}
	var out []byte
	var kept []byte
	changed := false
	sc := newScanner(value, maxNesting)
	err := sc.object(func(name []byte, escaped bool, v []byte) error {
		if f.kind != recordMap {
			return d.member(f, string(unescapeIf(name, escaped)), v, at)
		}
		key := string(unescapeIf(name, escaped))
		sub, err := d.record(f.sub, v, at+"."+key)
		if err != nil {
			return err
		}
		if sub != nil {
			changed = true
			v = sub
		}
		if len(kept) > 0 {
			kept = append(kept, ',')
		}
		kept = append(kept, '"')
		kept = append(kept, name...)
		kept = append(kept, '"', ':')
		kept = append(kept, v...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if changed {
		out = append(append([]byte{'{'}, kept...), '}')
	}
	return out, nil
}

// member checks one member of such an object.
func (d *decoder) member(f *field, name string, v []byte, at string) error {
	switch f.kind {
	case textMap:
		if v[0] != '"' {
			return d.fail(at, "%q must hold strings, not %s", f.name, describe(v))
		}
	case scalarMap:
		if v[0] == '{' || v[0] == '[' || describe(v) == "a number" && !finite(v) {
			return d.fail(at, "%q must hold strings, finite numbers, booleans or null, not %s", f.name, describe(v))
		}
	case headerMap:
		if v[0] != '"' {
			return d.fail(at, "%q must hold strings, not %s", f.name, describe(v))
		}
		if err := CheckHeader(name, unquote(v)); err != nil {
			return d.fail(at, "%q %v", f.name, err)
		}
	case queryMap:
		return d.query(f, name, v, at)
	}
	return nil
}

// query checks one query parameter: a string or an array of strings, without CR, LF and NUL.
func (d *decoder) query(f *field, name string, v []byte, at string) error {
	if name == "" || !singleLine(name) {
		return d.fail(at, "%q has a name that is empty or holds CR, LF or NUL", f.name)
	}
	one := func(_ int, v []byte) error {
		if v[0] != '"' {
			return d.fail(at, "%q must hold strings or arrays of strings, not %s", f.name, describe(v))
		}
		if !singleLine(unquote(v)) {
			return d.fail(at, "%q holds a value with CR, LF or NUL", f.name)
		}
		return nil
	}
	if v[0] != '[' {
		return one(0, v)
	}
	sc := newScanner(v, maxNesting)
	return sc.array(one)
}

// unquote returns the text of a valid JSON string.
func unquote(value []byte) string {
	inner := value[1 : len(value)-1]
	for _, c := range inner {
		if c == '\\' {
			return string(unescape(inner))
		}
	}
	return string(inner)
}

func unescapeIf(name []byte, escaped bool) []byte {
	if escaped {
		return unescape(name)
	}
	return name
}

// unescape returns the content of a JSON string that the scanner has checked with its escapes decoded.
// A lone surrogate becomes the replacement character.
func unescape(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for i := 0; i < len(in); i++ {
		if in[i] != '\\' {
			out = append(out, in[i])
			continue
		}
		i++
		switch in[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(in[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(utf8.RuneError)
				if i+6 < len(in) && in[i+1] == '\\' && in[i+2] == 'u' {
					low = hex4(in[i+3:])
				}
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r, i = pair, i+6
				} else {
					r = utf8.RuneError
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, in[i])
		}
	}
	return out
}

func hex4(in []byte) rune {
	n, _ := strconv.ParseUint(string(in[:4]), 16, 32) // the scanner has checked the four digits
	return rune(n)
}
