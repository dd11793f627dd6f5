package taskagents

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/skills"
)

// skillSource implements skills.Source with the tools of installed extensions and the
// functions of skills on nodes, as far as agents may see them in the catalog.
type skillSource struct{ s *Service }

// named returns all skills by slug, regardless of rights, so that slugs are the same for all
// principals. The slug is the tool's name or, if that is taken, module name and tool name. A
// tool whose slugs are invalid or both taken is left out.
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

// slugOf converts a name to lower case and replaces each run of runes other than ASCII letters
// and digits by one hyphen. The slug neither begins nor ends with a hyphen.
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

// arguments returns the names of a skill's arguments: required ones first, then the optional
// ones with a question mark appended.
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

// Use implements skills.Source: it calls the skill and returns the text of its result. If input
// is nil, words become the value of the skill's only argument. Errors: unavailable, reason
// skill_gone; invalid_input, reason bad_input, if the skill has not exactly one argument; and
// those of the call.
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

// taskSkills grants skills to sessions and runs the ones that their turns request.
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

// Equip implements agents.Skills. It grants the session the skills that both its creator and
// the session itself may use, and returns the text that lists them, the recommended ones
// first. It returns "" if skill callbacks are off or no skill is available.
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

// Turn implements coordinator.Skills. It does nothing if skill callbacks are off.
func (k *taskSkills) Turn(ctx context.Context, session string, turn int, text directive.Text) (bool, error) {
	if !k.settings.Now().SkillCallback {
		return false, nil
	}
	return k.broker.Turn(ctx, session, turn, text)
}

// loneSkills handles skill requests of sessions without a thread, because the coordinator
// handles the others.
type loneSkills struct {
	*taskSkills
	t *taskAgents
}

// Turn implements agents.Skills. It reports whether a skill was requested and its answer
// arrived; a failure is logged.
func (k loneSkills) Turn(ctx context.Context, session string, turn int, text directive.Text) bool {
	if _, err := k.t.threads.registry.Session(ctx, session); capability.CodeOf(err) != capability.CodeNotFound {
		return false // the coordinator handles it, or the registry failed
	}
	asked, err := k.taskSkills.Turn(ctx, session, turn, text)
	if err != nil {
		k.logger.Warn("a program did not take what a skill said", "session", session, "err", err)
	}
	return asked && err == nil
}

// skillAnswers sends results of skills to sessions.
type skillAnswers struct{ *sessions.Manager }

// Send implements skills.Sessions. It fails with reason submit_failed if the program did not
// accept the text within answerTimeout.
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
