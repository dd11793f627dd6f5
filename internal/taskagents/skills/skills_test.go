package skills_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/skills"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var some = []skills.Skill{
	{"weather", "Weather", "Tells the weather forecast of a city"},
	{"calendar", "Calendar", "Reads calendar events and meetings"},
	{"image-maker", "Images", "Draws pictures from words"},
}

func TestTheManifest(t *testing.T) {
	t.Parallel()
	all := append(slices.Clone(some),
		skills.Skill{"weather", "again", "twice"}, skills.Skill{"Bad Slug", "x", "x"},
		skills.Skill{"long", "Long", "one\nline " + strings.Repeat("x", 300)},
	)
	got := skills.Manifest(some[:1], all)
	want := "\n## Recommended for your task\n\n- `weather` (Weather): Tells the weather forecast of a city\n\n## All others\n\n- `calendar` (Calendar): Reads calendar events and meetings\n- `image-maker` (Images): Draws pictures from words\n- `long` (Long): one line " + strings.Repeat("x", 190) + "…\n"
	if !strings.HasSuffix(got, want) || !strings.Contains(got, "USE_SKILL <slug>") {
		t.Errorf(`%s; want got ending with %v, got with "USE_SKILL <slug>"`, got, want)
	}
	// A program that reads it must not have asked for a skill by that.
	if call, ok := directive.ReadSkill(directive.Text{Body: got}); ok {
		t.Errorf("%+v; want ok = false", call)
	}
	if got := skills.Manifest(nil, []skills.Skill{{"Bad Slug", "x", "x"}}); got != "" {
		t.Errorf(`%q; want got = ""`, got)
	}
	var many []skills.Skill
	for i := range skills.MaxListed + 7 {
		many = append(many, skills.Skill{Slug: "s" + strings.Repeat("x", i%50) + string(rune('a'+i/50)), Name: "n"})
	}
	if got := skills.Manifest(nil, many); !strings.Contains(got, "- and 7 more") || strings.Count(got, "\n- `") != skills.MaxListed {
		t.Errorf("%s; want got with \"- and 7 more\", strings.Count(got, \"\\n- `\") = skills.MaxListed", got)
	}
}

func TestSlugs(t *testing.T) {
	t.Parallel()
	for slug, want := range map[string]bool{
		"a": true, "a-1-b": true, "": false, "-a": false, "a-": false, "a--b": false, "A": false,
		"a b": false, strings.Repeat("a", 65): false,
	} {
		if skills.ValidSlug(slug) != want {
			t.Errorf("ValidSlug(%q) = %v, want %v", slug, !want, want)
		}
		// What is valid is what the directive's grammar takes.
		call, ok := directive.ReadSkill(directive.Text{Body: "USE_SKILL " + slug})
		if want && (!ok || call.Slug != slug) {
			t.Errorf("%q: %+v; want not (want && (!ok || call.Slug != slug))", slug, call)
		}
	}
}

func TestTheManual(t *testing.T) {
	t.Parallel()
	full := skills.Essentials(skills.Situation{
		Workdir: "/w", Repo: true, Bridge: "http://127.0.0.1:7777/api/coding-agents/pty-1-00000000", Self: "'/usr/bin/junctor'", Server: true,
		Manifest: ".task-agents/SKILLS.md",
	})
	for _, part := range []string{
		"nobody is watching", "the skills in .task-agents/SKILLS.md", "MCP server `junctor`", "USE_SKILL <slug>", "DECISION: ",
		"'/usr/bin/junctor' child parent", "/pty-1-00000000/parent-context",
		"Stay in /w", "do not push", "short message",
	} {
		if !strings.Contains(full, part) {
			t.Errorf("%q is not in %s; want full with %v", part, full, part)
		}
	}
	bare := skills.Essentials(skills.Situation{Workdir: "/w", Bridge: "http://127.0.0.1:7777", Self: "junctor"})
	for _, part := range []string{"SKILL", "MCP", "pull request"} {
		if strings.Contains(bare, part) {
			t.Errorf("%q is in %s; want bare without %v", part, bare, part)
		}
	}
	// It is not a directive itself, wherever it is repeated.
	if call, ok := directive.ReadSkill(directive.Text{Body: full}); ok {
		t.Errorf("%+v; want ok = false", call)
	}
	if l := len(full); l > 2_500 {
		t.Errorf("%d bytes; want l at most 2_500", l)
	}
}

