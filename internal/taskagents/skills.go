package taskagents

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/skills"
)

const (
	recommendTimeout = 15 * time.Second // for a model to say which skills fit
	answerTimeout    = time.Minute      // for a program to take what a skill has said
)

// skillSource has the tools of installed extensions and the functions of skills on nodes
// as skills: what an agent may see in the catalog, and nothing else.
type skillSource struct{ s *Service }

// named are the skills of all principals by their slugs, which are the same for everybody:
// a tool's own name, or, where that is taken, the name behind that of its module.
func (k skillSource) named() map[string]*catalog.Entry {
	var list []*catalog.Entry
	for e := range k.s.cfg.Catalog.Snapshot().Entries() {
		_, kind, _ := e.Key().Parts()
		if e.Minted() && e.VisibleTo(capability.AudienceAgent) && (kind == capability.OriginExtension ||
			e.Module.Origin == capability.OriginSkill) {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *catalog.Entry) int { return cmp.Compare(a.ID, b.ID) })
	out := make(map[string]*catalog.Entry, len(list))
	for _, e := range list {
		for _, slug := range []string{slugOf(e.Declared()), slugOf(e.Module.Extension + "-" + e.Declared())} {
			if skills.ValidSlug(slug) && out[slug] == nil {
				out[slug] = e
				break
			}
		}
	}
	return out
}

// slugOf makes a slug of a name: lower case, with a hyphen for every rune except a letter or
// digit.
func slugOf(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }),
		"-")
}

// List implements skills.Source.
func (k skillSource) List(_ context.Context, by capability.Principal) ([]skills.Skill, error) {
	var out []skills.Skill
	may := make(map[capability.ID]bool)
	for _, e := range k.s.cfg.Engine.List(by, capability.AudienceAgent) {
		may[e.ID] = e.Eligible()
	}
	for slug, e := range k.named() {
		if may[e.ID] {
			about := e.Description()
			if names := arguments(e); len(names) > 0 {
				about = "Input: " + strings.Join(names, ", ") + ". " + about
			}
			out = append(out, skills.Skill{Slug: slug, Name: e.DisplayName(), Description: about})
		}
	}
	slices.SortFunc(out, func(a, b skills.Skill) int { return cmp.Compare(a.Slug, b.Slug) })
	return out, nil
}

// arguments are the names of a skill's input, those that it must have first, and a question
// mark behind all others.
func arguments(e *catalog.Entry) []string {
	var schema struct {
		Properties map[string]jsonx.Raw `json:"properties"`
		Required   []string             `json:"required"`
	}
	if jsonx.Unmarshal(e.InputSchema(), &schema) != nil {
		return nil
	}
	names, rest := slices.Sorted(slices.Values(schema.Required)), []string{}
	for name := range schema.Properties {
		if !slices.Contains(names, name) {
			rest = append(rest, name+"?")
		}
	}
	slices.Sort(rest)
	return append(names, rest...)
}

// Use implements skills.Source. Words are the one argument of a skill that has one.
func (k skillSource) Use(ctx context.Context, by capability.Principal, slug string, input json.RawMessage, words string) (string, error) {
	e := k.named()[slug]
	if e == nil {
		return "", capability.Errorf(capability.CodeUnavailable, "skill", "the skill %s is not there any more", slug).With("skill_gone", "")
	}
	if input == nil && words != "" {
		names := arguments(e)
		if len(names) != 1 {
			return "", capability.Errorf(capability.CodeInvalidInput, "skill", "its input is a JSON object").With("bad_input",
				"Its members: "+cmp.Or(strings.Join(names, ", "), "none"))
		}
		var err error
		if input, err = jsonx.Marshal(map[string]string{strings.TrimSuffix(names[0], "?"): words}); err != nil {
			return "", err
		}
	}
	_, session, _ := strings.Cut(by.ID, ":")
	reply, err := k.s.cfg.Engine.Invoke(ctx, capability.Invocation{
		Surface: "agents", Principal: by, Session: session, Target: capability.Target{Capability: e.ID}, Input: input,
	})
	return resultText(reply.Result), err
}

// taskSkills gives sessions their skills, and has them used.
type taskSkills struct {
	broker   *skills.Broker
	source   skills.Source
	model    skills.Model // may be nil
	settings *choice.Settings
	standing func(id string) (capability.Principal, error)
	logger   *slog.Logger
}

func (s *Service) openSkills(t *taskAgents) *taskSkills {
	k := &taskSkills{source: skillSource{s}, settings: t.settings, standing: s.cfg.Standing, logger: s.logger}
	k.broker = skills.NewBroker(k.source, skillAnswers{t.sessions})
	if s.cfg.Model != nil {
		k.model = coordinatorModel{s.cfg.Model}
	}
	return k
}

// Equip implements agents.Skills: a session may use what both its maker and it itself may,
// with its own rights.
func (k *taskSkills) Equip(ctx context.Context, by capability.Principal, e agents.Equipment) string {
	if !k.settings.Now().SkillCallback {
		return ""
	}
	self, err := k.standing("task:" + e.Session)
	if err != nil {
		k.logger.Error("a session has no skills", "session", e.Session, "err", err)
		return ""
	}
	all, _ := k.source.List(ctx, by)
	own, _ := k.source.List(ctx, self)
	all = slices.DeleteFunc(all, func(s skills.Skill) bool { return !slices.Contains(own, s) })
	if len(all) == 0 {
		return ""
	}
	slugs, best := make([]string, len(all)), []skills.Skill{}
	for i, s := range all {
		slugs[i] = s.Slug
	}
	k.broker.Allow(e.Session, skills.Grant{By: self, Task: cmp.Or(e.Thread, e.Session), Slugs: slugs})
	ctx, cancel := context.WithTimeout(ctx, recommendTimeout)
	defer cancel()
	for _, r := range skills.Recommend(ctx, k.model, e.Task, e.Repo, all) {
		best = append(best, r.Skill)
	}
	return skills.Manifest(best, all)
}

// Forget implements agents.Skills.
func (k *taskSkills) Forget(session string) { k.broker.Forget(session) }

// Turn implements coordinator.Skills.
func (k *taskSkills) Turn(ctx context.Context, session string, turn int, text directive.Text) (bool, error) {
	if !k.settings.Now().SkillCallback {
		return false, nil
	}
	return k.broker.Turn(ctx, session, turn, text)
}

// loneSkills are those of sessions that no coordinator looks after.
type loneSkills struct {
	*taskSkills
	t *taskAgents
}

// Turn implements agents.Skills.
func (k loneSkills) Turn(ctx context.Context, session string, turn int, text directive.Text) bool {
	if _, err := k.t.threads.registry.Session(ctx, session); capability.CodeOf(err) != capability.CodeNotFound {
		return false // the coordinator has it, or it is unknown
	}
	asked, err := k.taskSkills.Turn(ctx, session, turn, text)
	if err != nil {
		k.logger.Warn("a program did not take what a skill said", "session", session, "err", err)
	}
	return asked && err == nil
}

// skillAnswers types what skills say.
type skillAnswers struct{ *sessions.Manager }

// Send implements skills.Sessions.
func (a skillAnswers) Send(ctx context.Context, session, text string) error {
	s, err := a.Get(session)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	outcome, err := s.Send(ctx, text, false)
	if err == nil && outcome == sessions.NotSent {
		err = capability.Errorf(capability.CodeFailed, "skill", "the program did not take the text").With("submit_failed", "look at its screen")
	}
	return err
}
