package materializer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// ErrNoRepair: what was found can not be repaired by what table and EVENTS hold. It is
// wrapped with the reason and with what to do instead.
var ErrNoRepair = errors.New("no repair is safe")

// RepairAction is what a repair does.
type RepairAction string

// The actions. Each is safe to begin again after it was cut short.
const (
	// RepairNothing: table and EVENTS belong together.
	RepairNothing RepairAction = "nothing"
	// RepairPutBack: EVENTS has lost its end; the table's rows go back under the same
	// numbers. The materializer does the same when it starts.
	RepairPutBack RepairAction = "put back"
	// RepairRebuild: EVENTS is missing or empty, or is to be replaced; it is made again
	// from the table under the same numbers.
	RepairRebuild RepairAction = "rebuild"
	// RepairEpoch: EVENTS' metadata have lost the epoch; they get it again.
	RepairEpoch RepairAction = "set epoch"
	// RepairAdopt: another store's repair has given EVENTS a new epoch; the store
	// takes it, and reads EVENTS again from where it differs.
	RepairAdopt RepairAction = "adopt epoch"
	// RepairNewEpoch: table and EVENTS belong together, and the numbers get a new epoch all
	// the same: readers have seen others, or a repair was cut short before its end.
	RepairNewEpoch RepairAction = "new epoch"
	// RepairRecount: sessions or status count other rows than there are; they are
	// counted anew.
	RepairRecount RepairAction = "recount"
	// RepairRenumber: from some number on EVENTS holds other facts than the table.
	// The rows that it lacks go to its end under new numbers, the table takes EVENTS'
	// rows, and the numbers get a new epoch.
	RepairRenumber RepairAction = "renumber"
)

// Diagnosis is what a repair has found, and what it would do.
type Diagnosis struct {
	Action RepairAction
	Found  string // in words

	Epoch    string // the store's
	NewEpoch string // what it will be; the same, or another one

	Oldest, TableFirst, TableLast uint64 // the table's numbers; TableLast is latest_seq
	EventsFirst, EventsLast       uint64 // EVENTS' numbers; 0 if it is missing
	Compared                      uint64 // numbers that both hold
	Differs                       uint64 // the first number that differs; 0 if none
	DiffersIn                     string // in what
	Lacks                         uint64 // rows of the table that EVENTS lacks, up to its end
	FirstLacking                  uint64
	Append                        uint64 // rows that go to EVENTS' end under new numbers
	IngestMissing                 bool   // INGEST is made anew, empty

	lost    bool // EVENTS is missing or empty
	lacking []uint64
	like    *jetstream.StreamConfig // of the EVENTS that is replaced
	plan    *repairPlan             // of a repair that was cut short
}

// Todo reports whether carrying it out would change anything.
func (d *Diagnosis) Todo() bool {
	return d.Action != RepairNothing || d.IngestMissing || d.plan != nil
}

// Effect says in words what carrying it out does.
func (d *Diagnosis) Effect() string {
	var what string
	switch d.Action {
	case RepairNothing:
		what = "nothing"
		if d.plan != nil {
			what = "the repair that was cut short ends"
		}
	case RepairPutBack:
		what = fmt.Sprintf("the rows %d to %d go back to EVENTS under the same numbers; %s", d.EventsLast+1, d.TableLast, d.cursors())
	case RepairRebuild:
		what = fmt.Sprintf("EVENTS is made again from the table, numbers up to %d, the same ones; the stream's consumers have to be made again; %s", d.TableLast, d.cursors())
	case RepairEpoch:
		what = fmt.Sprintf("EVENTS' metadata get the epoch %s; %s", d.NewEpoch, d.cursors())
	case RepairNewEpoch:
		what = "no number changes; " + d.cursors()
	case RepairRecount:
		what = "the rows are counted anew; cursors stay valid"
	case RepairAdopt, RepairRenumber:
		what = fmt.Sprintf("%d rows that EVENTS lacks go to its end under new numbers; serve then reads EVENTS again from where it differs; the epoch becomes %s, so that cursors of the old one are refused (409 other_epoch)", d.Append, d.NewEpoch)
	}
	if d.IngestMissing {
		what += "; INGEST, which is missing, is made anew and empty: what it held beyond the table is lost, unless its senders still have it"
	}
	return what
}