type model struct {
	answer string
	err    error
	asked  []string
}

func (m *model) Ask(_ context.Context, small bool, prompt string) (string, error) {
	if !small {
		return "", errors.New("a small one does")
	}
	m.asked = append(m.asked, prompt)
	return m.answer, m.err
}

func slugs(list []skills.Recommended) (out []string) {
	for _, r := range list {
		out = append(out, r.Slug)
	}
	return out
}

func TestWordsRecommend(t *testing.T) {
	t.Parallel()
	task := "What is the weather forecast for my calendar meetings"
	got := skills.Recommend(t.Context(), nil, task, "", some)
	// Words of the task: weather forecast calendar meetings. Weather has 4 (weather tells
	// forecast city), of which 2; calendar has 4 (calendar reads events meetings), of which 2.
	want := .4*2/6 + .6*2/4
	if !slices.Equal(slugs(got), []string{"calendar", "weather"}) || math.Abs(got[0].Score-want) > 1e-9 || math.Abs(got[1].Score-want) > 1e-9 {
		t.Errorf("%+v, want %v", got, want)
	}
	// What is known besides helps, by .05 a word and .15 at most, but only what fits already.
	got = skills.Recommend(t.Context(), nil, task, "tells city tells city pictures", some)
	if !slices.Equal(slugs(got), []string{"weather", "calendar"}) || math.Abs(got[0].Score-want-.1) > 1e-9 {
		t.Errorf(`%+v; want slugs(got) = []string{"weather", "calendar"}, math.Abs(got[0].Score - want - .1) at most 1e-9`, got)
	}
	if got := skills.Recommend(t.Context(), nil, "of the and with", "weather", some); len(got) != 0 {
		t.Errorf("%+v; want len(got) = 0", got)
	}
}

func TestAModelIsAskedWhereWordsAreUnsure(t *testing.T) {
	t.Parallel()
	m := &model{answer: `I think: [{"slug":"image-maker","score":7},{"slug":"weather","score":0.5},{"slug":"unknown","score":1}]`}
	got := skills.Recommend(t.Context(), m, "weather forecast pictures", "", some)
	byWeather, byImages := .4*(.4*2/5+.6*2/3)+.6*.5, .4*(.4*1/8+.6*1/3)+.6*1
	if !slices.Equal(slugs(got), []string{"image-maker", "weather"}) || math.Abs(got[0].Score-byImages) > 1e-9 ||
		math.Abs(got[1].Score-byWeather) > 1e-9 {
		t.Errorf("%+v, want %v %v", got, byImages, byWeather)
	}
	// A sure best needs none.
	m.asked = nil
	if got := skills.Recommend(t.Context(), m, "weather tells forecast city", "", some); got[0].Slug != "weather" || got[0].Score < .999 ||
		len(m.asked) != 0 {
		t.Errorf(`%+v, asked %v; want got[0].Slug = "weather", got[0].Score at least .999, len(m.asked) = 0`, got, m.asked)
	}
	// What cannot be read leaves the words' order.
	for _, bad := range []*model{{answer: "none"}, {answer: "] ["}, {answer: `[{"slug":1}]`}, {err: errors.New("gone")}} {
		if got := skills.Recommend(t.Context(), bad, "weather forecast pictures", "", some); !slices.Equal(slugs(got),
			[]string{"weather", "image-maker"}) {
			t.Errorf(`%+v: %+v; want slugs(got) = []string{"weather", "image-maker"}`, bad, got)
		}
	}
	var many []skills.Skill
	for r := 'a'; r < 'a'+20; r++ {
		many = append(many, skills.Skill{"s" + string(r), "weather", "forecast"})
	}
	m.answer, m.asked = "[]", nil
	if got := skills.Recommend(t.Context(), m, "weather and rain", "", many); len(got) != skills.MaxRecommended ||
		strings.Count(m.asked[0], "\n- s") != 10 {
		t.Errorf(`%d %v; want len(got) = skills.MaxRecommended, strings.Count(m.asked[0], "\n- s") = 10`, len(got), m.asked)
	}
}

