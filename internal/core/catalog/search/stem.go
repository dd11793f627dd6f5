package search

import "strings"

// term returns the form in which a word is indexed and searched for.
func term(w string) string { return verb(stem(strings.ToLower(w))) }

// stem returns a word without the endings of its plural, past and -ing forms, so that "scheduled",
// "schedules" and "scheduling" are one word. It errs for some words, but alike in names and in queries.
func stem(w string) string {
	if len(w) < minStemmed {
		return w
	}
	switch {
	case strings.HasSuffix(w, "ies"):
		w = w[:len(w)-3] + "y"
	case strings.HasSuffix(w, "sses"), strings.HasSuffix(w, "shes"), strings.HasSuffix(w, "ches"), strings.HasSuffix(w, "xes"):
		w = w[:len(w)-2]
	case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:len(w)-1]
	}
	for _, end := range []string{"ing", "ed"} {
		if rest, ok := strings.CutSuffix(w, end); ok && len(rest) >= minStem && strings.ContainsAny(rest, "aeiouy") {
			w = rest
			if n := len(w); w[n-1] == w[n-2] && !strings.ContainsRune("lsz", rune(w[n-1])) {
				w = w[:n-1] // stopped, planning
			}
			break
		}
	}
	if len(w) >= minStemmed {
		w = strings.TrimSuffix(w, "e")
	}
	return w
}

// verb returns the word that stands for all verbs of one meaning, or the word itself. Servers name the same
// thing by either, and so do people.
func verb(w string) string {
	switch w {
	case "find", "query", "lookup", "look", "locat", "discover":
		return "search"
	case "read", "fetch", "retriev", "show", "view", "describ", "check":
		return "get"
	case "enumerat", "which", "brows":
		return "list"
	case "add", "mak", "new", "insert", "register":
		return "creat"
	case "remov", "cancel", "drop", "trash", "purg", "eras":
		return "delet"
	case "edit", "chang", "modify", "set":
		return "updat"
	case "renam":
		return "mov"
	case "post", "publish":
		return "send"
	}
	return w
}
