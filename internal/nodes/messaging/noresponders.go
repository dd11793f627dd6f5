package messaging

// The status header of the answer to a message whose subject has no subscribers, as NATS
// sends it.
const (
	statusHeader = "Status"
	statusNobody = "503"
)

// IsNobody reports whether a message is the bus's answer to one that had a Reply and
// no subscriber. A session that may publish to the reply can send the same message.
func IsNobody(m Message) bool { return len(m.Data) == 0 && m.Header[statusHeader] == statusNobody }
