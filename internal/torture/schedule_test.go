//go:build linux

package torture_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxWounds is how many are open at a time.
const maxWounds = 3

// wound is a fault that is to be healed.
type wound struct {
	name string
	heal func()
	at   time.Time // when
}

// step is something to be done in the midst of it.
type step struct {
	name string
	at   time.Duration // not before
	do   func() bool   // reports whether it is done; it is asked until it is, with wounds open
}

// torture hurts the fleet until the time is up and the steps are done, one after the other,
// and heals it.
func (f *fleet) torture(d time.Duration, steps ...step) {
	all := slices.DeleteFunc(faults(), func(x fault) bool { return x.is(long) && !f.every })
	total := 0
	for _, x := range all {
		total += x.weight
	}
	var open []wound
	heal := func(every bool) {
		open = slices.DeleteFunc(open, func(w wound) bool {
			if !every && time.Now().Before(w.at) {
				return false
			}
			w.heal()
			f.note("healed: %s", w.name)
			return true
		})
	}
	// Some come once in any case, and soon.
	due := slices.DeleteFunc(slices.Clone(all), func(x fault) bool { return !x.is(sure) })
	f.rng.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	every := min(1500*time.Millisecond, d/2/time.Duration(len(due)))
	for began, next := time.Now(), every/2; time.Since(began) < d || len(steps) > 0; {
		f.look()
		heal(false)
		if len(steps) > 0 && time.Since(began) > steps[0].at {
			switch {
			case steps[0].do():
				steps = steps[1:]
			case time.Since(began) > d+2*patience:
				f.give("it does not come to pass: " + steps[0].name)
			}
		}
		pick := f.rng.IntN(total)
		var x fault
		for _, x = range all {
			if pick -= x.weight; pick < 0 {
				break
			}
		}
		isDue := len(due) > 0 && time.Since(began) > next
		if isDue {
			x = due[0]
		}
		lasts := time.Duration(f.rng.IntN(1500)) * time.Millisecond
		pause := time.Duration(f.rng.IntN(600)) * time.Millisecond
		if x.is(alone) {
			heal(true)
			f.caughtUp()
		}
		if len(open) < maxWounds {
			if undo, what := x.hurt(f); what != "" {
				f.note("%s: %s, for %s", x.name, what, lasts)
				f.injected[x.name]++
				if isDue {
					due, next = due[1:], next+every
				}
				if undo != nil {
					open = append(open, wound{x.name + ": " + what, undo, time.Now().Add(lasts)})
				}
				if x.is(alone) {
					heal(true)
					f.caughtUp()
				}
			}
		}
		time.Sleep(pause)
	}
	heal(true)
}

// look ends the test if something is wrong, or a program ended that nobody killed.
func (f *fleet) look() {
	f.t.Helper()
	if f.ledger.firstWrong() != "" {
		f.give("it went wrong")
	}
}

// status is what a store says of itself.
type status struct {
	Latest uint64 `json:"latest_seq"`
	Ingest struct {
		Position uint64  `json:"position"`
		Last     uint64  `json:"last_seq"`
		Lag      *uint64 `json:"lag"`
	} `json:"ingest"`
	Events struct {
		Last uint64  `json:"last_seq"`
		Lag  *uint64 `json:"lag"`
	} `json:"events"`
	Sessions   uint64 `json:"sessions"`
	Foreign    uint64 `json:"foreign"`
	Applied    uint64 `json:"applied"`
	Duplicates uint64 `json:"duplicates"`
	Dropped    uint64 `json:"dropped"`
	Rejects    uint64 `json:"rejects"`
}

func (f *fleet) status(s *store) (status, error) {
	st, err := statusOf(f.ctx, &f.http, s)
	if err != nil && !s.running() {
		f.give(fmt.Sprintf("%s ended by itself: %v", s.name, s.err))
	}
	return st, err
}

// caughtUp waits until every store has caught up, with the workers frozen: those with
// outboxes wait for nobody, and on a busy machine they are faster than the stores.
func (f *fleet) caughtUp() {
	f.t.Helper()
	f.quiet()()
}

// quiet freezes the workers until thaw, and waits until every store has read all
// of INGEST and has what EVENTS holds. Nothing else hurts then.
func (f *fleet) quiet() (thaw func()) {
	f.t.Helper()
	var frozen []*workers
	for _, w := range f.workers {
		if w.running() {
			w.freeze()
			frozen = append(frozen, w)
		}
	}
	var end uint64
	for _, s := range f.stores {
		f.await(s.name+" has caught up", func() error {
			st, err := f.status(s)
			switch {
			case err != nil:
				return err
			case st.Ingest.Lag == nil || *st.Ingest.Lag > 0:
				return fmt.Errorf("lag: %+v", st)
			case end == 0:
				end = st.Events.Last
			}
			if st.Latest < end {
				return fmt.Errorf("at %d of %d", st.Latest, end)
			}
			return nil
		})
	}
	return func() {
		for _, w := range frozen {
			w.thaw()
		}
	}
}

// settle lets the workers finish, and everyone reach the end.
func (f *fleet) settle() {
	f.t.Helper()
	for _, w := range f.workers {
		w.stdin.Close()
	}
	for _, w := range f.workers {
		f.await(w.name+" finishes", func() error {
			if w.running() {
				return fmt.Errorf("it runs; %s", f.unfinished())
			}
			if w.err != nil {
				f.give(fmt.Sprintf("%s ended with %v: %s", w.name, w.err, w.tail(5)))
			}
			return nil
		})
	}
	for _, s := range f.stores {
		f.await(s.name+" has no lag", func() error {
			st, err := f.status(s)
			if err == nil && (st.Ingest.Lag == nil || *st.Ingest.Lag > 0 || st.Events.Lag == nil || *st.Events.Lag > 0) {
				err = fmt.Errorf("ingest lag %v, events lag %v of %+v", deref(st.Ingest.Lag), deref(st.Events.Lag), st)
			}
			return err
		})
	}
}

func deref(n *uint64) any {
	if n == nil {
		return "unknown"
	}
	return *n
}

// unfinished names the sessions that are still at work.
func (f *fleet) unfinished() string {
	var out []string
	for _, key := range f.stableKeys() {
		if a := f.ledger.snapshot()[key]; !a.finished && !a.dropped {
			out = append(out, fmt.Sprintf("%s sending %d applied %d", key, a.sending, a.applied))
		}
	}
	return strings.Join(out, "; ")
}

// stableKeys returns the sessions in an order that does not depend on the run.
func (f *fleet) stableKeys() []string {
	return slices.Sorted(maps.Keys(f.ledger.snapshot()))
}
