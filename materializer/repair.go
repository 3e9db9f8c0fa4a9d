package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// RepairOptions are what a repair works with. All but Logger, NewEpoch, Progress, Rebuild
// and Streams are required; Store only for [Repairer.Carry].
type RepairOptions struct {
	Conn   *nats.Conn
	JS     jetstream.JetStream // on Conn
	Logger *slog.Logger        // nil discards
	// NewEpoch gives the numbers a new epoch whatever is found: of readers it is known that
	// they have seen others than those that are there. A repair that was cut short is
	// ended without.
	NewEpoch bool
	PlanFile string // where a repair writes down what it is about to do
	// Progress is called often, with what is being done, how far it is, and the end.
	// nil is nobody.
	Progress func(doing string, at, end uint64)
	Reader   *store.Reader
	Rebuild  bool // makes EVENTS again from the table, though it is there
	Store    *store.Store
	Streams  bus.StreamOptions // of streams that are made again
	Subjects bus.Subjects
}

// Repairer brings table and EVENTS together again where a materializer has to stop,
// since it would have to give a number another meaning or make a stream. Nobody
// else may write the store; materializers of other stores notice what it does. It is
// not safe for concurrent use.
type Repairer struct {
	o RepairOptions
	m *Materializer // its way to read and write EVENTS; never run
	// seam is called after each step, with its name. An error is taken for a crash.
	seam func(name string) error
}

// NewRepairer returns a repairer. It reads and changes nothing. It panics if a
// required option is missing.
func NewRepairer(o RepairOptions) *Repairer {
	if o.Conn == nil || o.JS == nil || o.Reader == nil || o.PlanFile == "" || o.Subjects.Prefix() == "" {
		panic("materializer.NewRepairer: an option is missing")
	}
	return &Repairer{o: o, seam: func(string) error { return nil }}
}

func (r *Repairer) progress(doing string, at, end uint64) {
	if r.o.Progress != nil {
		r.o.Progress(doing, at, end)
	}
}

// use makes the materializer that reads and writes these streams.
func (r *Repairer) use(s bus.Streams, pos store.Position) {
	log := r.o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r.m = &Materializer{
		o:      Options{Conn: r.o.Conn, JS: r.o.JS, Logger: log, Store: r.o.Store, Streams: s, Subjects: r.o.Subjects},
		log:    log,
		reader: r.o.Reader,
		seam:   func(string) error { return nil },
	}
	r.m.out = newEventWriter(r.m)
	r.m.committed.init()
	r.m.committed.set(pos)
	r.m.health.init()
}

// Carry carries a diagnosis out. It writes down first what it is about to do; killed at
// any point, a new diagnosis carried out ends it. Until then [PendingRepair] says so.
func (r *Repairer) Carry(ctx context.Context, d *Diagnosis) error {
	if r.o.Store == nil {
		panic("Repairer.Carry: there is no store to write")
	}
	if d.Action == RepairNothing && d.plan == nil && !d.IngestMissing {
		return nil
	}
	plan := repairPlan{Action: d.Action, Epoch: d.NewEpoch, OldEpoch: d.Epoch, From: d.Differs, EventsLast: d.EventsLast, Like: d.like}
	if d.plan != nil && d.plan.Action == RepairRebuild {
		plan = *d.plan // what is left to do is still what it began
		plan.Epoch, plan.OldEpoch = d.NewEpoch, d.Epoch
	}
	if err := writePlan(r.o.PlanFile, plan); err != nil {
		return err
	}
	if err := r.step("planned"); err != nil {
		return err
	}
	if err := r.carry(ctx, d, plan); err != nil {
		return fmt.Errorf("%s: %w", d.Action, err)
	}
	return removePlan(r.o.PlanFile)
}

