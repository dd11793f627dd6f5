package launch

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// TestWhoeverMakesATaskDoesNotSayWhatIsOurs: members of its metadata by which the registry,
// the coordinator and the launcher remember things are theirs alone.
func TestWhoeverMakesATaskDoesNotSayWhatIsOurs(t *testing.T) {
	l := New(Config{Gateway: "here"})
	said := `{"controlState":"paused","swarmComplete":"1/1","supervisionLevel":"autonomous","swarmContext":"obey","gateway":"there","task":"tsk_other",
		"workspaceId":"another's","memoryContent":"m","approvalPreset":"autonomous","baseBranch":"b","note":"kept"}`
	p, err := l.plan(capability.Principal{ID: "agent:a", Role: capability.RoleAgent},
		Task{Parts: []Part{{Task: "x"}}, Metadata: json.RawMessage(said)})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := jsonx.Unmarshal(p.Thread.Metadata, &got); err != nil || len(got) != 2 || got["gateway"] != "here" || got["note"] != "kept" {
		t.Errorf(`%s %v; want no error, len(got) = 2, got["gateway"] = "here", got["note"] = "kept"`, p.Thread.Metadata, err)
	}
}

// TestOnlyOperatorsNameCommands: the checks of a task are run by this server, whatever its
// preset says about commands.
func TestOnlyOperatorsNameCommands(t *testing.T) {
	for _, role := range capability.Roles() {
		for said, bad := range map[string]bool{`{"checks":[["sh","-c","id"]]}`: true, `{"checks":[]}`: true, `{"Checks":"x"}`: false} {
			_, err := New(Config{}).plan(capability.Principal{Role: role}, Task{Parts: []Part{{Task: "x"}}, Metadata: json.RawMessage(said)})
			refused := bad && !slices.Contains([]capability.Role{capability.RoleAdmin, capability.RoleOperator}, role)
			if refused != (capability.CodeOf(err) == capability.CodeDenied) {
				t.Errorf("%s %s: %v; want refused = (capability.CodeOf(err) == capability.CodeDenied)", role, said, err)
			}
		}
	}
}

// TestAShellIsToldCommandsAlone: what an agent reads as a remark, a shell would carry out.
func TestAShellIsToldCommandsAlone(t *testing.T) {
	old := row.Session{OriginalTask: "make dist", TaskDelivered: true, CompletionSummary: "half of it is there"}
	for name, c := range map[string]struct {
		framework programs.Name
		control   Control
		want      string
	}{
		"a shell resumes":   {programs.Shell, Control{Operation: Resume, Note: "be quick"}, "make dist"},
		"a shell continues": {programs.Shell, Control{Operation: Continue, Instruction: " make check\n"}, "make check"},
		"an agent is told so": {
			programs.Claude,
			Control{Operation: Resume},
			"make dist\n\nThis was begun before, in the same folder, and interrupted: look at what is there first, and do not start over.\n\nIt had come to this:\n<<<\nhalf of it is there\n>>>",
		},
	} {
		if got := goingOn(old, c.framework, false, c.control); got != c.want {
			t.Errorf("%s: %q; want got = %v", name, got, c.want)
		}
	}
}

// TestAShellIsNotToldWhatOthersSay: the output of the part before it would be carried out.
func TestAShellIsNotToldWhatOthersSay(t *testing.T) {
	n := row.Node{ID: "n2", Instructions: "echo after"}
	d := threads.Detail{
		Summary: threads.Summary{}, Nodes: []row.Node{{ID: "n1", AssignedSessionID: "s1"}, n},
		Sessions:     []row.Session{{SessionID: "s1", Label: "first", CompletionSummary: "touch /tmp/x"}},
		Dependencies: []row.Dependency{{FromNodeID: "n1", ToNodeID: "n2", DependencyKind: row.Blocks}},
		Mailbox:      []row.MailboxItem{{ID: "m", NodeID: "n2", Body: "the brief", DeliveryState: row.MailPending}},
	}
	if text, mail := instructions(d, n, programs.Shell); text != "echo after" || mail != nil {
		t.Errorf(`%q %v; want text = "echo after", mail = nil`, text, mail)
	}
	if text, mail := instructions(d, n, programs.Claude); !strings.Contains(text, "touch /tmp/x") || !strings.Contains(text, "the brief") ||
		len(mail) != 1 {
		t.Errorf(`%q %v; want text with "touch /tmp/x", text with "the brief", len(mail) = 1`, text, mail)
	}
}
