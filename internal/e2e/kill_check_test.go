//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// check compares all that can be asked with what INGEST must have led to.
func (w *world) check(p *server) *fault {
	w.t.Helper()
	js := p.js(w.t)
	ingest := readStream(w.t, js, w.subjects.IngestStream())
	h, f := fold(w.subjects, w.sessions, ingest)
	w.copies = h.copies
	if f != nil {
		return f
	}
	table, f := w.table(p)
	if f != nil {
		return f
	}
	if f := w.checkTable(table, h.rows); f != nil {
		return f
	}
	if f := w.checkEvents(readStream(w.t, js, w.subjects.EventsStream()), table, h.rows); f != nil {
		return f
	}
	for _, walk := range w.walks {
		if f := w.checkWalk(walk, table, h.rows); f != nil {
			return f
		}
	}
	for _, s := range w.sessions {
		if f := w.checkSession(p, js.Conn(), s, h, ingest[len(ingest)-1].seq); f != nil {
			return f
		}
	}
	return w.checkStatus(p, h, len(ingest))
}

// table returns all rows, from one end to the other.
func (w *world) table(p *server) ([]string, *fault) {
	final := &walk{name: "the last reader", ledger: w.ledger, rng: w.rng}
	var rows []string
	for {
		page, err := final.ask(w.t.Context(), p.http, url.Values{"after_seq": {strconv.FormatUint(final.cursor, 10)}, "limit": {"1000"}})
		if err == nil {
			err = final.take(&page)
		}
		if err != nil {
			return nil, faultf(bus.Key{}, 0, "%v", err)
		}
		for _, raw := range page.Events {
			rows = append(rows, string(raw))
		}
		if len(page.Events) == 0 && page.NextAfter == page.Latest {
			return rows, nil
		}
	}
}

// kept returns the rows that no forget has removed.
func (w *world) kept(rows []row) []row {
	var out []row
	for _, r := range rows {
		if r.key != w.forgotten {
			out = append(out, r)
		}
	}
	return out
}

// checkTable: every message is applied exactly once and in its session's order,
// and with a single materializer even in INGEST's. A session is looked at by
// itself first, since that names the message where it goes wrong.
func (w *world) checkTable(table []string, rows []row) *fault {
	events := make([]bus.Event, len(table))
	bySession := map[bus.Key][]int{}
	for i, raw := range table {
		var err error
		if events[i], err = bus.ParseEvent([]byte(raw)); err != nil {
			return faultf(bus.Key{}, 0, "row %.300s: %v", raw, err)
		}
		bySession[events[i].Key()] = append(bySession[events[i].Key()], i)
	}
	want := w.kept(rows)
	at := map[bus.Key]int{}
	for _, r := range want {
		n := at[r.key]
		at[r.key]++
		if n == len(bySession[r.key]) {
			return faultf(r.key, r.number, "the session has %d rows, the first that is missing is a %s of message %d", n, r.typ, r.number)
		}
		i := bySession[r.key][n]
		if diff := differs(&events[i], &r); diff != "" {
			return faultf(r.key, r.number, "row %d of the session differs in %s:\n  is   %.300s\n  want %s of message %d: %.300s", n+1, diff, table[i], r.typ, r.number, r.data)
		}
	}
	for key, all := range bySession {
		if at[key] < len(all) {
			return faultf(key, 0, "the session has %d rows, %d are due; the first that is too much is %.300s", len(all), at[key], table[all[at[key]]])
		}
	}
	for i, r := range want {
		if events[i].Key() != r.key {
			return faultf(r.key, r.number, "row %d is out of INGEST's order: %.300s", i+1, table[i])
		}
	}
	return nil
}

// differs names the first member in which an event of r's session is not r.
func differs(e *bus.Event, r *row) string {
	switch {
	case e.Type != r.typ:
		return "type"
	case string(e.Data) != r.data:
		return "data"
	case e.RecordedAt != r.recordedAt:
		return fmt.Sprintf("recorded_at_ms, want %d", r.recordedAt)
	case e.StoredAt != r.origin.Time/1e6:
		return fmt.Sprintf("stored_at_ms, want %d", r.origin.Time/1e6)
	}
	return ""
}

// checkEvents: EVENTS equals the table in all fields, its numbers are the stream's
// sequences, and each message names its origin and what it was deduplicated by.
func (w *world) checkEvents(events []stored, table []string, rows []row) *fault {
	want := w.kept(rows)
	for i, m := range events {
		if i >= len(table) {
			return faultf(bus.Key{}, 0, "EVENTS has %d messages, the table %d rows; one more is %d on %s", len(events), len(table), m.seq, m.subject)
		}
		r := want[i]
		e, err := bus.ParseEvent(m.data)
		origin, ok := bus.ParseOrigin(m.header)
		switch {
		case err != nil:
			return faultf(r.key, r.number, "EVENTS %d: %v", m.seq, err)
		case string(m.data) != table[i]:
			return faultf(r.key, r.number, "EVENTS %d is not the table's row:\n  EVENTS %.300s\n  table  %.300s", m.seq, m.data, table[i])
		case e.Seq != m.seq:
			return faultf(r.key, r.number, "EVENTS %d has the number %d", m.seq, e.Seq)
		case m.subject != w.subjects.Event(r.key, r.typ):
			return faultf(r.key, r.number, "EVENTS %d is on %s", m.seq, m.subject)
		case !ok || origin != r.origin:
			return faultf(r.key, r.number, "EVENTS %d has the origin %+v, want %+v", m.seq, origin, r.origin)
		case bus.SourceOf(m.header) != r.source:
			return faultf(r.key, r.number, "EVENTS %d has the source %q, want %q", m.seq, bus.SourceOf(m.header), r.source)
		}
	}
	if len(events) < len(table) {
		return faultf(want[len(events)].key, want[len(events)].number, "EVENTS has %d messages, the table %d rows", len(events), len(table))
	}
	return nil
}

// checkWalk: a reader that kept its cursor has read every row of the table, in its
// order: none has appeared behind it. Of the forgotten session it has read what
// there was when it passed.
func (w *world) checkWalk(k *walk, table []string, rows []row) *fault {
	at := 0
	var gone []row
	for _, r := range rows {
		if r.key == w.forgotten {
			gone = append(gone, r)
		}
	}
	passed := 0
	for _, seq := range k.read {
		raw := w.ledger.rows[seq]
		e, err := bus.ParseEvent([]byte(raw))
		switch {
		case err != nil:
			return faultf(bus.Key{}, 0, "%s, number %d: %v", k.name, seq, err)
		case e.Key() == w.forgotten:
			if passed == len(gone) {
				return faultf(w.forgotten, 0, "%s was given more rows than there were, number %d", k.name, seq)
			}
			if diff := differs(&e, &gone[passed]); diff != "" {
				return faultf(w.forgotten, gone[passed].number, "%s, number %d differs in %s from the row of message %d", k.name, seq, diff, gone[passed].number)
			}
			passed++
		case at == len(table) || raw != table[at]:
			return faultf(e.Key(), 0, "%s was given number %d where the table has another row, or none", k.name, seq)
		default:
			at++
		}
	}
	if at < len(table) {
		e, err := bus.ParseEvent([]byte(table[at]))
		return faultf(e.Key(), 0, "%s was never given number %d: it appeared behind the cursor (%v)", k.name, e.Seq, err)
	}
	return nil
}
