package gateway_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/internal/sse"
	"github.com/skaldbus/skald/materializer/store"
)

// stream is an open stream of server-sent events.
type stream struct {
	*http.Response
	*sse.Decoder
}

// open opens a stream, which has to begin, with a client of its own.
func open(t *testing.T, c *http.Client, address string, headers ...string) stream {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return stream{resp, sse.NewDecoder(resp.Body)}
}

// clients are one of HTTP/1.1 and one of HTTP/2 without TLS.
func clients(t *testing.T) map[string]*http.Client {
	h2 := new(http.Protocols)
	h2.SetUnencryptedHTTP2(true)
	out := map[string]*http.Client{}
	for name, p := range map[string]*http.Protocols{"HTTP/1.1": nil, "HTTP/2.0": h2} {
		tr := &http.Transport{Protocols: p}
		out[name] = &http.Client{Transport: tr}
		t.Cleanup(tr.CloseIdleConnections)
	}
	return out
}

// put commits one fact of session "live" of the workspace.
func (w *world) put(workspace string, size int) {
	w.pos.EventsSeq++
	w.pos.IngestSeq++
	w.commit(&store.Commit{Position: w.pos, Rows: []store.Row{{
		Seq: w.pos.EventsSeq, Key: bus.Key{Workspace: workspace, Session: "live"}, Type: bus.TypeError, RecordedAt: 1,
		Origin: bus.Origin{Seq: w.pos.IngestSeq, Time: 1e9},
		Data:   fmt.Appendf(nil, `{"message":"%s","command_id":null}`, strings.Repeat("x", size)),
	}}})
}

