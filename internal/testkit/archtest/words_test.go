package archtest

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wordBudgets holds one line per package: its folder and how many unclear words its
// comments may have. A package that is not listed may have none.
const wordBudgets = "testdata/words.txt"

// bannedWords matches the words that comments must not use: an actor without a name, a
// negated noun where the verb should be negated, and an archaic adverb of repetition. Name
// the caller, client, operator, subscriber, provider, agent or user.
func bannedWords() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(whoever|somebody|nobody|anew|hears?|heard|(?:is|are) none|(?:is|are) no [a-z]+)\b`)
}

// unclearWords matches the words whose number in comments may only fall: software does not
// say, tell, know or speak. It reports, notifies, stores and uses.
func unclearWords() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(says?|said|tells?|told|knows?|speaks?|spoken|mends?|mended|anybody|everybody|what came|who asks)\b`)
}

// TestCommentsStayWithinTheirWordBudget finds banned words in the comments of each package,
// tests included, and counts the unclear ones. A budget is lowered when the package has
// fewer, never raised.
func TestCommentsStayWithinTheirWordBudget(t *testing.T) {
	t.Parallel()
	budgets := readWordBudgets(t)
	got, places, words, total := make(map[string]int), make(map[string][]string), 0, 0
	banned, unclear := bannedWords(), unclearWords()
	fset := token.NewFileSet()
	for _, name := range sources(t, ".go") {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		folder, err := filepath.Rel(repository, filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		folder = filepath.ToSlash(folder)
		for _, group := range file.Comments {
			text := group.Text()
			words += len(strings.Fields(text))
			for _, found := range banned.FindAllString(text, -1) {
				if !strings.HasSuffix(strings.ToLower(found), " no longer") {
					t.Errorf("%s: the comment has %q, want words that name the actor and negate the verb", fset.Position(group.Pos()), found)
				}
			}
			for _, found := range unclear.FindAllString(text, -1) {
				got[folder]++
				total++
				places[folder] = append(places[folder], fmt.Sprintf("%s: %q", fset.Position(group.Pos()), found))
			}
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(got)) {
		if got[folder] > budgets[folder] {
			t.Errorf("%s: comments have %d unclear words, want at most %d:\n\t%s", folder, got[folder], budgets[folder],
				strings.Join(places[folder], "\n\t"))
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(budgets)) {
		if got[folder] < budgets[folder] {
			t.Errorf("%s: comments have %d unclear words, fewer than the budget %d in %s: lower it; want got[folder] at least "+
				"budgets[folder]", folder, got[folder], budgets[folder], wordBudgets)
		}
	}
	t.Logf("%d unclear words in %d words of comments, %.1f per 10,000", total, words, float64(total)*10_000/float64(max(words, 1)))
}

// readWordBudgets reads the table; a line is a folder, a space and a count.
func readWordBudgets(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.Open(wordBudgets)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	budgets := make(map[string]int)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		folder, count, ok := strings.Cut(lines.Text(), " ")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n < 1 {
			t.Fatalf("%s: line %q, want a folder and a count above zero", wordBudgets, lines.Text())
		}
		budgets[folder] = n
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return budgets
}
