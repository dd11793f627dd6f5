package catalogtest

import (
	_ "embed" // of the files
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

//go:embed testdata/tools.txt
var publishedTools string

//go:embed testdata/requests.txt
var toolRequests string

// Tool is one tool as a server declares it.
type Tool struct {
	Server, Name, Description string
	Arguments                 []string
}

// Published returns tools in the form in which published servers declare them.
func Published() (out []Tool) {
	for line := range strings.Lines(publishedTools) {
		part := strings.Split(strings.TrimSpace(line), "|")
		t := Tool{Server: part[0], Name: part[1], Description: part[2]}
		if part[3] != "" {
			t.Arguments = strings.Split(part[3], ",")
		}
		out = append(out, t)
	}
	return out
}

// Request is what a person writes, and the name of the published tool that does it.
type Request struct{ Tool, Text string }

// Requests returns requests for published tools. They were written before the search was measured by
// them, and are not changed with it.
func Requests() (out []Request) {
	for line := range strings.Lines(toolRequests) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "|")
		out = append(out, Request{name, text})
	}
	return out
}

// toolsOfServer is how many tools a generated server has.
const toolsOfServer = 50

// Neighbours returns the published tools among generated ones, n in all. A generated tool has the verb
// of one published tool and the object of another, and in its description about half of the words of
// each. It is for some trade, which its name and its description have: without that, find_papers would be
// among the tools generated from search_papers, and a request for the one would mean the other as well.
func Neighbours(n int) []Tool {
	published := Published()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same tools each time
	out := slices.Clone(published)
	taken := make(map[string]bool)
	for _, t := range published {
		taken[t.Name] = true
	}
	for i := 0; len(out) < n; i++ {
		from, other := published[i%len(published)], published[random.IntN(len(published))]
		verb, _, _ := strings.Cut(from.Name, "_")
		object := other.Name
		if _, rest, ok := strings.Cut(other.Name, "_"); ok {
			object = rest
		}
		theirs := contentWords(other.Description)
		words := strings.Fields(from.Description)
		for k, w := range words {
			if len(contentWords(w)) > 0 && len(theirs) > 0 && random.IntN(2) == 0 {
				words[k] = theirs[random.IntN(len(theirs))]
			}
		}
		trade := trades()[random.IntN(len(trades()))]
		name := verb + "_" + trade + "_" + object
		if taken[name] {
			continue
		}
		words = append(words, "For the "+trade+".")
		taken[name] = true
		out = append(out, Tool{
			Server: fmt.Sprintf("s%04d", i/toolsOfServer), Name: name, Description: strings.Join(words, " "), Arguments: from.Arguments,
		})
	}
	return out
}

// trades returns words that the published tools and the requests do not have.
func trades() []string {
	return strings.Fields(`abbey aquarium armory barge bindery brewery brickyard cannery casino cathedral cinema circus clinic
		colliery convent creamery dairy distillery embassy farm ferry fishery forge foundry garrison glazier granary greenhouse guild
		gymnasium hatchery hospice hostel kennel laundry legation lighthouse lottery marina mill mint monastery nursery observatory
		opera orchard orphanage parliament parish pharmacy planetarium plantation pottery prison quarry ranch refinery regatta
		sanatorium sawmill seminary shipyard smithy stable stadium tannery tavern theatre tribunal university vineyard zoo`)
}

// contentWords returns the words of a text but for short ones and punctuation.
func contentWords(s string) (out []string) {
	for w := range strings.FieldsSeq(s) {
		if w = strings.Trim(w, ".,:;()"); len(w) > 3 {
			out = append(out, w)
		}
	}
	return out
}

// Searches returns the two queries of a caller that has only the words of a request: all of them, and
// those that remain without the common ones.
func (r Request) Searches() []string {
	var rest []string
	for w := range strings.FieldsSeq(r.Text) {
		if !slices.Contains(commonWords(), strings.ToLower(strings.Trim(w, ".,:;?!\""))) {
			rest = append(rest, w)
		}
	}
	return []string{r.Text, strings.Join(rest, " ")}
}

func commonWords() []string {
	return strings.Fields(`a about all am an and any are as at be by can did do does for from get give go has have how i if in into is it
		its let like long make me much my need new next not of on one or our please put say see she show so start take than that the their
		them there these they this to up us use want was we what when where which who why will with would you your`)
}
