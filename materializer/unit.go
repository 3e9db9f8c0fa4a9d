package materializer

import (
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// bigUnit is from how many messages on a unit shows load, goodCommit how many
	// messages are worth waiting for then, maxCommitMessages bounds a transaction.
	bigUnit           = maxAppendMessages / 2
	goodCommit        = 2 * maxBatchMessages
	maxCommitMessages = 2 * maxBatchMessages
)

// unit is what one batch of messages comes to: all of it is in EVENTS already,
// and all of it is committed in one transaction, perhaps with other units.
type unit struct {
	commit    store.Commit
	sessions  map[bus.Key]int // index into commit.Sessions
	done      []done
	removals  bool // a session was forgotten or rows were pruned: wake the remover
	irregular bool // INGEST has lost messages: a checkpoint is due
	units     int64
	weight    int64     // in the handover's room
	began     time.Time // when its first message was taken; only set for spans
}

// done is what a message's confirmation says.
type done struct {
	msg      *message
	outcome  projection.Outcome
	reason   bus.Reason
	frontier bus.ChainPosition // of a projection page's session, after it
}

// session returns the write of a session, made if need be.
func (u *unit) session(k bus.Key) *store.SessionWrite {
	i, ok := u.sessions[k]
	if !ok {
		if u.sessions == nil {
			u.sessions = make(map[bus.Key]int)
		}
		i = len(u.commit.Sessions)
		u.sessions[k] = i
		u.commit.Sessions = append(u.commit.Sessions, store.SessionWrite{Key: k})
	}
	return &u.commit.Sessions[i]
}

// merge adds v, which follows u.
func (u *unit) merge(v *unit) {
	a, b := &u.commit, &v.commit
	a.Position = b.Position
	a.Rows = append(a.Rows, b.Rows...)
	a.IDs = append(a.IDs, b.IDs...)
	a.Rejects = append(a.Rejects, b.Rejects...)
	a.Discards = append(a.Discards, b.Discards...)
	a.Held = append(a.Held, b.Held...)
	a.Counters.Applied += b.Counters.Applied
	a.Counters.Duplicates += b.Counters.Duplicates
	a.Counters.Dropped += b.Counters.Dropped
	a.Counters.Unprojected += b.Counters.Unprojected
	a.Counters.Foreign += b.Counters.Foreign
	a.Counters.Holes += b.Counters.Holes
	a.PruneBefore = max(a.PruneBefore, b.PruneBefore)
	for i := range b.Sessions {
		w := &b.Sessions[i]
		to := u.session(w.Key)
		to.Exists = to.Exists || w.Exists
		to.HeldPages = w.HeldPages
		if w.LastActivityAt != nil {
			to.LastActivityAt = w.LastActivityAt
		}
		if w.Forget {
			// Nothing of the session outlives this; later messages are dropped.
			to.Forget, to.Erase, to.Chain, to.Publishers, to.View = true, w.Erase, nil, nil, nil
			continue
		}
		if w.Chain != nil {
			to.Chain = w.Chain
		}
		if w.Publishers != nil {
			to.Publishers = w.Publishers
		}
		if w.View != nil {
			to.View = w.View
		}
	}
	u.done = append(u.done, v.done...)
	u.removals = u.removals || v.removals
	u.irregular = u.irregular || v.irregular
	u.units += v.units
}
