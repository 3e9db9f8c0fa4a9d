package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Readers whose contexts end at any moment, beside a writer and its steps: nobody meets
// an error but the context's, every answer is one snapshot, and the connections stay
// usable.
func TestReader_CancelledQueries(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := open(t)
	keys := []bus.Key{alpha, beta, gamma}
	var stop atomic.Bool
	var readers sync.WaitGroup
	var answers, cancelled atomic.Int64
	for i := range 8 {
		readers.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for !stop.Load() {
				// From a few µs to a tenth of a second: some of each kind on any machine.
				limit := time.Duration(rnd.IntN(1<<(2+rnd.IntN(16)))) * time.Microsecond
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				p, err := s.Reader().Page(ctx, store.PageQuery{After: after(0), Limit: 1000, Workspace: []string{"", "acme"}[i%2]})
				cancel()
				switch {
				case err == nil:
					answers.Add(1)
					// Numbers have no gaps here, so the newest number is the number of rows.
					if i%2 == 0 && p.Latest <= 1000 && len(p.Events) != int(p.Latest) {
						t.Errorf("%d rows up to %d", len(p.Events), p.Latest)
					}
				case errors.Is(err, context.DeadlineExceeded):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	seq := uint64(0)
	for seq < 1000 || answers.Load() < 30 || cancelled.Load() < 30 {
		var rows []store.Row
		for range 5 {
			seq++
			rows = append(rows, row(seq, keys[seq%3], "error"))
		}
		put(t, s, rows...)
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	readers.Wait()
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), int(seq), fmt.Sprint(seq))
}

// A service that starts, writes and stops while a file at rest is being read goes
// unnoticed by SQLite: what was read is read again.
func TestReader_FrozenFileComesToLife(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	s := openAt(t, path)
	put(t, s, row(1, alpha, "error"))
	require.NoError(t, s.Close())
	r, err := store.OpenFrozen(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	reads := 0
	p, err := r.ReadDuring(t.Context(), func() error {
		if reads++; reads == 1 {
			s := openAt(t, path)
			put(t, s, row(2, alpha, "error"))
			return s.Close()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, reads)
	require.Equal(t, at(2, 2), p)

	s = openAt(t, path)
	put(t, s, row(3, alpha, "error"))
	_, err = store.OpenFrozen(path)
	require.ErrorContains(t, err, "write-ahead log", "a file that is written is not at rest")
}

// sqliteError is an error of the driver's kind.
type sqliteError int

func (e sqliteError) Error() string { return fmt.Sprint("code ", int(e)) }
func (e sqliteError) Code() int     { return int(e) }

// What passes by itself is tried again a few times, everything else is not.
func TestReader_TriesAgain(t *testing.T) {
	s := open(t)
	const inPage, recovery, busy, corrupt = 8714, 261, 5, 11
	read := func(failures int, err error) (int, error) {
		reads := 0
		_, got := s.Reader().ReadDuring(t.Context(), func() error {
			if reads++; reads <= failures {
				return err
			}
			return nil
		})
		return reads, got
	}
	for _, c := range []sqliteError{inPage, recovery} {
		reads, err := read(3, c)
		require.NoError(t, err)
		require.Equal(t, 4, reads)
		reads, err = read(100, c)
		require.ErrorIs(t, err, c)
		require.Equal(t, 6, reads)
	}
	reads, err := read(100, sqliteError(busy))
	require.ErrorIs(t, err, store.ErrBusy)
	require.Equal(t, 1, reads)
	reads, err = read(100, sqliteError(corrupt))
	require.ErrorIs(t, err, store.ErrCorrupt)
	require.Equal(t, 1, reads)
}

// A reader that has closed says so, and the store's own reader stays open.
func TestReader_Close(t *testing.T) {
	s := open(t)
	require.NoError(t, s.Reader().Close())
	put(t, s, row(1, alpha, "error"))
	require.Len(t, walk(t, s.Reader(), store.PageQuery{}), 1)
	require.NoError(t, s.Close())
	_, err := s.Reader().Page(t.Context(), store.PageQuery{Limit: 1})
	require.Error(t, err)
	require.Error(t, s.Commit(t.Context(), &store.Commit{Position: at(2, 2)}))
}
