package worker

import (
	"errors"
	"time"

	"github.com/junctor-run/junctor/internal/jsonx"
)

func webAssembly(*conn, time.Time) (jsonx.Raw, error) { return nil, errors.New("not yet") }