// source is skills that say what they were given.
type source struct {
	mu   sync.Mutex
	used []string
	fail error
	says string
}

func (s *source) List(context.Context, capability.Principal) ([]skills.Skill, error) {
	return some, nil
}

func (s *source) Use(_ context.Context, by capability.Principal, slug string, input json.RawMessage, words string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used = append(s.used, by.ID+" "+slug+" "+string(input)+words)
	return s.says, s.fail
}

type keyboard struct {
	mu    sync.Mutex
	typed []string
	err   error
}

func (k *keyboard) Send(_ context.Context, session, text string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.typed = append(k.typed, session+" "+text)
	return k.err
}

func said(body string) directive.Text { return directive.Text{Body: body} }

func TestAnAgentUsesASkill(t *testing.T) {
	t.Parallel()
	src, keys := &source{says: strings.Repeat("r", 2_000) + " "}, &keyboard{}
	b := skills.NewBroker(src, keys)
	b.Allow("s1", skills.Grant{By: capability.Principal{ID: "task:s1"}, Task: "t", Slugs: []string{"weather"}})
	turn := said("I look it up.\n\nUSE_SKILL weather {\"city\":\"Lisbon\"}\nUSE_SKILL weather {\"city\":\"Porto\"}")
	if asked, err := b.Turn(t.Context(), "s1", 1, turn); !asked || err != nil {
		t.Fatalf(`b.Turn(t.Context(), "s1", 1, turn): asked = %v, want true; err = %v, want nil`, asked, err)
	}
	if !slices.Equal(src.used, []string{`task:s1 weather {"city":"Lisbon"}`}) {
		t.Errorf("%q; want src.used = []string{`task:s1 weather {\"city\":\"Lisbon\"}`}", src.used)
	}
	lines := strings.Split(keys.typed[0], "\n")
	if len(lines) != 3 || lines[0] != "s1 [skill weather: ok]" || lines[2] != "[end of skill weather]" ||
		len([]rune(lines[1])) != directive.MaxSkillResult {
		t.Errorf(`%q; want len(lines) = 3, lines[0] = "s1 [skill weather: ok]", lines[2] = "[end of skill weather]", `+
			"len([]rune(lines[1])) = directive.MaxSkillResult", keys.typed)
	}
	// The same turn, received by another way; a turn without a directive.
	for _, again := range []struct {
		turn int
		text directive.Text
	}{{1, turn}, {2, said("Done. No skill was needed.")}, {3, said("```\nUSE_SKILL weather\n```")}} {
		if asked, err := b.Turn(t.Context(), "s1", again.turn, again.text); asked || err != nil || len(keys.typed) != 1 {
			t.Errorf("%v: %v %v; want asked = false, no error, len(keys.typed) = 1", again, asked, err)
		}
	}
	// A screen's text, as words; an error is told as one, without credentials.
	src.fail = capability.Errorf(capability.CodeUnavailable, "x", "the service is gone, key ghp_%s", strings.Repeat("a1B2", 9)).With("gone",
		"try later")
	if asked, err := b.Turn(t.Context(), "s1", 4, directive.Text{Body: "● USE_SKILL weather in Lisbon", Columns: 80}); !asked || err != nil {
		t.Fatalf("b.Turn: asked = %v, want true; err = %v, want nil", asked, err)
	}
	if last := keys.typed[1]; !strings.HasPrefix(last, "s1 [skill weather: error]\nthe service is gone") || strings.Contains(last, "ghp_") ||
		src.used[1] != "task:s1 weather in Lisbon" {
		t.Errorf(`%q %q; want last beginning with "s1 [skill weather: error]\nthe service is gone", last without "ghp_", `+
			`src.used[1] = "task:s1 weather in Lisbon"`, last, src.used)
	}
	keys.err = errors.New("ended")
	if asked, err := b.Turn(t.Context(), "s1", 5, said("USE_SKILL weather")); !asked || err == nil {
		t.Errorf("b.Turn: asked = %v, want true; err = %v, want an error", asked, err)
	}
}

