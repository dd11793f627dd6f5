package reference

import (
	"cmp"
	"context"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"unicode"
)

// words returns the lower-case words of s.
func words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// sentences splits s after '.', '!' and '?' and at line ends.
func sentences(s string) []string {
	var out []string
	for line := range strings.Lines(s) {
		start := 0
		for i, r := range line {
			if r == '.' || r == '!' || r == '?' {
				out = appendText(out, line[start:i+1])
				start = i + 1
			}
		}
		out = appendText(out, line[start:])
	}
	return out
}

func appendText(list []string, s string) []string {
	if s = strings.TrimSpace(s); len(words(s)) > 0 {
		list = append(list, s)
	}
	return list
}

// summarize keeps the n sentences whose longer words occur most often in s, in
// their order. It is extractive and depends on s alone.
func summarize(s string, n int) string {
	all := sentences(s)
	if len(all) <= n {
		return strings.Join(all, " ")
	}
	count := make(map[string]int)
	for _, w := range words(s) {
		if len(w) > 3 {
			count[w]++
		}
	}
	score := func(sentence string) float64 {
		list := words(sentence)
		sum := 0
		for _, w := range list {
			sum += count[w]
		}
		return float64(sum) / math.Sqrt(float64(len(list)))
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if sa, sb := score(all[a]), score(all[b]); sa != sb {
			if sa > sb {
				return -1
			}
			return 1
		}
		return a - b
	})
	order = order[:n]
	slices.Sort(order)
	kept := make([]string, n)
	for i, at := range order {
		kept[i] = all[at]
	}
	return strings.Join(kept, " ")
}

// embeddingSize is the length of a vector of TEXT_EMBEDDING.
const embeddingSize = 64

// embed hashes the words of s into a vector of length one; texts that share
// words have a positive product.
func embed(s string) []float64 {
	v := make([]float64, embeddingSize)
	for _, w := range words(s) {
		h := fnv.New32a()
		_, _ = h.Write([]byte(w)) // a hash never fails
		v[h.Sum32()%embeddingSize]++
	}
	norm := 0.0
	for _, x := range v {
		norm += x * x
	}
	if norm == 0 {
		return v
	}
	norm = math.Sqrt(norm)
	for i := range v {
		// Rounded, so that the bytes are equal on every machine.
		v[i] = math.Round(v[i]/norm*1e9) / 1e9
	}
	return v
}

// modelParams are what both models take: prompt, or text or input as others
// call it.
type modelParams struct {
	Params struct {
		Prompt    string `json:"prompt"`
		Text      string `json:"text"`
		Input     string `json:"input"`
		Sentences int    `json:"sentences"`
	} `json:"params"`
}

func (p modelParams) text() (string, error) {
	for _, s := range []string{p.Params.Prompt, p.Params.Text, p.Params.Input} {
		if strings.TrimSpace(s) != "" {
			return s, nil
		}
	}
	return "", invalid(`the model needs "prompt", "text" or "input"`)
}

func textSmall(_ context.Context, p modelParams) (any, error) {
	s, err := p.text()
	if err != nil {
		return nil, err
	}
	n := p.Params.Sentences
	if n < 0 || n > 20 {
		return nil, invalid(`"sentences" must be 1 to 20`)
	}
	n = cmp.Or(n, 2)
	return outcome{summarize(s, n)}, nil
}

func textEmbedding(_ context.Context, p modelParams) (any, error) {
	s, err := p.text()
	if err != nil {
		return nil, err
	}
	return outcome{embed(s)}, nil
}
