package attack

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// names is a name server of the tests' own internet that answers as attackers'
// do. Everything below rebind.test is served by it.
var names = sync.OnceValue(func() error {
	c, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		return err
	}
	var asked atomic.Int64
	go func() { // ends with the process
		buf := make([]byte, 512)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply := answer(buf[:n], asked.Add(1)); reply != nil {
				_, _ = c.WriteTo(reply, from)
			}
		}
	}()
	return nil
})

// answer states where a name leads: elsewhere the second time, to several places at
// once, or to a place in disguise.
func answer(q []byte, count int64) []byte {
	if len(q) < 17 {
		return nil
	}
	end := 12
	var labels []string
	for end < len(q) && q[end] != 0 {
		n := int(q[end])
		if end+1+n >= len(q) {
			return nil
		}
		labels = append(labels, string(q[end+1:end+1+n]))
		end += 1 + n
	}
	if end+5 > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[end+1:])
	addresses := map[string][]string{
		"both": {publicAddress, "127.0.0.1"}, "mapped": {"::ffff:127.0.0.1"}, "nat64": {"64:ff9b::7f00:1"}, "zero": {"0.0.0.0"},
		"local6": {"::1"}, "meta": {"169.254.169.254"}, "link": {"fe80::1"}, "private": {"10.1.2.3"}, "six4": {"2002:7f00:1::"},
		"turn": {[]string{publicAddress, "127.0.0.1"}[(count/2)%2]}, "turn2": {[]string{publicAddress, "127.0.0.1"}[count%2]},
	}[strings.ToLower(labels[0])]
	reply := append([]byte{}, q[:end+5]...)
	reply[2], reply[3] = 0x84, 0
	binary.BigEndian.PutUint16(reply[8:], 0)
	binary.BigEndian.PutUint16(reply[10:], 0)
	found := uint16(0)
	for _, text := range addresses {
		a := netip.MustParseAddr(text)
		if (kind == 1) != a.Is4() || kind != 1 && kind != 28 {
			continue
		}
		data := a.AsSlice()
		reply = append(reply, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		reply = append(reply, data...)
		found++
	}
	binary.BigEndian.PutUint16(reply[6:], found)
	return reply
}

// inner is what must not be reached: the machine's own web server.
var inner = sync.OnceValues(func() (*hits, error) {
	h := &hits{}
	for _, address := range []string{"127.0.0.1:80", "127.0.0.1:443", "[::1]:80"} {
		l, err := net.Listen("tcp", address)
		if err != nil && strings.HasPrefix(address, "[") {
			continue
		}
		if err != nil {
			return nil, err
		}
		go func() { // ends with the process
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				h.add("%s was reached", address)
				c.Close()
			}
		}()
	}
	return h, nil
})

func rebinding(l *lab) {
	l.needsInternet()
	if err := names(); err != nil {
		l.Fatal(err)
	}
	h, err := inner()
	if err != nil {
		l.Fatal(err)
	}
	if l.unfiltered("a14") {
		return
	}
	l.v.Names = nil
	for _, name := range []string{"both", "mapped", "nat64", "zero", "local6", "meta", "link", "private", "six4"} {
		l.v.Names = append(l.v.Names, "http://"+name+".rebind.test/", "connect "+name+".rebind.test:443")
	}
	for _, name := range []string{"inside.test", "metadata.test", "intranet.test"} {
		l.v.Names = append(l.v.Names, "http://"+name+"/", "connect "+name+":80")
	}
	denied := len(l.v.Names)
	for range 12 {
		l.v.Names = append(l.v.Names, "http://turn.rebind.test/", "connect turn2.rebind.test:80")
	}
	r := l.task("a14")
	says := read(r.Output).says
	if r.Err != nil || len(says) != len(l.v.Names) {
		l.Fatalf("%v %s", r.Err, r.Output)
	}
	for _, line := range says[:denied] {
		if !strings.Contains(line, " 403 ") && !strings.Contains(line, " 502 ") {
			l.Errorf("it was let through: %s", line)
		}
	}
	if got := h.all(); len(got) > 0 {
		l.Errorf("the machine itself: %v", got)
	}
}

