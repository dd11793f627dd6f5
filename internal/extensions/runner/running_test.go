package runner

import (
	"context"
	"testing"
)

func TestRunsThatLeaveFilesForSeveralPrincipalsAreShared(t *testing.T) {
	var r Running
	begin := func(extension, writer string) (*one, func()) {
		_, run, end := r.begin(context.Background(), extension, writer)
		return run, end
	}
	bob, bobEnds := begin("notes", "agent:bob")
	again, againEnds := begin("notes", "agent:bob")
	other, otherEnds := begin("mail", "agent:alice")
	reads, readsEnds := begin("notes", "")
	for name, run := range map[string]*one{"bob": bob, "again": again, "other": other, "reads": reads} {
		if run.shared.Load() {
			t.Errorf("%s: got a shared folder, want it of one principal, or a run that leaves no files", name)
		}
	}
	alice, aliceEnds := begin("notes", "agent:alice")
	aliceEnds()
	for name, run := range map[string]*one{"bob": bob, "again": again, "alice": alice} {
		if !run.shared.Load() {
			t.Errorf("%s: got a folder of one principal, want it shared, also after the other run", name)
		}
	}
	if reads.shared.Load() {
		t.Error("a run that leaves no files: got a shared folder, want not")
	}
	for _, end := range []func(){bobEnds, againEnds, otherEnds, readsEnds} {
		end()
	}
	later, laterEnds := begin("notes", "agent:alice")
	defer laterEnds()
	if later.shared.Load() || len(r.runs) != 1 {
		t.Errorf("a run after all others: got shared %v and %d extensions, want its own folder and one", later.shared.Load(), len(r.runs))
	}
}
