//go:build unix

package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// position is the answer of the position service, as far as it is checked.
type position struct {
	Frontier struct {
		Ordinal uint64
		Digest  string
	}
	Publishers []struct {
		Publisher string
		Count     uint64
		Missing   [][2]uint64
	}
	Held           struct{ Pages int }
	IngestPosition uint64 `json:"ingest_position"`
}

// checkSession: chain, counts and record are where the plan ends, and the session
// counts its rows.
func (w *world) checkSession(p *server, nc *nats.Conn, s *session, h *history, last uint64) *fault {
	query := "/api/v1/sessions/" + url.PathEscape(s.key.Session) + "?workspace_id=" + url.QueryEscape(s.key.Workspace)
	subject := fmt.Sprintf("%s.api.%s.position.%s", w.subjects.Prefix(), bus.Escape(s.key.Workspace), bus.Escape(s.key.Session))
	reply, err := nc.Request(subject, nil, skaldtest.Timeout)
	if err != nil {
		return faultf(s.key, 0, "ask for the position: %v", err)
	}
	code, _, body := p.fetch(w.t, query)
	if s.key == w.forgotten {
		if reply.Header.Get("Nats-Service-Error-Code") != "404" || code != 404 {
			return faultf(s.key, 0, "a forgotten session answers %d %s and %v %s", code, body, reply.Header, reply.Data)
		}
		return nil
	}
	var got position
	if err := json.Unmarshal(reply.Data, &got); err != nil {
		return faultf(s.key, 0, "position %s: %v", reply.Data, err)
	}
	at := s.journal.at
	counted := s.counts == 0 && len(got.Publishers) == 0 ||
		len(got.Publishers) == 1 && got.Publishers[0].Count == s.counts && len(got.Publishers[0].Missing) == 0
	if got.Frontier.Ordinal != at.Ordinal || got.Frontier.Digest != at.Digest.String() || !counted || got.Held.Pages != 0 || got.IngestPosition != last {
		return faultf(s.key, len(s.plan), "position is %s,\nwant ordinal %d, digest %s, count %d, INGEST %d", reply.Data, at.Ordinal, at.Digest, s.counts, last)
	}
	var view struct {
		Title     json.RawMessage
		LastError json.RawMessage `json:"last_error"`
		Events    struct{ Count int }
	}
	if err := json.Unmarshal(body, &view); err != nil || code != 200 {
		return faultf(s.key, 0, "session answers %d %s: %v", code, body, err)
	}
	rows := 0
	for _, r := range h.rows {
		if r.key == s.key {
			rows++
		}
	}
	title, lastError := s.record["title"], s.record["last_error"]
	if lastError == "" {
		lastError = "null"
	}
	if view.Events.Count != rows || title != "" && string(view.Title) != title || string(view.LastError) != lastError {
		return faultf(s.key, len(s.plan), "session is %.600s,\nwant %d events, title %s, last_error %.60s", body, rows, title, lastError)
	}
	return nil
}

// checkStatus: each message of INGEST came to one outcome, whatever was killed in
// between, and all are counted.
func (w *world) checkStatus(p *server, h *history, stored int) *fault {
	var got struct {
		Sessions, Applied, Duplicates, Held, Rejects, Dropped, Unprojected, Foreign, Holes, Removals int
	}
	_, _, status := p.fetch(w.t, "/api/v1/status")
	if err := json.Unmarshal(status, &got); err != nil {
		return faultf(bus.Key{}, 0, "status %s: %v", status, err)
	}
	want := got
	want.Sessions, want.Applied, want.Duplicates, want.Rejects, want.Dropped = len(w.sessions), h.applied, h.duplicates, h.rejects, h.dropped
	want.Held, want.Unprojected, want.Foreign, want.Holes, want.Removals = 0, 0, 0, 0, 0
	if w.forgotten != (bus.Key{}) {
		want.Sessions--
	}
	if got != want {
		return faultf(bus.Key{}, 0, "counters are %+v, want %+v; INGEST holds %d messages", got, want, stored)
	}
	w.t.Logf("INGEST %d: %d applied, %d duplicates, %d held on arrival, %d dropped; EVENTS %d facts; %s",
		stored, h.applied, h.duplicates, h.held, h.dropped, len(h.rows), time.Since(w.began).Round(time.Millisecond))
	return nil
}
