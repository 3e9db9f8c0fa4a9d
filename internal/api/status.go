package api

import (
	"context"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// Status answers the store's and the streams' numbers. The streams' ends are
// asked from the server at each call, before the store is read: a lag of 0 says
// that all that was stored before the call is in the table. If the server does
// not answer, or there is none, last_seq, lag and silent_stores are null: not known.
func (a *API) Status(ctx context.Context, p Params) ([]byte, error) {
	if err := p.only(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	var ends *Ends
	if a.ends != nil {
		e, err := a.askEnds(ctx)
		if err == nil {
			ends = &e
		} else if ctx.Err() != nil {
			return nil, err
		}
	}
	s, err := a.reader.Status(ctx)
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), `{"epoch":`...)
	b = bus.AppendQuoted(b, s.Epoch)
	number := func(name string, n uint64) {
		b = append(b, ',', '"')
		b = append(b, name...)
		b = append(b, '"', ':')
		b = strconv.AppendUint(b, n, 10)
	}
	number("latest_seq", s.EventsSeq)
	number("oldest_seq", s.Oldest)
	b = append(b, `,"ingest":{"position":`...)
	b = strconv.AppendUint(b, s.IngestSeq, 10)
	if ends != nil {
		number("last_seq", ends.IngestLast)
		number("lag", lag(ends.IngestLast, s.IngestSeq))
		b = append(b, `},"events":{"last_seq":`...)
		b = strconv.AppendUint(b, ends.EventsLast, 10)
		number("lag", lag(ends.EventsLast, s.EventsSeq)+uint64(s.Removals))
		b = append(b, '}')
	} else {
		b = append(b, `,"last_seq":null,"lag":null},"events":{"last_seq":null,"lag":null}`...)
	}
	number("sessions", uint64(s.Sessions))
	number("applied", uint64(s.Applied))
	number("duplicates", uint64(s.Duplicates))
	number("held", uint64(s.Held))
	number("rejects", uint64(s.Rejects))
	number("dropped", uint64(s.Dropped))
	number("unprojected", uint64(s.Unprojected))
	number("foreign", uint64(s.Foreign))
	number("holes", uint64(s.Holes))
	number("removals", uint64(s.Removals))
	number("erasures", uint64(s.Erasures))
	if ends != nil {
		number("silent_stores", uint64(ends.SilentStores))
	} else {
		b = append(b, `,"silent_stores":null`...)
	}
	return append(b, '}'), nil
}

// lag is how far position lies below last; the store may be ahead of what the
// server said a moment before.
func lag(last, position uint64) uint64 {
	if last < position {
		return 0
	}
	return last - position
}
