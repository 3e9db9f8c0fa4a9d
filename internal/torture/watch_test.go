//go:build linux

package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// watch starts what looks at the streams and at the stores from outside for as long as
// the fleet lives: some mistakes show there at once, and at the doors only much later.
func (f *fleet) watch() {
	ctx, cancel := context.WithCancel(f.ctx)
	f.unwatch = cancel
	f.wg.Go(func() { f.watchEvents(ctx) })
	for _, s := range f.stores {
		f.wg.Go(func() { f.watchStore(ctx, s) })
	}
}

// watchEvents reads EVENTS as it is, from its beginning. A materializer's message says
// the number that it stands under, whoever else writes there, and is what its session
// has to say next.
func (f *fleet) watchEvents(ctx context.Context) {
	var cursor uint64
	said := map[string]uint64{} // the last message of each session up to the cursor
	var files int64             // as often as they were set back when these were seen
	for ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond) // before it looks again
		before := f.setBacks.Load()
		if files != before {
			files, cursor = before, 0
		}
		st, err := f.js.Stream(ctx, streams()[1])
		if err != nil {
			continue
		}
		last := st.CachedInfo().State.LastSeq
		if last < cursor {
			cursor = 0 // it has lost its end
		}
		if cursor == 0 {
			clear(said)
		}
		if last == cursor {
			continue
		}
		// Not an ordered one, which never gives up.
		c, err := st.CreateConsumer(ctx, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: cursor + 1,
			InactiveThreshold: 5 * time.Second, MemoryStorage: true,
		})
		if err != nil {
			continue
		}
		batch, err := c.Fetch(1000, jetstream.FetchMaxWait(500*time.Millisecond))
		if err != nil {
			continue
		}
		var delivered uint64
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				f.broken("EVENTS: %v", err)
				return
			}
			if delivered++; delivered != meta.Sequence.Consumer || f.setBacks.Load() != before {
				break // the connection has lost some, or they may be of files that are back
			}
			cursor = meta.Sequence.Stream
			if m.Headers().Get("Skald-Ingest-Seq") == "" {
				continue // a foreign one, or a number that is only taken
			}
			r, err := parseRow(m.Data())
			if err != nil || r.Seq != cursor {
				f.broken("EVENTS: number %d holds %s", cursor, m.Data())
				return
			}
			if err := f.isNext(said, r); err != nil {
				f.broken("EVENTS: number %d: %v: %s", cursor, err, m.Data())
				return
			}
		}
	}
}

// isNext reports whether a row is its session's next one, after what was said, and
// notes it.
func (f *fleet) isNext(said map[string]uint64, r row) error {
	key := r.Workspace + "/" + r.Session
	a, ok := f.ledger.account(key)
	if !ok || a.forgotten || a.dropped {
		return nil // it has no order, or holes
	}
	n, err := r.label()
	if err != nil {
		return err
	}
	if want := a.after(said[key]); n != want {
		return fmt.Errorf("message %d of session %s came where %d is next", n, key, want)
	}
	said[key] = n
	return nil
}

// eventsEnd asks for EVENTS' last sequence.
func (f *fleet) eventsEnd() (uint64, error) {
	ctx, cancel := context.WithTimeout(f.ctx, time.Second)
	defer cancel()
	st, err := f.js.Stream(ctx, streams()[1])
	if err != nil {
		return 0, err
	}
	return st.CachedInfo().State.LastSeq, nil
}

// watchStore asks a store where it is. Its position is behind all that it has decided,
// whatever it was killed at, and goes back only with its files, or where INGEST has lost
// what was read.
func (f *fleet) watchStore(ctx context.Context, s *store) {
	client := http.Client{Timeout: time.Second}
	var highest uint64
	var files int64 // as often as they were set back when highest was seen
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond) // before it looks again
		before := s.setBacks.Load()
		st, err := statusOf(ctx, &client, s)
		if err != nil || f.ledger.hasLost() || s.setBacks.Load() != before {
			continue // it is down, or what it says may be of before
		}
		if files != before {
			files, highest = before, 0
		}
		at := st.Ingest.Position
		switch decided := st.Applied + st.Duplicates + st.Dropped; {
		case decided > at:
			f.broken("%s has decided %d messages and would read on from %d", s.name, decided, at)
			return
		case at < highest:
			f.broken("%s was at %d in INGEST, and is at %d", s.name, highest, at)
			return
		}
		highest = at
	}
}

// statusOf asks a store for its status.
func statusOf(ctx context.Context, client *http.Client, s *store) (status, error) {
	var st status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/api/v1/status"), nil)
	if err != nil {
		return st, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return st, err
	}
	err = json.NewDecoder(resp.Body).Decode(&st)
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return st, errors.Join(err, resp.Body.Close())
}