// smuggling asks for one host in the words of another.
func smuggling(l *lab) {
	h := l.needsInternet()
	if l.unfiltered("a14") {
		return
	}
	tag := "/smuggled-" + l.user
	l.v.Names = []string{
		"raw GET http://b.test" + tag + " HTTP/1.1¶Host: a.test¶Connection: close¶¶",
		"raw GET " + tag + " HTTP/1.1¶Host: b.test¶Connection: close¶¶",
		"raw GET http://a.test@b.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://a.test:80@b.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://b.test#@a.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://b.test\\@a.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://b.test%2f@a.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://a.test" + tag + " HTTP/1.1¶Host: b.test¶Connection: close¶¶", // allowed: as a.test
		"raw GET http://a.test" + tag + " HTTP/1.1¶Host: a.test¶Host: b.test¶¶",
		"raw GET http://a.test" + tag + " HTTP/1.1¶Host: a.test¶X-Forwarded-Host: b.test¶Connection: close, host¶¶",
		"raw GET http://a.test%00.b.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://b.test.a.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://xa.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw POST http://a.test" + tag + "1 HTTP/1.1¶Host: a.test¶Transfer-Encoding: chunked¶Content-Length: 4¶¶0¶¶GET http://b.test" +
			tag + " HTTP/1.1¶Host: b.test¶¶",
		"raw POST http://a.test" + tag + "2 HTTP/1.1¶Host: a.test¶Content-Length: 4¶Content-Length: 80¶¶GET " + tag +
			" HTTP/1.1¶Host: b.test¶¶",
		"raw POST http://a.test" + tag + "3 HTTP/1.1¶Host: a.test¶Transfer-Encoding: xchunked¶¶0¶¶GET " + tag +
			" HTTP/1.1¶Host: b.test¶¶",
		"raw GET http://a.test" + tag + "4 HTTP/1.1¶Host: a.test¶Upgrade: websocket¶Connection: Upgrade¶¶",
		"raw GET http://a.test" + tag + "5 HTTP/1.1¶Host: a.test¶X: y¶ Host: b.test¶Connection: close¶¶",
		"raw GET http://a.test" + tag + "6 HTTP/1.1¶Host: a.test¶¶GET http://b.test" + tag + " HTTP/1.1¶Host: b.test¶Connection: close¶¶",
		"raw GET http://a.test" + tag + "7?x HTTP/1.1\\nHost: b.test¶Host: a.test¶¶",
		"raw CONNECT a.test:80@b.test:80 HTTP/1.1¶Host: a.test:80¶¶",
		"raw CONNECT user@b.test:80 HTTP/1.1¶Host: a.test:80¶¶",
		"raw CONNECT b.test:80 HTTP/1.1¶Host: a.test:80¶¶",
		"raw CONNECT a.test HTTP/1.1¶Host: b.test¶¶",
		"raw CONNECT /a.test:80 HTTP/1.1¶Host: b.test:80¶¶",
		"raw CONNECT a.test:0 HTTP/1.1¶Host: a.test¶¶",
		"raw CONNECT a.test:65616 HTTP/1.1¶Host: a.test¶¶", // 65536 + 80
		"raw CONNECT a.test:22 HTTP/1.1¶Host: a.test¶¶",
		"raw GET https://b.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET file:///etc/passwd HTTP/1.1¶Host: a.test¶¶",
		"raw GET ftp://a.test/x HTTP/1.1¶Host: a.test¶¶",
		"raw PRI * HTTP/2.0¶¶SM¶¶",
		"raw OPTIONS * HTTP/1.1¶Host: b.test¶¶",
		"raw TRACE http://b.test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://0x5db8d822" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://1572395042" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://" + strings.Repeat("a.", 200) + "test" + tag + " HTTP/1.1¶Host: a.test¶¶",
		"raw GET http://a.test" + tag + "8 HTTP/1.1¶Host: a.test¶X: " + strings.Repeat("x", 18000) + "¶¶",
	}
	r := l.task("a14")
	says := read(r.Output).says
	if r.Err != nil || len(says) != len(l.v.Names) {
		l.Fatalf("%v: %d answers: %.2000s", r.Err, len(says), r.Output)
	}
	for _, hit := range h.all() {
		if strings.Contains(hit, tag) && !strings.Contains(hit, " a.test/") {
			l.Errorf("it reached %s", hit)
		}
	}
	for _, line := range says {
		if strings.Contains(line, "from b.test") || strings.Contains(line, "root:") || strings.Contains(line, " 101 ") {
			l.Errorf("it got through: %.300s", line)
		}
	}
}

func silentConnections(l *lab) {
	l.needsInternet()
	if l.unfiltered("slow") {
		return
	}
	descriptors := func() int { return countEntries(fmt.Sprintf("/proc/%d/fd", l.pid)) }
	before, most := descriptors(), atomic.Int64{}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				most.Store(max(most.Load(), int64(descriptors())))
			}
		}
	})
	l.v.N = 6 // with more, their sockets alone would reach the memory limit
	r := l.task("slow")
	close(stop)
	watching.Wait()
	if !strings.Contains(r.Output, "over") {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	if grown := int(most.Load()) - before; grown > 600 {
		l.Errorf("one run held %d descriptors of the server", grown)
	}
	until(l.T, "the descriptors are back", func() bool { return descriptors() < before+100 })
}