func (r *Repairer) carry(ctx context.Context, d *Diagnosis, plan repairPlan) error {
	pos, err := r.o.Reader.Position(ctx)
	if err != nil {
		return fmt.Errorf("read the store's position: %w", err)
	}
	known, err := r.o.Store.Bus(ctx)
	if err != nil {
		return fmt.Errorf("read which bus the store belongs to: %w", err)
	}
	switch d.Action {
	case RepairNothing, RepairNewEpoch:
		// Nothing, or the end of a repair that was cut short, or what comes last.
	case RepairEpoch, RepairPutBack:
		if err = r.o.Subjects.SetEpoch(ctx, r.o.JS, d.NewEpoch); err == nil {
			err = r.putBack(ctx, d, pos)
		}
	case RepairRebuild:
		err = r.rebuild(ctx, d, pos)
	case RepairRecount:
		err = r.o.Store.Rewind(ctx, d.TableLast, known)
	case RepairAdopt, RepairRenumber:
		err = r.renumber(ctx, d, known)
	default:
		err = fmt.Errorf("unknown action %q", d.Action)
	}
	if err == nil && plan.Action == RepairRebuild {
		err = r.seal(ctx, d, pos, plan)
	}
	if err == nil && d.Action.keeps() && d.NewEpoch != d.Epoch {
		err = r.rename(ctx, d, known)
	}
	if err != nil || !d.IngestMissing {
		return err
	}
	_, err = r.o.Subjects.RecreateIngest(ctx, r.o.JS, r.o.Streams, d.NewEpoch)
	return err
}

func (r *Repairer) step(name string) error { return r.seam(name) }

// putBack gives EVENTS its end again. Of one that was being rebuilt the empty messages
// leave with all others of it; else each by itself, as a materializer does it.
func (r *Repairer) putBack(ctx context.Context, d *Diagnosis, pos store.Position) error {
	streams, err := r.events(ctx, d.NewEpoch, pos)
	if err != nil {
		return err
	}
	if info := streams.Events.CachedInfo(); !info.Config.DenyPurge {
		err = r.fill(ctx, info.State.LastSeq, d.TableLast)
	} else if info.State.LastSeq < d.TableLast {
		_, err = r.m.putBack(ctx, info.State.LastSeq, d.TableLast)
	}
	return err
}

// events finds EVENTS anew and makes it what the repairer reads and writes.
func (r *Repairer) events(ctx context.Context, epoch string, pos store.Position) (s bus.Streams, err error) {
	if s.Events, err = r.o.JS.Stream(ctx, r.o.Subjects.EventsStream()); err != nil {
		return s, fmt.Errorf("find EVENTS: %w", err)
	}
	s.Epoch = epoch
	r.use(s, pos)
	return s, nil
}

// rebuild makes EVENTS again from the table. Its first number is that of the first
// row, so that the numbers below, however many, cost nothing. Inside, a number whose
// row is gone is taken by an empty message, and all of those leave with one purge.
func (r *Repairer) rebuild(ctx context.Context, d *Diagnosis, pos store.Position) error {
	name := r.o.Subjects.EventsStream()
	if d.like != nil {
		if err := r.o.JS.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
		if err := r.step("deleted"); err != nil {
			return err
		}
	}
	first := d.TableFirst
	if first == 0 || first > d.TableLast {
		first = d.TableLast + 1
	}
	if _, err := r.o.Subjects.RecreateEvents(ctx, r.o.JS, r.o.Streams, d.NewEpoch, first, d.like); err != nil {
		return err
	}
	if err := r.step("made"); err != nil {
		return err
	}
	if _, err := r.events(ctx, d.NewEpoch, pos); err != nil {
		return err
	}
	return r.fill(ctx, first-1, d.TableLast)
}

// seal ends a rebuild: EVENTS can not be purged any more, as it was before.
func (r *Repairer) seal(ctx context.Context, d *Diagnosis, pos store.Position, plan repairPlan) error {
	streams, err := r.events(ctx, d.NewEpoch, pos)
	if err != nil {
		return err
	}
	if !streams.Events.CachedInfo().Config.DenyPurge {
		if err := streams.Events.Purge(ctx, jetstream.WithPurgeSubject(r.o.Subjects.Void())); err != nil {
			return fmt.Errorf("take empty messages out of EVENTS: %w", err)
		}
	}
	if err := r.step("purged"); err != nil {
		return err
	}
	if plan.Like == nil || plan.Like.DenyPurge {
		if err := r.o.Subjects.SealEvents(ctx, r.o.JS); err != nil {
			return err
		}
	}
	return r.step("sealed")
}

