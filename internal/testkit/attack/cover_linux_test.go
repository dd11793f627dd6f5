package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// covered returns the tests that hold each flow (F) and each attack (A). A test of
// another package is named with its folder; TestAttacks/A1 is a row of a table.
func covered() map[string][]string {
	rows := map[string][]string{
		"F1": {"TestF1", "TestF1Legacy"},
		"F2": {"TestF2", "internal/core/command:FuzzLex", "internal/core/command:TestTheWorkedExamplesHold", "internal/core/command:FuzzRoute"},
		"F3": {"TestF1", "internal/core/command:TestRepliesSayWhatToDo", "internal/core/command:TestNearNamesComeBestFirst"},
		"F4": {"TestF4", "internal/core/command:BenchmarkRoute1000"},
		"F5": {
			"internal/core/invoke:TestEveryPairOfStateAndEventIsDecided", "internal/core/invoke:TestNoEventLeavesATerminalState",
			"internal/core/invoke:TestExactlyOneEndWhenExitDeadlineAndCancelRace",
		},
		"F6": {"TestAttacks/A21", "internal/extensions/exec/tool:TestHowARunEnds"},
		"F7": {
			"TestF7", "internal/core/session:TestMemoryIsAStore", "internal/store/sqlstore:TestSQLiteIsAStore",
			"internal/core/session:TestCut",
		},
		"F8": {
			"internal/extensions/exec/analyze:TestAModelGetsDataBetweenBoundaries",
			"internal/extensions/exec/analyze:TestWithoutAModelItIsSaid",
		},
		"F9": {
			"TestF9", "internal/core/audit:TestVerifyNamesTheFirstBadRecord",
			"internal/store/segment:TestRotationOfTheCopiesLosesAndSplitsNoLine", "internal/core/audit:TestRacingAppendersMakeOneChain",
		},
		"F10": {"TestKills", "TestSoakRandomKills", "internal/server:TestKilledServerKeepsExtensionsWhole"},
		"F11": {"TestF11", "internal/core/policy:TestUsesAreCountedExactlyWhateverRaces"},
		"F12": {
			"TestF12", "internal/core/queue:TestWhoWaitsAndWhoGetsIn", "internal/core/queue:TestPriorities",
			"internal/core/queue:TestAStopWaitsForWhatRuns", "internal/core/queue:TestLimitsHoldUnderLoad",
		},
		"F13": {"TestF13"},
		"F14": {"TestF14", "internal/platform/sandbox:TestSwitchedOffLayers"},
		"F15": {
			"internal/core/command:BenchmarkRoute1000", "internal/core/invoke:BenchmarkEngine", "internal/platform/sandbox:BenchmarkSpawn",
			"internal/store/segment:BenchmarkAppendSynced",
		},
	}
	for i := range 25 {
		row := fmt.Sprintf("A%d", i+1)
		rows[row] = []string{"TestAttacks/" + row}
	}
	return rows
}

// TestEveryRowHasATest fails for a row without one, and for a name that is no
// longer there.
func TestEveryRowHasATest(t *testing.T) {
	t.Parallel()
	rows := covered()
	for i := range 15 {
		if row := fmt.Sprintf("F%d", i+1); len(rows[row]) == 0 {
			t.Errorf("%s has no test; want len(rows[row]) other than 0", row)
		}
	}
	for row, tests := range rows {
		for _, name := range tests {
			dir, function, elsewhere := strings.Cut(name, ":")
			if !elsewhere {
				dir, function = "internal/testkit/attack", name
			}
			function, sub, table := strings.Cut(function, "/")
			source := sourceOf(t, dir)
			if !regexp.MustCompile(`(?m)^func ` + function + `\(`).MatchString(source) {
				t.Errorf("%s: there is no %s; want regexp.MustCompile(`(?m)^func ` + function + `\\(`).MatchString(source)", row, name)
			}
			if table && !strings.Contains(source, `{name: "`+sub+`"`) {
				t.Errorf("%s: %s has no row %s; want not (table && !strings.Contains(source, `{name: \"`+sub+`\"`))",
					row, function, sub)
			}
		}
	}
}

func sourceOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("%s has no tests: %v; want no error, len(files) other than 0", dir, err)
	}
	var all strings.Builder
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
