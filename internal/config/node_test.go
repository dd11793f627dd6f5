package config

import (
	"strings"
	"testing"
	"time"
)

func TestANodeIsChecked(t *testing.T) {
	t.Parallel()
	load := func(text ...string) error {
		_, err := Load("", "none", false, text, nil, nil)
		return err
	}
	if err := load("JUNCTOR_NODE_LABELS=gpu,device", "JUNCTOR_NODE_HEARTBEAT=10s", "JUNCTOR_NODE_RECONNECT_MAX=5m",
		"JUNCTOR_HOST_LANGUAGES=python", "JUNCTOR_HOST_LIMITS_PAYLOAD=64KiB"); err != nil {
		t.Error(err)
	}
	for _, tt := range [][2]string{
		{"JUNCTOR_NODE_ID=a b", "node.id"},
		{"JUNCTOR_NODE_HEARTBEAT=11s", "node.heartbeat"},
		{"JUNCTOR_NODE_HEARTBEAT=1ms", "node.heartbeat"},
		{"JUNCTOR_NODE_MAX_CONCURRENT=0", "node.max_concurrent"},
		{"JUNCTOR_NODE_QUEUE=0", "node.queue"},
		{"JUNCTOR_NODE_RECONNECT_MAX=1ms", "node.reconnect"},
		{"JUNCTOR_HOST_AUTO_CONSENT=true", "node.development"},
		{"JUNCTOR_HOST_LANGUAGES=perl", "perl"},
		{"JUNCTOR_NODE_LABELS=" + strings.Repeat("x", 200), "node.labels"},
	} {
		if err := load(tt[0]); err == nil || !strings.Contains(err.Error(), tt[1]) {
			t.Errorf("%s: %v; want an error, err.Error() with tt[1]", tt[0], err)
		}
	}
	if err := load("JUNCTOR_HOST_AUTO_CONSENT=true", "JUNCTOR_NODE_DEVELOPMENT=true"); err != nil {
		t.Error(err)
	}
	c := Default()
	if c.Node.Heartbeat != 5*time.Second || c.Host.AllowTransferredCode || c.Host.Limits.RuntimeModules != 8 {
		t.Errorf("%+v %+v; want c.Node.Heartbeat = 5 * time.Second, c.Host.AllowTransferredCode = false, c.Host.Limits.RuntimeModules = 8",
			c.Node, c.Host)
	}
}