// Diagnose compares the table with EVENTS and changes nothing. It reads both from end
// to end. The error is ErrNoRepair, with what to do instead, where going on would
// mean to guess.
func (r *Repairer) Diagnose(ctx context.Context) (*Diagnosis, error) {
	d, err := r.diagnose(ctx)
	if err == nil {
		err = r.renew(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (r *Repairer) diagnose(ctx context.Context) (*Diagnosis, error) {
	s, err := r.o.Reader.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	if s.Epoch == "" {
		return nil, fmt.Errorf("%w: the store belongs to no bus yet; skald serve starts one", ErrNoRepair)
	}
	d := &Diagnosis{Action: RepairNothing, Epoch: s.Epoch, NewEpoch: s.Epoch, Oldest: s.Oldest, TableLast: s.EventsSeq}
	if d.plan, err = readPlan(r.o.PlanFile); err != nil {
		return nil, err
	}
	first, err := r.o.Reader.Rows(ctx, 0, 1, 1)
	if err != nil {
		return nil, fmt.Errorf("read the table's first row: %w", err)
	}
	if len(first) > 0 {
		d.TableFirst = first[0].Seq
	}
	streams, err := r.find(ctx, d)
	if err != nil {
		return nil, err
	}
	ours := r.ours(streams, s.Bus)
	switch {
	case streams.Events == nil && !ours:
		return nil, r.otherBus(streams, s.Bus)
	case streams.Events == nil:
		d.Action, d.Found, d.lost = RepairRebuild, "EVENTS is missing", true
		if d.plan != nil {
			d.like = d.plan.Like
		}
		return d, nil
	}
	info := streams.Events.CachedInfo()
	d.EventsFirst, d.EventsLast = info.State.FirstSeq, info.State.LastSeq
	if info.State.Msgs == 0 && info.State.LastSeq < d.TableLast {
		if !ours && streams.Epoch != s.Epoch && !d.plan.renews(streams.Epoch) {
			return nil, r.otherBus(streams, s.Bus)
		}
		d.lost = true
		d.Action, d.Found = RepairRebuild, fmt.Sprintf("EVENTS is empty: it was made anew, or has lost everything; it ends at %d, the table at %d", d.EventsLast, d.TableLast)
		d.like = &info.Config
		return d, nil
	}
	if err := r.compareAll(ctx, streams, d); err != nil {
		return nil, err
	}
	if err := r.decide(ctx, streams, s.Bus, d); err != nil || d.Action != RepairNothing {
		return d, err
	}
	return d, r.recount(ctx, d)
}

// find looks for the streams. One that is missing is nil.
func (r *Repairer) find(ctx context.Context, d *Diagnosis) (found bus.Streams, err error) {
	look := func(name string) (jetstream.Stream, error) {
		st, err := r.o.JS.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("find stream %s: %w", name, err)
		}
		return st, nil
	}
	if found.Events, err = look(r.o.Subjects.EventsStream()); err != nil {
		return found, err
	}
	if found.Ingest, err = look(r.o.Subjects.IngestStream()); err != nil {
		return found, err
	}
	d.IngestMissing = found.Ingest == nil
	if found.Events != nil {
		found.Epoch = found.Events.CachedInfo().Config.Metadata[bus.MetaEpoch]
	}
	if found.Ingest != nil {
		found.IngestID = found.Ingest.CachedInfo().Config.Metadata[bus.MetaIngestID]
	}
	return found, nil
}

// ours reports whether what stands beside EVENTS is the store's: INGEST by its id or
// epoch. Where there is no INGEST, nothing says that it is not.
func (r *Repairer) ours(s bus.Streams, known store.Bus) bool {
	return s.Ingest == nil || s.IngestID == known.IngestID ||
		s.Ingest.CachedInfo().Config.Metadata[bus.MetaEpoch] == known.Epoch
}

// otherBus refuses streams that are another bus's.
func (r *Repairer) otherBus(s bus.Streams, known store.Bus) error {
	return fmt.Errorf("%w: %w: the store's epoch is %q, that of EVENTS %q, and no message is in both; bring back the streams or the store that belong together (check --data, --server and --prefix). To read these streams from their beginning instead, start skald serve with a new --data directory",
		ErrNoRepair, bus.ErrOtherBus, known.Epoch, s.Epoch)
}

// compareAll compares the numbers that table and EVENTS both reach.
func (r *Repairer) compareAll(ctx context.Context, streams bus.Streams, d *Diagnosis) error {
	r.use(streams, store.Position{})
	last := min(d.EventsLast, d.TableLast)
	s := r.m.sideBySide(reach(streams.Events.CachedInfo())-1, last, last)
	defer s.close()
	hidden := map[bus.Key]bool{} // sessions that were looked up: no row of theirs is seen
	for {
		seq, row, e, err := s.next(ctx)
		if err != nil {
			return fmt.Errorf("compare the table with EVENTS: %w", err)
		}
		if seq == 0 {
			return nil
		}
		r.progress("comparing", seq, last)
		differs := ""
		switch {
		case row != nil && e != nil:
			if differs = unlike(row, e); differs == "" {
				d.Compared++
			}
		case row != nil:
			if d.Lacks++; d.Lacks == 1 {
				d.FirstLacking = seq
			}
		case e.ours && seq >= d.Oldest:
			gone, err := r.hidden(ctx, hidden, e.row.Key)
			if err != nil {
				return err
			}
			if !gone {
				differs = "row (the table has none)"
			}
		}
		if differs != "" && d.Differs == 0 {
			d.Differs, d.DiffersIn = seq, differs
		}
	}
}

// recount looks whether what is counted agrees with what is there.
func (r *Repairer) recount(ctx context.Context, d *Diagnosis) error {
	wrong, err := miscounts(ctx, r.o.Reader)
	if err == nil && wrong > 0 {
		d.Action, d.Found = RepairRecount, fmt.Sprintf("%s; %d counts are wrong", d.Found, wrong)
	}
	return err
}

// reach is the number from which on EVENTS has to hold what the table holds: what a
// bounded one has let go of by itself it has not lost.
func reach(info *jetstream.StreamInfo) uint64 {
	if bounded(&info.Config) {
		return max(info.State.FirstSeq, 1)
	}
	return 1
}

// bounded reports whether messages leave EVENTS by themselves.
func bounded(c *jetstream.StreamConfig) bool {
	return c.MaxAge > 0 || c.MaxBytes > 0 || c.MaxMsgs > 0
}

// hidden reports whether a session was forgotten: then the table shows no row of it.
func (r *Repairer) hidden(ctx context.Context, seen map[bus.Key]bool, k bus.Key) (bool, error) {
	gone, ok := seen[k]
	if ok {
		return gone, nil
	}
	st, err := r.o.Reader.LoadState(ctx, k)
	if err != nil {
		return false, fmt.Errorf("look up session: %w", err)
	}
	if len(seen) >= 100_000 {
		clear(seen)
	}
	seen[k] = st.Forgotten
	return st.Forgotten, nil
}

// decide says what to do about a comparison.
func (r *Repairer) decide(ctx context.Context, streams bus.Streams, known store.Bus, d *Diagnosis) error {
	same := streams.Epoch == known.Epoch || d.plan.renews(streams.Epoch)
	mine := d.plan != nil && d.plan.Epoch == streams.Epoch // renamed by a repair that was cut short
	switch {
	case !same && !mine && d.Compared == 0:
		return r.otherBus(streams, known)
	case bounded(&streams.Events.CachedInfo().Config) && d.EventsFirst > d.TableLast+1:
		return fmt.Errorf("%w: %w: the table is at %d, EVENTS begins at %d, numbers %d to %d are in neither; restore the store from a backup that reaches there",
			ErrNoRepair, ErrEventsGone, d.TableLast, d.EventsFirst, d.TableLast+1, d.EventsFirst-1)
	case r.o.Rebuild, d.plan != nil && d.plan.Action == RepairRebuild && d.Lacks > 0:
		if !same || d.Differs > 0 || d.EventsLast > d.TableLast {
			return fmt.Errorf("%w: EVENTS can only be replaced where the table holds all of it: first run skald repair without --rebuild, and skald serve until it has caught up", ErrNoRepair)
		}
		d.Action, d.Found = RepairRebuild, fmt.Sprintf("EVENTS lacks %d rows of the table and is to be made again", d.Lacks)
		d.like = &streams.Events.CachedInfo().Config
		return nil
	case same && d.Differs == 0 && d.EventsLast < d.TableLast:
		d.Action, d.Found = RepairPutBack, fmt.Sprintf("EVENTS has lost its end: it ends at %d, the table at %d", d.EventsLast, d.TableLast)
		return nil
	case same && d.Differs == 0:
		d.Found = fmt.Sprintf("table and EVENTS belong together: %d numbers are equal", d.Compared)
		if d.Lacks > 0 {
			d.Found += fmt.Sprintf("; EVENTS lacks %d rows of the table, the first under %d: somebody deleted them, or a forget that this store has yet to read; --rebuild makes EVENTS again with them", d.Lacks, d.FirstLacking)
		}
		return nil
	case streams.Epoch == "" && d.Differs == 0:
		d.Action, d.Found = RepairEpoch, fmt.Sprintf("EVENTS has lost its metadata; %d messages are the table's", d.Compared)
		return nil
	}
	from := d.Differs
	if from == 0 {
		from = min(d.EventsLast, d.TableLast) + 1
	}
	lacking, err := r.m.lacking(ctx, from, d.EventsLast, d.TableLast, func(at uint64) { r.progress("looking for facts", at, max(d.EventsLast, d.TableLast)) })
	if err != nil {
		return fmt.Errorf("look for the table's facts in EVENTS: %w", err)
	}
	d.lacking, d.Append = lacking, uint64(len(lacking))
	switch {
	case same || streams.Epoch == "":
		d.Action, d.Found = RepairRenumber, fmt.Sprintf("EVENTS and the table differ from number %d on, in %s", d.Differs, d.DiffersIn)
		d.NewEpoch = bus.NewID()
		if d.plan != nil {
			d.NewEpoch = d.plan.Epoch
		}
	case mine:
		d.Action, d.NewEpoch, d.Found = RepairAdopt, streams.Epoch, "a repair was cut short when EVENTS had its new epoch already"
	default:
		d.Action, d.NewEpoch = RepairAdopt, streams.Epoch
		d.Found = fmt.Sprintf("EVENTS has another epoch, %s, and %d numbers in common with the table: another store's repair has renumbered it", streams.Epoch, d.Compared)
	}
	return nil
}
