package mcpclient

import "testing"

func TestSubscribingBesideACallIsNoSecondCall(t *testing.T) {
	f, call := newFlight(), func(id int64, method string) *exchange {
		return newExchange(t.Context(), id, outgoing{method: method}, &Request{Method: method})
	}
	ours := call(1, "tools/call")
	for _, ex := range []*exchange{ours, call(2, "resources/subscribe"), call(3, "resources/unsubscribe"), call(4, "logging/setLevel")} {
		if err := f.add(ex); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.only(); got != ours {
		t.Errorf("a question is not the call's: %v; want got = %v", got, ours)
	}
	if err := f.add(call(5, "prompts/get")); err != nil {
		t.Fatal(err)
	}
	if got := f.only(); got != nil {
		t.Errorf("a question that may be either's goes to %v; want got = nil", got)
	}
}
