package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

func TestTheCatalogHasAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "catalog.yaml")
	var s catalog.Settings
	if err := config.ReadCatalog(path, &s); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"": "",
		"slots: {memory: {mode: parallel}}\nowners:\n  messaging:slack:work: slack-pro/adapter\npolicy:\n- {effect: deny, match: [memory.*]}": "",
		"slts: {}":                         "slts",
		"slots: 7":                         "slots",
		"[":                                "catalog.yaml",
		"x: " + strings.Repeat("y", 2<<20): "limit",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s = catalog.Settings{}
		err := config.ReadCatalog(path, &s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf(`%.30q: %v; want not (want == "" && err != nil), not (want != "" && (err == nil || `+
				"!strings.Contains(err.Error(), want)))", text, err)
		}
		if strings.HasPrefix(text, "slots: {") && (s.Slots["memory"].Mode != "parallel" ||
			s.Owners["messaging:slack:work"] != "slack-pro/adapter" || len(s.Policy) != 1) {
			t.Errorf("%+v", s)
		}
	}
}