// The rules of cursors. To an EventSource any of these statuses is final.
func TestStream_Cursors(t *testing.T) {
	w := startWorld(t, gateway.Options{}, api.Options{})
	last := fmt.Sprint(len(ids))
	w.prune(4)
	for _, c := range []struct {
		query, header string
		status        int
		code          string
		parameter     string
	}{
		{"", "", 200, "", ""},
		{"?after_seq=", "", 200, "", ""},
		{"?after_seq=0", "", 200, "", ""},
		{"?after_seq=" + last, "", 200, "", ""},
		{"?after_seq=e1:3", "", 200, "", ""},
		{"", "e1:" + last, 200, "", ""},
		{"?after_seq=5", "5", 200, "", ""},
		{"?after_seq=5", "e1:5", 200, "", ""},
		{"?after_seq=e1:5", "5", 200, "", ""},
		{"?after_seq=5", "6", 400, "bad_parameter", "Last-Event-ID"},
		{"?after_seq=0", "5", 400, "bad_parameter", "Last-Event-ID"},
		{"?after_seq=e1:5", "e2:5", 400, "bad_parameter", "Last-Event-ID"},
		{"?after_seq=5", "e2:5", 409, "other_epoch", ""},
		{"?after_seq=e2:5", "", 409, "other_epoch", ""},
		{"?after_seq=999", "", 400, "cursor_ahead", ""},
		{"", "999", 400, "cursor_ahead", ""},
		{"?after_seq=2", "", 410, "cursor_gone", ""},
		{"", "1", 410, "cursor_gone", ""},
		{"?after_seq=bad", "", 400, "bad_parameter", "after_seq"},
		{"?after_seq=5&after_seq=5", "", 400, "bad_parameter", "after_seq"},
		{"", "bad", 400, "bad_parameter", "Last-Event-ID"},
		{"", "-1", 400, "bad_parameter", "Last-Event-ID"},
		{"", "1.5", 400, "bad_parameter", "Last-Event-ID"},
		{"", "1e3", 400, "bad_parameter", "Last-Event-ID"},
		{"", "5,6", 400, "bad_parameter", "Last-Event-ID"},
		{"", "9223372036854775808", 400, "bad_parameter", "Last-Event-ID"},
		{"", strings.Repeat("9", 10_000), 400, "bad_parameter", "Last-Event-ID"},
		{"?session_id=", "", 400, "bad_parameter", "session_id"},
		{"?workspace_id=a%0Ab", "", 400, "bad_parameter", "workspace_id"},
		{"?type=", "", 400, "bad_parameter", "type"},
		{"?limit=5", "", 400, "bad_parameter", "limit"},
		{"?follow=1", "", 400, "bad_parameter", "follow"},
		{"?x=%zz", "", 400, "bad_parameter", "query"},
	} {
		at := fmt.Sprintf("%.60s | %.60s", c.query, c.header)
		headers := []string{"Accept", "text/event-stream"}
		if c.header != "" {
			headers = append(headers, "Last-Event-ID", c.header)
		}
		a := do(t, http.MethodHead, w.URL()+"/api/v1/events"+c.query, headers...)
		require.Equal(t, c.status, a.StatusCode, at)
		if c.status == http.StatusOK {
			require.Equal(t, "text/event-stream", a.Header.Get("Content-Type"), at)
			continue
		}
		a = do(t, http.MethodGet, w.URL()+"/api/v1/events"+c.query, headers...)
		require.Equal(t, c.status, a.StatusCode, at)
		require.Equal(t, "application/json", a.Header.Get("Content-Type"), at)
		var f struct {
			Code, Parameter      string
			LatestSeq, OldestSeq *int
			Latest               *int `json:"latest_seq"`
			Oldest               *int `json:"oldest_seq"`
		}
		require.NoError(t, json.Unmarshal([]byte(a.body), &f))
		require.Equal(t, c.code, f.Code, at)
		require.Equal(t, c.parameter, f.Parameter, at)
		if c.code == "cursor_ahead" {
			require.Equal(t, len(ids), *f.Latest, at)
		}
		if c.code == "cursor_gone" {
			require.Equal(t, 4, *f.Oldest, at)
		}
	}
	// A header that is given twice is not chosen from.
	req, err := http.NewRequest(http.MethodGet, w.URL()+"/api/v1/events", nil)
	require.NoError(t, err)
	req.Header["Last-Event-Id"] = []string{"5", "5"}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

// Over HTTP/1.1 and HTTP/2 alike: headers at once, history, then what is committed, a
// comment now and then, and an id on events only. What the client of a stream needs to
// know of proxies and epochs is in the headers.
func TestStream_Frames(t *testing.T) {
	// A busy machine has to read a request within that, too.
	const comment, read = 20 * time.Millisecond, time.Second
	w := startWorld(t, gateway.Options{}.Hurried(comment, 0, read, 0), api.Options{})
	for proto, c := range clients(t) {
		quiet := open(t, c, w.URL()+"/api/v1/events?workspace_id=none")
		s := open(t, c, w.URL()+"/api/v1/events?after_seq=0", "Accept-Encoding", "gzip, br")
		require.Equal(t, proto, s.Proto)
		require.Equal(t, "text/event-stream", s.Header.Get("Content-Type"))
		require.Equal(t, "no-store, no-transform", s.Header.Get("Cache-Control"))
		require.Equal(t, "no", s.Header.Get("X-Accel-Buffering"))
		require.Equal(t, "nosniff", s.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "e1", s.Header.Get("Skald-Epoch"))
		require.Empty(t, s.Header.Get("Content-Encoding"))
		before := int(w.pos.EventsSeq)
		for i := range before + 1 {
			if i == before {
				w.put("w", 10)
			}
			e, err := s.Next()
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i+1), e.ID)
			require.Equal(t, "error", e.Name)
			fact, err := bus.ParseEvent(e.Data)
			require.NoError(t, err)
			require.EqualValues(t, i+1, fact.Seq)
		}
		require.Positive(t, s.Retry())

		// It goes on beyond the time that a request may take to be read.
		raw := make([]byte, 1)
		var text strings.Builder
		for strings.Count(text.String(), ": \n\n") < int(read/comment)+10 {
			n, err := quiet.Body.Read(raw)
			require.NoError(t, err)
			text.Write(raw[:n])
		}
		require.Regexp(t, `^retry: [123]\d{3}\n: connected\n\n(: \n\n)+$`, text.String())
		quiet.Body.Close()
		s.Body.Close()
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.Streams() == 0 }, "clients that left are noticed")
	require.Zero(t, w.CutOff())
}