func TestOnlyWhatASessionWasGiven(t *testing.T) {
	t.Parallel()
	src, keys := &source{says: "ok"}, &keyboard{}
	b := skills.NewBroker(src, keys)
	b.Allow("s1", skills.Grant{Task: "t", Slugs: []string{"weather"}})
	for _, session := range []string{"s1", "unknown"} {
		if asked, err := b.Turn(t.Context(), session, 1, said("USE_SKILL calendar")); !asked || err != nil {
			t.Errorf("b.Turn: asked = %v, want true; err = %v, want nil", asked, err)
		}
	}
	if len(src.used) != 0 || !strings.Contains(keys.typed[0], "[skill calendar: error]\nthis skill is not among yours, which are: weather") ||
		!strings.Contains(keys.typed[1], "may use no skills") {
		t.Errorf(`%q %q; want len(src.used) = 0, keys.typed[0] with "[skill calendar: error]\nthis skill is not among yours, `+
			`which are: weather", keys.typed[1] with "may use no skills"`, src.used, keys.typed)
	}
	b.Forget("s1")
	if _, err := b.Turn(t.Context(), "s1", 2, said("USE_SKILL weather")); err != nil || len(src.used) != 0 {
		t.Errorf("%q %v; want no error, len(src.used) = 0", src.used, err)
	}
}

func TestATaskHasTenUsesForAllItsSessions(t *testing.T) {
	t.Parallel()
	src, keys := &source{says: "ok"}, &keyboard{}
	b := skills.NewBroker(src, keys)
	for _, session := range []string{"s1", "s2"} {
		b.Allow(session, skills.Grant{Task: "t", Slugs: []string{"weather"}})
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := b.Turn(t.Context(), []string{"s1", "s2"}[i%2], 0, said("USE_SKILL weather")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// The eleventh is reported as the last, and later ones are not reported.
	refused := slices.DeleteFunc(slices.Clone(keys.typed), func(s string) bool { return strings.Contains(s, ": ok]") })
	if len(src.used) != directive.MaxSkillCalls || len(keys.typed) != directive.MaxSkillCalls+1 || len(refused) != 1 ||
		!strings.Contains(refused[0], "used up its skills") {
		t.Errorf("%d used, %q; want len(src.used) = directive.MaxSkillCalls, len(keys.typed) = directive.MaxSkillCalls + 1, "+
			`len(refused) = 1, refused[0] with "used up its skills"`, len(src.used), keys.typed)
	}
	if asked, _ := b.Turn(t.Context(), "s1", 0, said("USE_SKILL weather")); asked {
		t.Error("a turn that nobody answers is an end")
	}
	// Another session of the task does not start over, until all have gone.
	b.Forget("s1")
	b.Allow("s3", skills.Grant{Task: "t", Slugs: []string{"weather"}})
	if asked, _ := b.Turn(t.Context(), "s3", 0, said("USE_SKILL weather")); asked {
		t.Error("counted anew")
	}
	b.Forget("s2")
	b.Forget("s3")
	b.Allow("s4", skills.Grant{Task: "t", Slugs: []string{"weather"}})
	if asked, _ := b.Turn(t.Context(), "s4", 0, said("USE_SKILL weather")); !asked {
		t.Error("another task of that name")
	}
}

// Whatever an agent says, no more is typed to it than a result may have.
func FuzzTurn(f *testing.F) {
	f.Add("USE_SKILL weather {\"a\":1}", "fine", false)
	f.Fuzz(func(t *testing.T, body, result string, screen bool) {
		src, keys := &source{says: result}, &keyboard{}
		b := skills.NewBroker(src, keys)
		b.Allow("s", skills.Grant{Task: "t", Slugs: []string{"weather"}})
		text := directive.Text{Body: body}
		if screen {
			text.Columns = 80
		}
		asked, err := b.Turn(t.Context(), "s", 1, text)
		if err != nil || asked != (len(keys.typed) == 1) || len(src.used) > len(keys.typed) {
			t.Errorf("%v %v %q; want no error, asked = (len(keys.typed) == 1), len(src.used) at most %v",
				asked, err, keys.typed, len(keys.typed))
		}
		for _, s := range keys.typed {
			if n := len([]rune(s)); n > directive.MaxSkillResult+200 {
				t.Errorf("%d characters; want n at most directive.MaxSkillResult + 200", n)
			}
		}
	})
}
