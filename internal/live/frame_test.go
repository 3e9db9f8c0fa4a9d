package live_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/live"
)

// A frame is id, type and the wire form, and an empty line.
func TestAppendFrame(t *testing.T) {
	e := bus.Event{Seq: 42, Session: "s", Workspace: "w", RecordedAt: 1, StoredAt: 2, Type: "error", Data: []byte(`{"message":"\r\n"}`)}
	require.Equal(t, "id: 42\nevent: error\ndata: "+string(e.AppendJSON(nil))+"\n\n", string(live.AppendFrame(nil, &e)))
}

// What another program has put into EVENTS can not end a frame, name another event or
// set an id: line breaks give data lines, a type of several lines is none.
func TestAppendFrame_LineBreaks(t *testing.T) {
	e := bus.Event{Seq: 7, Type: "a\nid: 9", Data: []byte("{\"x\":\r\n\n1,\r\"id: 8\":2}")}
	require.Equal(t, "id: 7\n"+
		"data: {\"seq\":7,\"session_id\":\"\",\"workspace_id\":\"\",\"recorded_at_ms\":0,\"stored_at_ms\":0,\"type\":\"a\\nid: 9\",\"data\":{\"x\":\n"+
		"data: \ndata: \ndata: 1,\ndata: \"id: 8\":2}}\n\n", string(live.AppendFrame(nil, &e)))
	require.Equal(t, "event: stream_error\ndata: x\ndata: y\n\n", string(live.AppendNote(nil, "stream_error", []byte("x\ny"))))
}
