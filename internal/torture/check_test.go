//go:build linux

package torture_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// fact is a row with the bytes that it came as.
type fact struct {
	row
	text []byte
}

// table walks a store's table.
func (f *fleet) table(s *store) []fact {
	var out []fact
	for after := uint64(0); ; {
		q := url.Values{"after_seq": {strconv.FormatUint(after, 10)}, "limit": {"1000"}}
		var p page
		f.await("a page is answered", func() error {
			resp, err := f.http.Get(s.url("/api/v1/events?" + q.Encode()))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				return err
			}
			p = page{}
			if err := json.Unmarshal(body, &p); err != nil {
				return err
			}
			if p.Code != "" {
				return fmt.Errorf("%s: %s", p.Code, p.Error)
			}
			return nil
		})
		for _, e := range p.Events {
			r, err := parseRow(e)
			if err != nil {
				f.give(fmt.Sprintf("row %s: %v", e, err))
			}
			out = append(out, fact{r, e})
		}
		if len(p.Events) == 0 && p.Next == after {
			return out
		}
		after = p.Next
	}
}

// check compares everything with everything. It returns how many messages it found
// applied.
func (f *fleet) check() int {
	f.t.Helper()
	first := f.table(f.stores[0])
	for _, s := range f.stores[1:] {
		f.compare("the tables of "+f.stores[0].name+" and "+s.name, first, f.table(s))
	}
	f.compare("table and EVENTS", first, f.events())
	n := f.checkSessions(first)
	f.verify()
	f.checkReaders(first)
	return n
}

// compare requires two lists of facts to be the same bytes.
func (f *fleet) compare(what string, a, b []fact) {
	f.t.Helper()
	for i := range max(len(a), len(b)) {
		var left, right []byte
		if i < len(a) {
			left = a[i].text
		}
		if i < len(b) {
			right = b[i].text
		}
		if !bytes.Equal(left, right) {
			f.give(fmt.Sprintf("%s differ, of %d and %d rows, at place %d:\n%s\n%s", what, len(a), len(b), i, left, right))
		}
	}
}

// events reads all of EVENTS, less what is not Skald's.
func (f *fleet) events() []fact {
	f.t.Helper()
	c, err := f.js.OrderedConsumer(f.ctx, streams()[1], jetstream.OrderedConsumerConfig{})
	if err != nil {
		f.give(err.Error())
	}
	info, err := c.Info(f.ctx)
	if err != nil {
		f.give(err.Error())
	}
	// Not one by one from c, which makes a consumer for each.
	it, err := c.Messages()
	if err != nil {
		f.give(err.Error())
	}
	defer it.Stop()
	var out []fact
	for range info.NumPending {
		m, err := it.Next(jetstream.NextMaxWait(patience))
		if err != nil {
			f.give("read EVENTS: " + err.Error())
		}
		if m.Headers().Get("Skald-Ingest-Seq") == "" {
			continue
		}
		r, err := parseRow(m.Data())
		if err != nil {
			f.give(fmt.Sprintf("EVENTS: %s: %v", m.Data(), err))
		}
		if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream != r.Seq {
			f.give(fmt.Sprintf("EVENTS: %s is number %v", m.Data(), meta))
		}
		out = append(out, fact{r, m.Data()})
	}
	return out
}