func deniedFlood(l *lab) {
	l.needsInternet()
	if l.unfiltered("flood") {
		return
	}
	l.v.N = 1500
	if r := l.task("flood"); r.Err != nil || !strings.Contains(r.Output, "over") {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	if got := strings.Count(l.log(l.T, "security"), `"extension_id": "`+l.p.id+`"`); got > 150 {
		l.Errorf("one run wrote %d records", got)
	}
}

// web is a server of the tests' own internet.
var web = sync.OnceValues(func() (*hits, error) {
	h := &hits{}
	l, err := net.Listen("tcp4", publicAddress+":80")
	if err != nil {
		return nil, err
	}
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { //nolint:gosec // a test's
		h.add("%s %s%s", r.Method, r.Host, r.URL)
		fmt.Fprintf(w, "answer for %s from %s", r.URL.Path, r.Host)
	}))
	return h, nil
})

func (l *lab) needsInternet() *hits {
	l.Helper()
	if !private {
		l.Skip("SKIPPED: a network of our own needs root")
	}
	h, err := web()
	if err != nil {
		l.Fatal(err)
	}
	return h
}

// unfiltered holds what T2 does with a network that it cannot filter: nothing
// runs, since it has no approval.
func (l *lab) unfiltered(task string) bool {
	l.Helper()
	if l.tier == "T3" {
		return false
	}
	r := l.task(task)
	if r.Err == nil || r.Err.Reason != "confirmation_required" || strings.Contains(r.Output, "SAYS") {
		l.Errorf("at T2 the network cannot be filtered, and yet: %v %q", r.Err, r.Output)
	}
	l.recorded(l.T, "event=approval_required&ext="+l.p.id, "confirmation_required")
	// Nothing of the extension runs, so that its harmless action cannot either: the
	// rest of the checks is made with an extension without a network.
	if err := l.uninstall(l.Context(), l.who, l.p.id); err != nil {
		l.Error(err)
	}
	l.p.permissions, l.p.network = []string{"exec"}, nil
	if err := l.install(l.Context(), l.who, l.p, l.T); err != nil {
		l.Error(err)
	}
	return true
}

func onlyDeclaredHosts(l *lab) {
	l.needsInternet()
	if l.unfiltered("a14") {
		return
	}
	port := l.v.TCP[strings.LastIndexByte(l.v.TCP, ':')+1:]
	wanted := []struct{ ask, answer string }{
		{"http://a.test/", "200 OK"},
		{"http://A.TEST./x", "200 OK"},
		{"connect a.test:80", "200"},
		{"http://b.test/", "403"},
		{"http://" + publicAddress + "/", "403"},
		{"connect " + publicAddress + ":80", "403"},
		{"http://127.0.0.1:" + port + "/", "403"},
		{"http://localhost:" + port + "/", "403"},
		{"http://inside.test/", "403"},
		{"http://127.0.0.1:3128/", "403"},
		{"connect 127.0.0.1:3128", "403"},
		{"http://a.test:3128/", "403"},
		{"connect a.test:" + port, "403"},
		{"http://[::1]:" + port + "/", "403"},
		{"direct " + publicAddress + ":80", "refused"},
		{"direct 127.0.0.1:" + port, "refused"},
		{"direct a.test:80", "refused"},
		{"direct " + l.v.TCP, "refused"},
	}
	l.v.Names = nil
	for _, w := range wanted {
		l.v.Names = append(l.v.Names, w.ask)
	}
	r := l.task("a14")
	says := read(r.Output).says
	if r.Err != nil || len(says) != len(wanted) {
		l.Fatalf("%v %s", r.Err, r.Output)
	}
	for i, w := range wanted {
		if !strings.Contains(says[i], "=> ") || !strings.Contains(says[i][strings.Index(says[i], "=> "):], w.answer) {
			l.Errorf("%s was wanted: %s", w.answer, says[i])
		}
	}
	l.recorded(l.T, "event=egress_allowed&ext="+l.p.id, `"host":"a.test"`)
	for _, host := range []string{"b.test", publicAddress, "127.0.0.1"} {
		l.recorded(l.T, "event=egress_denied&ext="+l.p.id, `"host":"`+host+`"`)
	}
	l.v.nobodyReached(l.T)
}
