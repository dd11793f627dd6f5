package reference

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const deviceID = "device-tools"

// device is the state of module device-tools.
type device struct {
	now func() time.Time

	mu       sync.Mutex
	started  time.Time
	pings    int
	notices  map[string]int // by topic
	latest   []string       // the last notices, oldest first
	greeting string
	keep     int
	ready    bool // between init and dispose
	runs     map[string]*run
	nextRun  int
}

func newDevice(now func() time.Time) *device {
	d := &device{now: now, started: now(), runs: make(map[string]*run)}
	d.reset()
	return d
}

// reset sets configuration and counters to what the manifest says.
func (d *device) reset() {
	d.pings, d.notices, d.latest = 0, make(map[string]int), nil
	d.greeting, d.keep = "pong", 100
}

func (d *device) register(e *Endpoint) {
	on(e, "plugin.action.invoke", deviceID, "DEVICE_PING", d.ping)
	on(e, "plugin.action.invoke", deviceID, "DEVICE_RESET", d.clear)
	on(e, "plugin.provider.get", deviceID, "DEVICE_STATUS", d.status)
	on(e, "plugin.event.handle", deviceID, "DEVICE_NOTICE", d.notice)
	on(e, "plugin.model.invoke", deviceID, "TEXT_SMALL", textSmall)
	on(e, "plugin.service.call", deviceID, "device-clock", d.clock)
	on(e, "plugin.lifecycle.call", deviceID, "init", d.begin)
	on(e, "plugin.lifecycle.call", deviceID, "applyConfig", d.applyConfig)
	on(e, "plugin.lifecycle.call", deviceID, "dispose", d.dispose)
	d.registerEvaluators(e)
	d.registerBridge(e)
}

type pingParams struct {
	Content struct {
		Text string `json:"text"`
	} `json:"content"`
	Options struct {
		Uppercase bool `json:"uppercase"`
	} `json:"options"`
}

func (d *device) ping(_ context.Context, p pingParams) (any, error) {
	text := p.Content.Text
	if p.Options.Uppercase {
		text = strings.ToUpper(text)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pings++
	at := stamp(d.now())
	answer := d.greeting
	if text != "" {
		answer += ": " + text
	}
	return reply{
		Text:   answer,
		Values: object{"count": d.pings, "hostTime": at},
		Data:   object{"echo": text, "count": d.pings, "hostTime": at},
	}, nil
}

func (d *device) clear(context.Context, struct{}) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.pings
	d.pings, d.notices, d.latest = 0, make(map[string]int), nil
	return reply{Text: fmt.Sprintf("counters cleared after %d pings", was), Values: object{"count": 0}, Data: object{"previous": was}}, nil
}

type statusParams struct {
	State struct {
		Verbose bool `json:"verbose"`
	} `json:"state"`
}

func (d *device) status(_ context.Context, p statusParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	total := 0
	for _, n := range d.notices {
		total += n
	}
	out := reply{
		Text:   fmt.Sprintf("The device has answered %d pings and taken %d notices.", d.pings, total),
		Values: object{"pings": d.pings, "notices": total, "ready": d.ready, "greeting": d.greeting},
		Data:   object{"topics": maps.Clone(d.notices), "uptimeMs": d.now().Sub(d.started).Milliseconds(), "noticeLimit": d.keep},
	}
	if p.State.Verbose {
		out.Data["latest"] = append([]string{}, d.latest...)
		out.Text += " Topics: " + strings.Join(slices.Sorted(maps.Keys(d.notices)), ", ") + "."
	}
	return out, nil
}

type noticeParams struct {
	Payload struct {
		Topic string `json:"topic"`
		Text  string `json:"text"`
	} `json:"payload"`
}

func (d *device) notice(_ context.Context, p noticeParams) (any, error) {
	topic := p.Payload.Topic
	topic = cmp.Or(topic, "general")
	d.mu.Lock()
	defer d.mu.Unlock()
	// Topics come from outside: beyond a point they are counted as one.
	if _, known := d.notices[topic]; !known && len(d.notices) >= d.keep {
		topic = "other"
	}
	d.notices[topic]++
	d.latest = append(d.latest, topic+": "+p.Payload.Text)
	if over := len(d.latest) - d.keep; over > 0 {
		d.latest = slices.Delete(d.latest, 0, over)
	}
	return object{"handled": true}, nil
}

type serviceParams struct {
	Method string `json:"method"`
	Args   []any  `json:"args"`
}

func (d *device) clock(_ context.Context, p serviceParams) (any, error) {
	now := d.now()
	switch p.Method {
	case "now":
		return outcome{object{"time": stamp(now), "unixMs": now.UnixMilli()}}, nil
	case "elapsed":
		if len(p.Args) != 1 {
			return nil, invalid("elapsed takes one argument, a time")
		}
		text, _ := p.Args[0].(string)
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return nil, invalid("elapsed takes a time in RFC 3339, not %q", text)
		}
		return outcome{object{"ms": now.Sub(since).Milliseconds()}}, nil
	}
	return nil, unknownServiceMethod(deviceID, "device-clock", p.Method)
}

func unknownServiceMethod(module, service, method string) error {
	return capability.UnknownCapability(capability.Member{Module: module, Kind: "service", Name: service + "." + method})
}

type hookParams struct {
	Config map[string]string `json:"config"`
}

func (d *device) begin(_ context.Context, p hookParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.configure(p.Config); err != nil {
		return nil, err
	}
	d.ready = true
	return object{"ok": true}, nil
}

func (d *device) applyConfig(_ context.Context, p hookParams) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.configure(p.Config); err != nil {
		return nil, err
	}
	return object{"ok": true}, nil
}

// configure applies all of the configuration or, on an error, nothing of it.
func (d *device) configure(config map[string]string) error {
	greeting, keep := d.greeting, d.keep
	if v, ok := config["greeting"]; ok {
		if greeting = strings.TrimSpace(v); greeting == "" {
			return invalid("greeting must not be blank")
		}
	}
	if v, ok := config["noticeLimit"]; ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > 10_000 {
			return invalid("noticeLimit must be a number from 1 to 10000, not %q", v)
		}
		keep = n
	}
	d.greeting, d.keep = greeting, keep
	return nil
}

func (d *device) dispose(context.Context, struct{}) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reset()
	clear(d.runs)
	d.ready = false
	return object{"ok": true}, nil
}