// checkSessions compares each session's rows with what its worker was told.
func (f *fleet) checkSessions(rows []fact) int {
	f.t.Helper()
	labels := map[string][]uint64{}
	accounts := f.ledger.snapshot()
	var before uint64
	anonymous := map[string]int{}
	for _, r := range rows {
		key := r.Workspace + "/" + r.Session
		if key == anonymousWorkspace+"/"+anonymousName {
			anonymous[r.Data.Message]++
			continue
		}
		a, ok := accounts[key]
		n, err := r.label()
		switch {
		case !ok:
			f.give(fmt.Sprintf("nobody said anything in session %s: %s", key, r.text))
		case err != nil:
			f.give(fmt.Sprintf("%v: %s", err, r.text))
		case r.Seq <= before:
			f.give(fmt.Sprintf("number %d comes after %d", r.Seq, before))
		case a.dropped:
			f.give(fmt.Sprintf("session %s was forgotten: %s", key, r.text))
		case n > a.sending:
			f.give(fmt.Sprintf("message %d was never sent, at most %d: %s", n, a.sending, r.text))
		}
		before = r.Seq
		labels[key] = append(labels[key], n)
	}
	for text, stored := range f.ledger.anonymous {
		if n := anonymous[text]; n > 1 || n == 0 && stored {
			f.give(fmt.Sprintf("message %q without an identity was stored: %t, and has %d rows", text, stored, n))
		}
	}
	applied := len(anonymous)
	for key, a := range accounts {
		if a.dropped || a.forgotten {
			continue
		}
		// What went out and was not answered before its worker was killed may be there.
		got, least, most := labels[key], a.labels(a.applied), a.labels(a.sending)
		want := most[:min(max(len(got), len(least)), len(most))]
		applied += int(a.applied)
		if !slices.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			f.give(fmt.Sprintf("session %s was told that %d are applied, and has %d rows, not %d; at place %d are %v, not %v",
				key, a.applied, len(got), len(want), at, got[at:min(len(got), at+5)], want[at:min(len(want), at+5)]))
		}
	}
	return applied
}

// labels are those of the rows that the session's messages up to n give.
func (s session) labels(n uint64) []uint64 {
	var out []uint64
	for i := s.after(0); i <= n; i = s.after(i) {
		out = append(out, i)
	}
	return out
}

// after is the label of the row that comes after that of message n, 0 for none.
func (s session) after(n uint64) uint64 {
	if n++; s.Kind == chained && (n-1)%turn == 0 {
		n++ // a turn's first event gives none
	}
	return n
}

// checkReaders waits until each reader is at the end, and compares what it was given
// with the table. Rows of forgotten sessions may be there or not.
func (f *fleet) checkReaders(rows []fact) {
	f.t.Helper()
	accounts := f.ledger.snapshot()
	var last uint64
	if len(rows) > 0 {
		last = rows[len(rows)-1].Seq
	}
	for _, r := range f.readers {
		end := last
		if r.workspace != "" {
			end = 0
			for _, row := range rows {
				if row.Workspace == r.workspace {
					end = row.Seq
				}
			}
		}
		f.await(fmt.Sprintf("reader %s has number %d", r.name, end), func() error {
			if got := f.ledger.at(r); got < end {
				return fmt.Errorf("it is at %d", got)
			}
			return nil
		})
		r.cancel()
		<-r.done
		var want []uint64
		for _, row := range rows {
			if r.workspace == "" || row.Workspace == r.workspace {
				want = append(want, row.Seq)
			}
		}
		table := map[uint64]bool{}
		for _, seq := range want {
			table[seq] = true
		}
		gone := 0
		got := slices.DeleteFunc(slices.Clone(r.rows), func(seq uint64) bool {
			if !table[seq] {
				gone++
			}
			return !table[seq]
		})
		forgotten := false
		for _, a := range accounts {
			forgotten = forgotten || a.forgotten
		}
		if gone > 0 && !forgotten {
			f.give(fmt.Sprintf("reader %s was given %d rows that are not in the table", r.name, gone))
		}
		if !slices.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			f.give(fmt.Sprintf("reader %s was given %d rows, the table has %d; at place %d are %v, not %v",
				r.name, len(got), len(want), at, got[at:min(len(got), at+5)], want[at:min(len(want), at+5)]))
		}
	}
}

// verify lets each store be compared with the streams by the command for it.
func (f *fleet) verify() {
	f.t.Helper()
	for _, s := range f.stores {
		out, err := exec.CommandContext(f.ctx, f.bin, "verify", "--data", s.data, "--server", "nats://"+f.natsAt).CombinedOutput()
		if err != nil {
			f.give(fmt.Sprintf("verify %s: %v\n%s", s.name, err, out))
		}
	}
}
