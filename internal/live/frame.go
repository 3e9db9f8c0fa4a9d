package live

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Event is a fact as it goes to live readers. One is shared by all of them, so it must
// not be changed.
type Event struct {
	Seq   uint64
	Frame []byte // a whole server-sent event
}

// envelope is more than a frame takes beside its data, for ids of usual length.
const envelope = 320

func newEvent(e *bus.Event) *Event {
	return &Event{Seq: e.Seq, Frame: AppendFrame(make([]byte, 0, len(e.Data)+envelope), e)}
}

// AppendFrame appends the event as a server-sent event. The wire form is compact JSON,
// in which line breaks stand only as escapes; were one to stand in it nevertheless, it
// would go on in another data line, which a reader joins to the same JSON.
func AppendFrame(dst []byte, e *bus.Event) []byte {
	dst = append(dst, "id: "...)
	dst = strconv.AppendUint(dst, e.Seq, 10)
	dst = appendName(append(dst, '\n'), e.Type)
	begin := len(dst)
	dst = e.AppendJSON(append(dst, "data: "...))
	if bytes.IndexByte(dst[begin:], '\n') < 0 && bytes.IndexByte(dst[begin:], '\r') < 0 {
		return append(dst, "\n\n"...)
	}
	return appendData(dst[:begin], e.AppendJSON(nil))
}

// AppendNote appends an event that is no fact: it has no id, so that a reader's place
// stays where it is.
func AppendNote(dst []byte, name string, data []byte) []byte {
	return appendData(appendName(dst, name), data)
}

// appendName names the event. A name of several lines would be fields of its own;
// without one the event is a "message".
func appendName(dst []byte, name string) []byte {
	if name == "" || strings.ContainsAny(name, "\r\n\x00") {
		return dst
	}
	dst = append(dst, "event: "...)
	return append(append(dst, name...), '\n')
}

// appendData appends one data line for each line of the data, and ends the event.
func appendData(dst, data []byte) []byte {
	for {
		i := bytes.IndexAny(data, "\r\n")
		dst = append(dst, "data: "...)
		if i < 0 {
			return append(append(dst, data...), "\n\n"...)
		}
		dst = append(append(dst, data[:i]...), '\n')
		data = data[i+1:]
	}
}
