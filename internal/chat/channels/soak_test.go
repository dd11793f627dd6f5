//go:build soak

package channels_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
)

const soakMessages = 10_000

// TestSoakInbound delivers 10,000 messages of 50 people through interrupted connections and lost
// sessions of each service. Each is handled once, and in the order of its conversation.
func TestSoakInbound(t *testing.T) {
	const people, batch = 50, 500
	eachService(t, func(t *testing.T, s *service) {
		users := make([]string, people)
		for i := range users {
			users[i] = strconv.Itoa(100 + i)
			s.pairs(users[i], capability.RoleAgent)
			s.Write(s.Direct(users[i]), users[i], "begin") // a message from which a lost session continues
		}
		count := func() (n int) {
			for _, list := range s.chat.all() {
				n += len(list)
			}
			return n
		}
		s.eventually("the conversations began", func() bool { return count() == people })
		begun := time.Now()
		for n := range soakMessages {
			user := users[n%people]
			s.Write(s.Direct(user), user, strconv.Itoa(n/people))
			switch n % batch {
			case batch / 3:
				s.Interrupt()
			case batch / 2:
				if n/batch%2 == 0 {
					s.Forget()
				}
			case batch - 1: // no service sends more than a hundred of a conversation again
				s.eventually("a batch is handled", func() bool { return count() >= n+1+people })
			}
		}
		t.Logf("%s: %.0f messages a minute", s.Kind(), soakMessages/time.Since(begun).Minutes())
		for id, list := range s.chat.all() {
			if len(list) != 1+soakMessages/people {
				t.Errorf("%s: got %d messages, want %d", id, len(list), 1+soakMessages/people)
			}
			for i, text := range list[1:] {
				if text != strconv.Itoa(i) {
					t.Fatalf("%s: got %q as message %d, want them in order", id, text, i)
				}
			}
		}
	})
}

// TestSoakTelegram delivers 10,000 messages through lost connections, shuffled and repeated batches, and
// restarts.
func TestSoakTelegram(t *testing.T) { deliverThroughFaults(t, soakMessages/50) }

// TestSoakOutbound sends 10,000 messages by two accounts of Telegram through faults. Each is delivered
// once, by its account, or reported.
func TestSoakOutbound(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.cfg.Kinds[0].Rate, r.cfg.Kinds[0].Pause, r.cfg.Kinds[0].GroupPause = rate.Inf, 0, 0
	other := faketelegram.New(t, token)
	r.start()
	r.add(nil)
	second := channels.Ref{Kind: "telegram", Account: "other"}
	_, err := r.Add(t.Context(), admin, channels.Account{Ref: second, Secret: "bot", URL: other.URL})
	must(t, "add", err)
	r.eventually("the second account is connected", func() bool {
		got, err := r.Get(t.Context(), second)
		return err == nil && got.State.State == capability.StateReady
	})
	for _, s := range []*faketelegram.Server{r.tg, other} {
		s.Fail(func(method string, n int) faketelegram.Fault {
			switch {
			case method != "sendMessage":
				return faketelegram.Fault{}
			case n%101 == 3:
				return faketelegram.Fault{Cut: true}
			case n%103 == 7:
				return faketelegram.Fault{Drop: true}
			case n%997 == 5:
				return faketelegram.Fault{Status: 429, RetryAfter: 1}
			}
			return faketelegram.Fault{}
		})
	}
	accounts := r.providers()
	outcomes := make([]error, soakMessages)
	begun := time.Now()
	var work sync.WaitGroup
	for worker := range 100 {
		work.Go(func() {
			for i := worker; i < soakMessages; i += 100 {
				_, outcomes[i] = accounts[i%2].Invoke(t.Context(), send(fmt.Sprintf("k%d", i), strconv.Itoa(100+worker), fmt.Sprintf("text %d", i)))
			}
		})
	}
	work.Wait()
	t.Logf("%.0f messages a minute", soakMessages/time.Since(begun).Minutes())
	byName := map[string]*faketelegram.Server{"messaging:telegram:work": r.tg, "messaging:telegram:other": other}
	seen := make(map[string]int)
	for name, s := range byName {
		for _, m := range s.Sent() {
			seen[name+" "+m.Text]++
		}
	}
	unknown := 0
	for i, err := range outcomes {
		text := fmt.Sprintf("text %d", i)
		here, there := seen[string(accounts[i%2].Key())+" "+text], seen[string(accounts[1-i%2].Key())+" "+text]
		reported := err != nil && capability.AsError(err).Reason == channels.ReasonDeliveryUnknown
		if reported {
			unknown++
		}
		if there != 0 || here > 1 || err == nil && here != 1 || err != nil && !reported {
			t.Errorf("%s: got %v, %d by its account and %d by the other, want it once by its account or delivery_unknown", text, err, here, there)
		}
	}
	if limit := soakMessages / 40; unknown == 0 || unknown > limit {
		t.Errorf("unknown deliveries: got %d, want those that the faults cut, at most %d", unknown, limit)
	}
}
