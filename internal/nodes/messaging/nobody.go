package messaging

// The status of a message that stands for an answer: nobody subscribes to where the
// message went.
const (
	statusHeader = "Status"
	statusNobody = "503"
)

// Nobody is what a bus answers in place of whoever a message was for: published to a
// subject that nobody subscribes to, with a Reply that the publishing session itself
// subscribes to, it comes back there at once. It says that the message was not
// delivered to anybody.
func Nobody(reply string) Message {
	return Message{Subject: reply, Header: map[string]string{statusHeader: statusNobody}}
}

// IsNobody reports whether a message is what Nobody makes. A session that may publish
// to the reply can send the same: who believes it believes that session.
func IsNobody(m Message) bool { return len(m.Data) == 0 && m.Header[statusHeader] == statusNobody }
