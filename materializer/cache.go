package materializer

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// maxCachedStates and maxCachedBytes bound the states kept in memory beside
	// those in flight. A state with counts of one publisher weighs about 2 KiB.
	maxCachedStates = 50_000
	maxCachedBytes  = 96 << 20
	// stateOverhead is what a state weighs beyond its encoded parts.
	stateOverhead = 1 << 10
)

// cache keeps sessions' states and the event ids that are in flight: ahead of
// what is committed, where the store can not show them. It belongs to the worker.
type cache struct {
	reader *store.Reader
	states map[bus.Key]*cached
	bytes  int64
	ids    map[store.IDKey]idEntry
	idFIFO []idAdded // ids in the order they were added
}

type cached struct {
	state *projection.State
	seq   uint64 // the INGEST message that touched it last; above the committed position it is in flight
	bytes int64

	toucher uint64 // the number of the attempt that touched it last
}

type idAdded struct {
	key store.IDKey
	seq uint64
}

type idEntry struct {
	hash    projection.Hash
	applied int64 // the highest INGEST time when it was applied, ns
	seq     uint64
}

func newCache(r *store.Reader) *cache {
	return &cache{reader: r, states: make(map[bus.Key]*cached), ids: make(map[store.IDKey]idEntry)}
}

// state returns the session's state as of all messages before seq, to be changed
// by message seq.
func (c *cache) state(ctx context.Context, k bus.Key, seq uint64) (*cached, error) {
	e, ok := c.states[k]
	if !ok {
		st, err := c.reader.LoadState(ctx, k)
		if err != nil {
			return nil, fmt.Errorf("load session: %w", err)
		}
		e = &cached{state: st, bytes: stateOverhead + weight(st)}
		c.states[k] = e
		c.bytes += e.bytes
	}
	e.seq = seq
	return e, nil
}

// weight is about what a state holds beyond its fixed parts.
func weight(st *projection.State) int64 {
	v := &st.View
	n := len(v.Title) + len(v.ProjectedTitle) + len(v.State) + len(v.LastError) + len(v.LastOutcome) + len(v.Activity) + len(v.Runtime)
	for i := range v.Elicitations {
		n += len(v.Elicitations[i].Request)
	}
	for i := range st.Held {
		n += len(st.Held[i].Body)
	}
	return int64(n)
}

// weigh corrects what a state counts against the bound.
func (c *cache) weigh(e *cached, bytes int64) {
	c.bytes += bytes + stateOverhead - e.bytes
	e.bytes = bytes + stateOverhead
}

// drop forgets states that hold changes which will not be committed as they are.
func (c *cache) drop(keys map[bus.Key]*cached) {
	for k := range keys {
		if e, ok := c.states[k]; ok {
			c.bytes -= e.bytes
			delete(c.states, k)
		}
	}
}

// trim makes room, in no particular order, among what the store can give again.
func (c *cache) trim(committed uint64) {
	for len(c.idFIFO) > 0 && c.idFIFO[0].seq <= committed {
		// An id that was added anew, since its horizon had passed, is still in flight.
		if k := c.idFIFO[0].key; c.ids[k].seq <= committed {
			delete(c.ids, k)
		}
		c.idFIFO = c.idFIFO[1:]
	}
	if len(c.states) <= maxCachedStates && c.bytes <= maxCachedBytes {
		return
	}
	for k, e := range c.states {
		if e.seq <= committed {
			c.bytes -= e.bytes
			delete(c.states, k)
		}
		if len(c.states) <= maxCachedStates*3/4 && c.bytes <= maxCachedBytes*3/4 {
			return
		}
	}
}

// lookUp asks the store for the event ids of a batch, all at once. What is in
// flight is not in the store's answer, but in ids.
func (c *cache) lookUp(ctx context.Context, batch []*message, notBefore int64) (map[store.IDKey]store.KnownID, error) {
	var ask []store.IDKey
	for _, m := range batch {
		if id := m.Identity; id.EventID != "" && id.Publisher == "" && m.subjectErr == nil && !m.admin {
			ask = append(ask, store.IDKey{Key: m.Key, EventID: id.EventID})
		}
	}
	if len(ask) == 0 {
		return nil, nil
	}
	known, err := c.reader.KnownIDs(ctx, ask, notBefore)
	if err != nil {
		return nil, fmt.Errorf("look up event ids: %w", err)
	}
	return known, nil
}

// known returns what is known of an event id from notBefore on (ns since 1970):
// in flight, or else in what the store has answered. nil is nothing.
func (c *cache) known(id store.IDKey, stored map[store.IDKey]store.KnownID, notBefore int64) *projection.KnownID {
	hash, applied := stored[id].Hash, stored[id].AppliedTime
	e, ok := c.ids[id]
	if ok {
		hash, applied = e.hash, e.applied
	} else if _, ok = stored[id]; !ok {
		return nil
	}
	if applied < notBefore {
		return nil
	}
	return &projection.KnownID{Hash: hash}
}

// remember adds an id that is in flight.
func (c *cache) remember(id store.ID) {
	k := store.IDKey{Key: id.Key, EventID: id.EventID}
	c.ids[k] = idEntry{hash: id.Hash, applied: id.AppliedTime, seq: id.IngestSeq}
	c.idFIFO = append(c.idFIFO, idAdded{k, id.IngestSeq})
}

// forget takes back the newest n ids, which an attempt added that came to nothing.
func (c *cache) forget(ids []store.ID) {
	for _, id := range ids {
		delete(c.ids, store.IDKey{Key: id.Key, EventID: id.EventID})
	}
	c.idFIFO = c.idFIFO[:len(c.idFIFO)-len(ids)]
}