// One that takes nothing is cut off when its time is over, and holds nobody up; it has
// nothing of what others got later, and resumes.
func TestStream_StuckReader(t *testing.T) {
	w := startWorld(t, gateway.Options{}.Hurried(0, time.Second, 0, 0), api.Options{})
	stuck, err := net.Dial("tcp", w.Addr())
	require.NoError(t, err)
	defer stuck.Close()
	require.NoError(t, stuck.(*net.TCPConn).SetReadBuffer(4096))
	_, err = io.WriteString(stuck, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	require.NoError(t, err)
	c := clients(t)["HTTP/1.1"]
	s := open(t, c, w.URL()+"/api/v1/events")
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.Stats().Readers == 2 })
	for range 200 { // 20 MB do not fit into sockets
		w.put("w", 100_000)
		e, err := s.Next()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(w.pos.EventsSeq), e.ID)
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.Streams() == 1 }, "it is cut off")
	require.Equal(t, int64(1), w.CutOff())
	require.NoError(t, stuck.SetReadDeadline(time.Now().Add(skaldtest.Timeout)))
	d := sse.NewDecoder(stuck)
	last := "" // after the response's head, which reads as fields that mean nothing
	for {
		e, err := d.Next()
		if err != nil {
			break
		}
		last = e.ID
	}
	s = open(t, c, w.URL()+"/api/v1/events", "Last-Event-ID", last)
	e, err := s.Next()
	require.NoError(t, err)
	require.NotEqual(t, last, e.ID)
}

// More streams than are allowed are turned away so that they come back.
func TestStream_Crowded(t *testing.T) {
	w := startWorld(t, gateway.Options{}.Hurried(0, 0, 0, 1), api.Options{})
	c := clients(t)["HTTP/1.1"]
	open(t, c, w.URL()+"/api/v1/events")
	s := open(t, c, w.URL()+"/api/v1/events")
	e, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, "stream_error", e.Name)
	require.Contains(t, string(e.Data), `"code":"unavailable"`)
	_, err = s.Next()
	require.Equal(t, io.EOF, err)
}

// A stream that can not go on says so in an event without an id, and ends.
func TestStream_Error(t *testing.T) {
	w := startWorld(t, gateway.Options{}, api.Options{Ends: func(context.Context) (api.Ends, error) {
		return api.Ends{EventsLast: 1000}, nil
	}})
	for _, c := range clients(t) {
		s := open(t, c, w.URL()+"/api/v1/events", "Last-Event-ID", fmt.Sprint(w.pos.EventsSeq))
		w.put("w", 1)
		e, err := s.Next()
		require.NoError(t, err)
		id := e.ID
		skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.Stats().Readers == 1 })
		w.breakTable(func() { e, err = s.Next() })
		require.NoError(t, err)
		require.Equal(t, "stream_error", e.Name)
		require.Equal(t, id, e.ID, "the place stays where it was")
		require.Contains(t, string(e.Data), `"error":"internal error`)
		_, err = s.Next()
		require.Equal(t, io.EOF, err)
	}
	// What passes is no status, at which an EventSource would give up.
	s := open(t, clients(t)["HTTP/1.1"], w.URL()+"/api/v1/events?after_seq=1000")
	e, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, "stream_error", e.Name)
	require.Contains(t, string(e.Data), `"code":"behind"`)
}

// breakTable has the hub read while a table is not where it belongs, and runs fn.
func (w *world) breakTable(fn func()) {
	w.t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path)
	require.NoError(w.t, err)
	defer db.Close()
	_, err = db.Exec("ALTER TABLE position RENAME TO away")
	require.NoError(w.t, err)
	w.hub.Committed(store.Position{EventsSeq: w.pos.EventsSeq + 1})
	fn()
	_, err = db.Exec("ALTER TABLE away RENAME TO position")
	require.NoError(w.t, err)
}

// Stopping ends streams cleanly and at once, one whose client takes nothing too: none
// is there to be cut off when the time for stopping is over.
func TestRun_StopsStreams(t *testing.T) {
	var log bytes.Buffer
	w := startWorld(t, gateway.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, api.Options{})
	stuck, err := net.Dial("tcp", w.Addr())
	require.NoError(t, err)
	defer stuck.Close()
	require.NoError(t, stuck.(*net.TCPConn).SetReadBuffer(4096))
	const facts = 60
	_, err = io.WriteString(stuck, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	require.NoError(t, err)
	ends := make(chan error, 20)
	var caughtUp sync.WaitGroup // a client that is slow on a busy machine is no clean end
	caughtUp.Add(cap(ends))
	for _, c := range clients(t) {
		for range 10 {
			s := open(t, c, w.URL()+"/api/v1/events")
			go func() {
				for n := 1; ; n++ {
					if _, err := s.Next(); err != nil {
						ends <- err
						return
					}
					if n == facts {
						caughtUp.Done()
					}
				}
			}()
		}
	}
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return w.hub.Stats().Readers == 21 })
	for range facts {
		w.put("w", 100_000)
	}
	caughtUp.Wait()
	w.stop()
	require.NotContains(t, log.String(), "cut off")
	for range 20 {
		require.Equal(t, io.EOF, <-ends, "a clean end")
	}
}
