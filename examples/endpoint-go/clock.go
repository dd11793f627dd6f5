package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
	_ "time/tzdata" // zones also where the machine has none

	"github.com/junctor-run/junctor/capability"
)

// clock is the state of the module.
type clock struct {
	now func() time.Time

	mu     sync.Mutex
	zones  []string // watched
	format string
	last   []conversion // newest first
}

// conversion is one time seen from two zones.
type conversion struct {
	From string `json:"from"`
	To   string `json:"to"`
	Time string `json:"time"`   // at from
	Then string `json:"result"` // at to
	Day  int    `json:"day"`    // of to, relative to from: -1, 0 or 1
}

func (c conversion) String() string {
	text := c.Time + " in " + c.From + " is " + c.Then + " in " + c.To
	switch c.Day {
	case 1:
		text += " on the next day"
	case -1:
		text += " on the day before"
	}
	return text + "."
}

const keep = 20

func newClock(now func() time.Time) *clock {
	c := &clock{now: now}
	c.reset()
	return c
}

func (c *clock) reset() {
	c.zones, c.format, c.last = []string{"UTC", "Europe/Berlin", "Asia/Tokyo", "America/New_York"}, "15:04", nil
}

func invalid(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "world-clock", format, args...)
}

func zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil || name == "" || name == "Local" {
		return nil, invalid("there is no zone %q; zones are named like Europe/Berlin", name)
	}
	return loc, nil
}

// at is the time now in a zone.
func (c *clock) at(name string) (string, error) {
	loc, err := zone(name)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().In(loc).Format(c.format), nil
}

// all are the watched zones and the time in each.
func (c *clock) all() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make(map[string]string, len(c.zones))
	for _, name := range c.zones {
		if loc, err := zone(name); err == nil {
			out[name] = c.now().In(loc).Format(c.format)
		}
	}
	return out
}

// watch adds a zone; it reports whether it was new.
func (c *clock) watch(name string) (bool, error) {
	if _, err := zone(name); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case slices.Contains(c.zones, name):
		return false, nil
	case len(c.zones) >= 50:
		return false, invalid("50 zones are watched already")
	}
	c.zones = append(c.zones, name)
	return true, nil
}

// convert reads an hour and minute of today in one zone and states what it is in
// another; an empty text is now.
func (c *clock) convert(text, from, to string) (conversion, error) {
	source, err := zone(from)
	if err != nil {
		return conversion{}, err
	}
	target, err := zone(to)
	if err != nil {
		return conversion{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	moment := c.now().In(source)
	if text != "" {
		clock, err := time.Parse("15:04", text)
		if err != nil {
			return conversion{}, invalid("the time must be like 09:30, not %q", text)
		}
		moment = time.Date(moment.Year(), moment.Month(), moment.Day(), clock.Hour(), clock.Minute(), 0, 0, source)
	}
	there := moment.In(target)
	done := conversion{From: from, To: to, Time: moment.Format(c.format), Then: there.Format(c.format)}
	switch here := moment.Format(time.DateOnly); {
	case there.Format(time.DateOnly) > here:
		done.Day = 1
	case there.Format(time.DateOnly) < here:
		done.Day = -1
	}
	c.last = append([]conversion{done}, c.last[:min(len(c.last), keep-1)]...)
	return done, nil
}

func (c *clock) recent() []conversion {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]conversion{}, c.last...)
}

// configure takes the settings that an agent hands over, all or none.
func (c *clock) configure(config map[string]string) error {
	format, given := config["HOURS"]
	if !given {
		return nil
	}
	hours, err := strconv.ParseFloat(format, 64)
	if err != nil || hours != 12 && hours != 24 {
		return invalid("HOURS must be 12 or 24, not %q", format)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.format = map[float64]string{12: "3:04 PM", 24: "15:04"}[hours]
	return nil
}

// question is a conversion that a caller requests.
type question struct {
	Time string `json:"time"`
	From string `json:"from"`
	To   string `json:"to"`
	Text string `json:"text,omitzero"`
}

var asked = regexp.MustCompile(`(\d{1,2}:\d{2}) (?:in )?([A-Z][A-Za-z_]+(?:/[A-Za-z_]+)*) (?:in|to) ([A-Z][A-Za-z_]+(?:/[A-Za-z_]+)*)`)

// find reads "09:30 Europe/Berlin in Asia/Tokyo" out of a text.
func find(text string) (question, bool) {
	m := asked.FindStringSubmatch(text)
	if m == nil {
		return question{}, false
	}
	return question{Time: fmt.Sprintf("%05s", m[1]), From: m[2], To: m[3]}, true
}
