package detect

import (
	"fmt"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

func TestANumberIsTheNumberOnTheScreen(t *testing.T) {
	rows := []string{
		"  Would you like to run the following command?", "",
		"  $ touch one.txt", "",
		"› 1. Yes, proceed (y)",
		"  2. Yes, and don't ask again for commands that start with `touch` (p)",
		"  3. No, and tell Codex what to do differently (esc)", "",
		"  Press enter to confirm or esc to cancel",
	}
	d := findDialog(rows, make([]bool, len(rows)), &File{})
	if d == nil || len(d.Options) != 3 {
		t.Fatalf("findDialog = %+v, want three options", d)
	}
	b := blocker("permission", d.Prompt, d.Options, d.Numbers, d.Selected)
	for text, want := range map[string]int{"3": 2, "No": 2, "yes": 0, "1.": 0, "2": 1, "no, and tell codex what to do differently (esc)": 2} {
		a, err := b.Read(Reply{Text: text})
		if err != nil || a.Option != want {
			t.Errorf("Read(%q) = %+v, %v; want option %d", text, a, err, want)
		}
	}
	for i, want := range []Effect{Once, Always, Denies} {
		if got := b.Choices[i].Effect; got != want {
			t.Errorf("effect of %q = %s, want %s", b.Options[i], got, want)
		}
	}
	if a, err := b.Read(Reply{Text: "4"}); capability.AsError(err).Reason != ReasonNoSuchOption {
		t.Errorf("Read(4) = %+v, %v; want %s", a, err, ReasonNoSuchOption)
	}
}

func TestAnswersAreReadInOneOrder(t *testing.T) {
	b := &Blocker{
		ID: "blk-1", Type: "question", Options: []string{"7", "Yes", "Do not answer"},
		Choices: []Choice{
			{N: 1, Label: "7", Effect: NoEffect}, {N: 2, Label: "Yes", Effect: NoEffect}, {N: 3, Label: "Do not answer", Effect: Denies},
		},
		Questions: []Question{{
			ID: "q", Text: "How many?", FreeText: true,
			Options: []Choice{{N: 1, Label: "7"}, {N: 2, Label: "Yes"}},
		}},
	}
	for _, tt := range []struct {
		reply Reply
		want  string
	}{
		{Reply{Text: "1"}, "0 map[q:[7]]"},
		{Reply{Text: "7"}, "0 map[q:[7]]"},
		{Reply{Text: "yes"}, "1 map[q:[Yes]]"},
		{Reply{Text: "no"}, "2 map[]"},
		{Reply{Text: "12"}, "-1 map[q:[12]]"},
		{Reply{Text: "Ye"}, "-1 map[q:[Ye]]"},
		{Reply{Text: "no", Free: true}, "-1 map[q:[no]]"},
		{Reply{Decline: true}, "2 map[]"},
		{Reply{Blocker: "blk-1", Values: map[string][]string{"q": {"2"}}}, "-1 map[q:[Yes]]"},
	} {
		a, err := b.Read(tt.reply)
		if got := fmt.Sprint(a.Option, a.Values); err != nil || got != tt.want {
			t.Errorf("Read(%+v) = %s, %v; want %s", tt.reply, got, err, tt.want)
		}
	}
	for reason, reply := range map[string]Reply{
		ReasonBlockerEnded: {Blocker: "blk-0", Text: "1"},
		ReasonIncomplete:   {Values: map[string][]string{"q": {"1", "2"}}},
	} {
		if _, err := b.Read(reply); capability.AsError(err).Reason != reason {
			t.Errorf("Read(%+v) = %v, want reason %s", reply, err, reason)
		}
	}
}

func TestYesDoesNotGrantWhatLasts(t *testing.T) {
	b := &Blocker{Type: "permission", Options: []string{"Always allow in this session", "Allow always", "Deny", "Stop the turn"}}
	if a, err := b.Read(Reply{Text: "yes"}); err == nil {
		t.Errorf("Read(yes) = %+v, want an error", a)
	}
	if a, err := b.Read(Reply{Text: "no"}); err != nil || a.Option != 2 {
		t.Errorf("Read(no) = %+v, %v; want option 2", a, err)
	}
}

func TestAnswerInWordsToAPlanDeniesIt(t *testing.T) {
	b := &Blocker{Type: "plan", Options: []string{"Approve the plan", "Keep planning"}, Questions: []Question{{ID: "change", FreeText: true}}}
	for text, want := range map[string]Effect{"yes": Once, "1": Once, "Approve the plan": Once, "no": Denies, "2": Denies, "Paint it green.": Denies} {
		a, err := b.Read(Reply{Text: text})
		if got := b.Effect(a); err != nil || got != want {
			t.Errorf("the effect of %q = %s (%+v, %v), want %s", text, got, a, err, want)
		}
	}
}
