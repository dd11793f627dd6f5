package main

import (
	"testing"
	"time"
)

func fixed() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func TestConversionsKnowTheDay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ time, from, to, want string }{
		{"09:30", "Europe/Berlin", "Asia/Tokyo", "09:30 in Europe/Berlin is 17:30 in Asia/Tokyo."},
		{"20:00", "Europe/Berlin", "Asia/Tokyo", "20:00 in Europe/Berlin is 04:00 in Asia/Tokyo on the next day."},
		{"03:00", "Asia/Tokyo", "America/New_York", "03:00 in Asia/Tokyo is 13:00 in America/New_York on the day before."},
		{"", "UTC", "Europe/Berlin", "12:00 in UTC is 13:00 in Europe/Berlin."},
	} {
		got, err := newClock(fixed).convert(tt.time, tt.from, tt.to)
		if err != nil || got.String() != tt.want {
			t.Errorf("%q, %v; want %q", got, err, tt.want)
		}
	}
	for _, tt := range [][3]string{
		{"25:00", "UTC", "UTC"},
		{"now", "UTC", "UTC"},
		{"", "Moon/Base", "UTC"},
		{"", "UTC", "../etc/passwd"},
		{"", "Local", "UTC"},
	} {
		if _, err := newClock(fixed).convert(tt[0], tt[1], tt[2]); err == nil {
			t.Errorf("%v is accepted", tt)
		}
	}
}

func TestQuestionsAreFoundInTexts(t *testing.T) {
	t.Parallel()
	if q, ok := find("What is 9:30 in Europe/Berlin in Asia/Tokyo?"); !ok ||
		q != (question{Time: "09:30", From: "Europe/Berlin", To: "Asia/Tokyo"}) {
		t.Errorf("%+v, %v", q, ok)
	}
	if q, ok := find("What a day!"); ok {
		t.Errorf("%+v", q)
	}
}

func TestSettingsAreTakenOrRefused(t *testing.T) {
	t.Parallel()
	c := newClock(fixed)
	if err := c.configure(map[string]string{"HOURS": "12"}); err != nil {
		t.Fatal(err)
	}
	if got := c.all()["UTC"]; got != "12:00 PM" {
		t.Errorf("it is %s", got)
	}
	if err := c.configure(map[string]string{"HOURS": "13"}); err == nil {
		t.Error("13 hours are accepted")
	}
}