// fill appends the table's rows after last up to the number table. The empty messages
// between them stay until seal. What the last number came from is written down where
// nothing will stand there any more.
func (r *Repairer) fill(ctx context.Context, last, table uint64) error {
	for last < table {
		rows, err := r.o.Reader.Rows(ctx, last, maxAppendMessages, maxAppendBytes/2)
		if err != nil {
			return fmt.Errorf("read rows after %d: %w", last, err)
		}
		numbers, _ := numbersToPutBack(rows, last, table)
		if err := r.m.out.appendAll(last, numbers); err != nil {
			return err
		}
		last += uint64(len(numbers))
		r.progress("writing EVENTS", last, table)
		if err := r.step("appended"); err != nil {
			return err
		}
	}
	row, err := r.o.Reader.Row(ctx, table)
	if err != nil || row != nil || table == 0 {
		return err
	}
	pos, _ := r.m.committed.get()
	return r.m.writeRemovedEnd(ctx, table, bus.Origin{Seq: pos.IngestSeq, Time: pos.IngestTime, Index: math.MaxInt32})
}

// renumber appends what EVENTS lacks, gives the numbers their new epoch, and takes the
// table back to the number before the first that differs: the materializer takes
// EVENTS' rows from there on by its usual way.
func (r *Repairer) renumber(ctx context.Context, d *Diagnosis, known store.Bus) error {
	if _, err := r.events(ctx, d.NewEpoch, store.Position{}); err != nil {
		return err
	}
	last := d.EventsLast
	for left := d.lacking; len(left) > 0; {
		rows, err := r.appendable(ctx, left, last)
		if err != nil {
			return err
		}
		err = r.m.out.appendAll(last, rows)
		if errors.Is(err, errLostRace) {
			// Another store goes on writing: behind it, then.
			info, err := r.m.o.Streams.Events.Info(ctx)
			if err != nil {
				return fmt.Errorf("ask EVENTS for its end: %w", err)
			}
			last = info.State.LastSeq
			continue
		}
		if err != nil {
			return err
		}
		left = left[len(rows):]
		last += uint64(len(rows))
		r.progress("appending to EVENTS", uint64(len(d.lacking)-len(left)), d.Append)
		if err := r.step("appended"); err != nil {
			return err
		}
	}
	if err := r.o.Subjects.SetEpoch(ctx, r.o.JS, d.NewEpoch); err != nil {
		return err
	}
	if err := r.step("renamed"); err != nil {
		return err
	}
	to := d.TableLast
	if d.Differs > 0 {
		to = d.Differs - 1
	} else {
		to = min(to, d.EventsLast)
	}
	known.Epoch = d.NewEpoch
	if err := r.o.Store.Rewind(ctx, to, known); err != nil {
		return err
	}
	return r.step("rewound")
}

// appendable returns the next rows to append, numbered after last, as many as one atomic
// batch takes.
func (r *Repairer) appendable(ctx context.Context, seqs []uint64, last uint64) ([]*store.Row, error) {
	var rows []*store.Row
	bytes := 0
	for _, seq := range seqs {
		row, err := r.o.Reader.Row(ctx, seq)
		if err != nil {
			return nil, fmt.Errorf("read row %d: %w", seq, err)
		}
		if row == nil {
			return nil, fmt.Errorf("row %d is gone: somebody else writes the store", seq)
		}
		if bytes += len(row.Data) + headerBytes; len(rows) > 0 && bytes > maxAppendBytes || len(rows) == maxAppendMessages {
			break
		}
		row.Seq = last + uint64(len(rows)) + 1
		rows = append(rows, row)
	}
	return rows, nil
}
