package command

import (
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"

	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// flag stores the flag at Args[i] in Flags and returns the number of words it uses, or 0 if the
// word is not a flag. The words also stay in Args.
func (r *Route) flag(a *compiled, i int) (int, *capability.Error) {
	arg := r.Args[i]
	if len(arg) == 2 && arg[0] == '-' && a.short[arg[1:]] != nil {
		return r.declared(a.short[arg[1:]], i, "", false)
	}
	body, long := strings.CutPrefix(arg, "--")
	name, value, valued := strings.Cut(body, "=")
	if !long || !word(name) {
		return 0, nil // a negative number, a lone hyphen: ordinary words
	}
	if f := a.flags[name]; f != nil {
		return r.declared(f, i, value, valued)
	}
	if positive, no := strings.CutPrefix(name, "no-"); no && !valued {
		if f := a.flags[positive]; f != nil && !f.flag.TakesValue {
			r.Flags[positive] = false
			return 1, nil
		}
	}
	secret := a.IsSensitive(name)
	r.secret[i] = r.secret[i] || secret
	if valued {
		r.Flags[name] = value
		return 1, nil
	}
	r.Flags[name] = true
	if secret && i+1 < len(r.Args) {
		r.secret[i+1] = true // the next word may be the value, so it is masked too
	}
	return 1, nil
}

// declared stores a flag that the action declares and checks its value.
func (r *Route) declared(f *checkedFlag, i int, value string, valued bool) (int, *capability.Error) {
	name := f.flag.Name
	used := 1
	r.secret[i] = r.secret[i] || f.sensitive
	switch {
	case !f.flag.TakesValue && !valued:
		r.Flags[name] = true
		return used, nil
	case !f.flag.TakesValue && (value == "true" || value == "false"):
		r.Flags[name] = value == "true"
		return used, nil
	case !f.flag.TakesValue:
		return 0, fault.InvalidArgs("", "the flag --%s takes no value but true or false", name)
	case !valued:
		if i+1 >= len(r.Args) {
			return 0, fault.InvalidArgs("", "the flag --%s needs a value", name)
		}
		value, used = r.Args[i+1], 2
		r.secret[i+1] = r.secret[i+1] || f.sensitive
	}
	if wrong := f.fault(value); wrong != "" {
		return 0, fault.InvalidArgs("", "the flag --%s %s", name, wrong)
	}
	r.set(f, value)
	return used, nil
}

// set stores a value in Flags, with the type of the declared flag.
func (r *Route) set(f *checkedFlag, value string) {
	name := f.flag.Name
	switch {
	case f.flag.Repeat:
		list, _ := r.Flags[name].([]string)
		r.Flags[name] = append(list, value)
	case !f.flag.TakesValue:
		r.Flags[name] = value == "true"
	default:
		r.Flags[name] = value
	}
}

// Flag returns the value of a flag: the last one if it repeats, and "true" or "false" for a flag
// without value. It returns false if the flag is not set.
func (r *Route) Flag(name string) (string, bool) {
	switch v := r.Flags[name].(type) {
	case string:
		return v, true
	case []string:
		return v[len(v)-1], true
	case bool:
		if v {
			return "true", true
		}
		return "false", true
	}
	return "", false
}

// IsSensitive reports whether the arg or flag with that name must not be recorded.
func (a *Action) IsSensitive(name string) bool {
	return slices.Contains(a.Sensitive, name)
}
