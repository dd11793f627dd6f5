package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// ReadCatalog reads the operator's settings of the catalog into v: a YAML or JSON document
// with slots, policy, ranks, backends, forcedDefaults, crossContext, naming, owners,
// canonicalMap and exposure. It is a file separate from config.yaml, because its keys contain
// dots and colons. An unknown key is an error. If the file is missing or empty, v is not
// changed.
func ReadCatalog(path string, v any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(data) > maxCatalogFile {
		return fmt.Errorf("%s has %d bytes; the limit is %d", path, len(data), maxCatalogFile)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if doc == nil {
		return nil
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("%s: a key is not text: %w", path, err)
	}
	if err := jsonx.UnmarshalStrict(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
