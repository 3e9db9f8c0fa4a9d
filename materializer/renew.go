package materializer

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// keeps reports whether the action leaves each number what it is. Whether the epoch stays,
// too, is then a matter of what readers may have seen.
func (a RepairAction) keeps() bool {
	switch a {
	case RepairRebuild, RepairPutBack, RepairEpoch, RepairNewEpoch:
		return true
	}
	return false
}

// renews reports whether a repair that was cut short gives the streams the epoch, which the
// store does not have yet, without changing a number.
func (p *repairPlan) renews(epoch string) bool {
	return p != nil && p.Action.keeps() && p.Epoch == epoch && p.Epoch != p.OldEpoch
}

// renew gives a diagnosis that leaves the numbers what they are a new epoch, where they may
// come to mean something else beyond the table's end: if the store was restored and
// EVENTS does not reach so far, or if somebody who knows says so.
func (r *Repairer) renew(ctx context.Context, d *Diagnosis) error {
	restored, err := r.o.Reader.Restored(ctx)
	if err != nil {
		return err
	}
	lost := restored && (d.lost || d.EventsLast < d.TableLast)
	switch {
	case d.NewEpoch != d.Epoch: // it gets one anyway
		return nil
	case d.plan != nil && d.plan.OldEpoch == d.Epoch && d.plan.renews(d.plan.Epoch):
		d.NewEpoch = d.plan.Epoch
	case lost:
		d.Found += "; the store was restored, and what came after the backup is lost: readers may have seen numbers beyond it"
		d.NewEpoch = bus.NewID()
	case r.o.NewEpoch && d.plan == nil:
		d.NewEpoch = bus.NewID()
	default:
		return nil
	}
	if !d.Action.keeps() {
		d.Action = RepairNewEpoch
	}
	return nil
}

// rename gives the numbers their new epoch, in the streams and then in the store, which
// counts anew what it has.
func (r *Repairer) rename(ctx context.Context, d *Diagnosis, known store.Bus) error {
	if err := r.o.Subjects.SetEpoch(ctx, r.o.JS, d.NewEpoch); err != nil {
		return err
	}
	if err := r.step("renamed"); err != nil {
		return err
	}
	known.Epoch = d.NewEpoch
	if err := r.o.Store.Rewind(ctx, d.TableLast, known); err != nil {
		return err
	}
	return r.step("rewound")
}

// cursors says what becomes of readers' cursors.
func (d *Diagnosis) cursors() string {
	if d.NewEpoch == d.Epoch {
		return "cursors stay valid"
	}
	return fmt.Sprintf("the epoch becomes %s, so that cursors of the old one are refused (409 other_epoch)", d.NewEpoch)
}
