package checkpoint_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/checkpoint"
	"github.com/skaldbus/skald/materializer/store"
)

var alpha = bus.Key{Workspace: "w", Session: "alpha"}

// world is a bucket and a store.
type world struct {
	t  testing.TB
	js jetstream.JetStream
	b  *checkpoint.Bucket
	st *store.Store
	n  uint64
}

func newWorld(t testing.TB) *world {
	t.Helper()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	_, err := checkpoint.Find(t.Context(), js, skaldtest.Subjects(t))
	require.ErrorIs(t, err, bus.ErrNotFound)
	b, err := checkpoint.Open(t.Context(), js, skaldtest.Subjects(t), 1)
	require.NoError(t, err)
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	require.NoError(t, st.Adopt(t.Context(), store.Bus{Epoch: "e", IngestID: "i"}))
	return &world{t: t, js: js, b: b, st: st}
}

// add commits k messages with a fact and an event id each.
func (w *world) add(k int) {
	w.t.Helper()
	for range k {
		w.n++
		at := int64(w.n) * 1e9
		require.NoError(w.t, w.st.Commit(w.t.Context(), &store.Commit{
			Position: store.Position{IngestSeq: w.n, IngestTime: at, EventsSeq: w.n, HighestTime: at},
			Rows:     []store.Row{{Seq: w.n, Key: alpha, Type: "error", Origin: bus.Origin{Seq: w.n, Time: at}, Data: []byte(`{}`)}},
			IDs:      []store.ID{{Key: alpha, EventID: fmt.Sprint("id", w.n), AppliedTime: at, IngestSeq: w.n}},
		}))
	}
}

func (w *world) write(base *checkpoint.Checkpoint, horizon int64) checkpoint.Checkpoint {
	w.t.Helper()
	c, err := w.b.Write(w.t.Context(), checkpoint.WriteOptions{Base: base, Dir: w.t.TempDir(), Horizon: horizon, Reader: w.st.Reader()})
	require.NoError(w.t, err)
	return c
}

func (w *world) list() []checkpoint.Checkpoint {
	w.t.Helper()
	list, damaged, err := w.b.List(w.t.Context())
	require.NoError(w.t, err)
	require.Empty(w.t, damaged)
	return list
}

// objects are the names of all that lies there.
func (w *world) objects() (names []string) {
	w.t.Helper()
	all, err := w.b.Objects().List(w.t.Context())
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil
	}
	require.NoError(w.t, err)
	for _, o := range all {
		names = append(names, o.Name)
	}
	return names
}

const hour = int64(3600e9)

// Each checkpoint is complete by itself, names the ids of the one before again, and
// gives back what the store knew.
func TestWrite_Load(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(5)
	one := w.write(nil, hour)
	require.EqualValues(t, 5, one.Position)
	require.EqualValues(t, 5, one.Number)
	w.add(3)
	two := w.write(&one, hour)
	require.Len(t, two.IDs, 2)
	require.Equal(t, one.IDs[0], two.IDs[0])
	require.EqualValues(t, 5, two.IDs[1].From)
	require.EqualValues(t, 8, two.IDs[1].To)
	list := w.list()
	require.Equal(t, []checkpoint.Checkpoint{two, one}, list)
	for _, c := range list {
		path, err := w.b.Load(t.Context(), &c, t.TempDir(), hour)
		require.NoError(t, err)
		r, err := store.OpenReader(path)
		require.NoError(t, err)
		for i := range uint64(8) {
			_, known, err := r.KnownID(t.Context(), alpha, fmt.Sprint("id", i+1), 0)
			require.NoError(t, err)
			require.Equal(t, i < c.Position, known)
		}
		require.NoError(t, r.Close())
	}
	// Those that have passed the horizon are not carried on.
	w.add(3)
	three := w.write(&two, 3e9)
	require.Len(t, three.IDs, 2)
	require.EqualValues(t, 5, three.IDs[0].From)
	// Without anything new nothing is added.
	four := w.write(&three, 3e9)
	require.Equal(t, three.IDs, four.IDs)
}

// A store that is further back than the checkpoint before writes none.
func TestWrite_Behind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(2)
	base := w.write(nil, hour)
	base.Position = 9
	_, err := w.b.Write(t.Context(), checkpoint.WriteOptions{Base: &base, Dir: t.TempDir(), Horizon: hour, Reader: w.st.Reader()})
	require.ErrorContains(t, err, "another store has gone further")
	require.Len(t, w.list(), 1)
}

// Long lists of ids begin anew with all of them.
func TestWrite_IDsBeginAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var base *checkpoint.Checkpoint
	most := 0
	for range 40 {
		w.add(1)
		c := w.write(base, hour)
		base, most = &c, max(most, len(c.IDs))
	}
	require.Equal(t, 32, most)
	require.Len(t, base.IDs, 8)
	require.Zero(t, base.IDs[0].From)
	path, err := w.b.Load(t.Context(), base, t.TempDir(), hour)
	require.NoError(t, err)
	r, err := store.OpenReader(path)
	require.NoError(t, err)
	defer r.Close()
	for i := range 40 {
		_, known, err := r.KnownID(t.Context(), alpha, fmt.Sprint("id", i+1), 0)
		require.NoError(t, err)
		require.True(t, known)
	}
}

// Whatever part is cut short, changed or gone, it is noticed, and nothing is loaded.
func TestVerify_Damage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(5)
	one := w.write(nil, hour)
	w.add(2)
	c := w.write(&one, hour)
	obj := w.b.Objects()
	damage := map[string]func(name string, content []byte){
		"cut":   func(name string, content []byte) { put(t, obj, name, content[:len(content)/2]) },
		"empty": func(name string, _ []byte) { put(t, obj, name, nil) },
		"changed": func(name string, content []byte) {
			b := append([]byte(nil), content...)
			b[len(b)/2] ^= 1
			put(t, obj, name, b)
		},
		"gone": func(name string, _ []byte) { require.NoError(t, obj.Delete(t.Context(), name)) },
	}
	for how, do := range damage {
		for _, name := range w.objects() {
			if !strings.HasPrefix(name, c.Name) && name != c.IDs[0].Parts[0].Name {
				continue
			}
			content, err := obj.GetBytes(t.Context(), name)
			require.NoError(t, err)
			do(name, content)
			if strings.HasSuffix(name, "/manifest") {
				list, damaged, err := w.b.List(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1, "%s %s", how, name)
				require.Equal(t, how != "gone", len(damaged) == 1, "%s %s", how, name)
			} else {
				require.ErrorIs(t, w.b.Verify(t.Context(), &c), checkpoint.ErrDamaged, "%s %s", how, name)
				_, err = w.b.Load(t.Context(), &c, t.TempDir(), hour)
				require.ErrorIs(t, err, checkpoint.ErrDamaged, "%s %s", how, name)
			}
			put(t, obj, name, content)
			require.NoError(t, w.b.Verify(t.Context(), &c))
		}
	}
	// Ids that can not be read are replaced by all that the store knows.
	require.NoError(t, obj.Delete(t.Context(), c.IDs[0].Parts[0].Name))
	next := w.write(&c, hour)
	require.Len(t, next.IDs, 1)
	require.Zero(t, next.IDs[0].From)
}

func put(t testing.TB, obj jetstream.ObjectStore, name string, content []byte) {
	t.Helper()
	_, err := obj.PutBytes(t.Context(), name, content)
	require.NoError(t, err)
}

// A crash at any step leaves no checkpoint, or a whole one; what it left goes later.
func TestWrite_Crash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add(5)
	base := w.write(nil, hour)
	w.add(1)
	crash := errors.New("crash")
	for _, step := range []string{"snapshot", "parts sent", "read back"} {
		_, err := w.b.Write(t.Context(), checkpoint.WriteOptions{Base: &base, Dir: t.TempDir(), Horizon: hour, Reader: w.st.Reader(), Seam: func(name string) error {
			if name == step {
				return crash
			}
			return nil
		}})
		require.ErrorIs(t, err, crash)
		require.Equal(t, []checkpoint.Checkpoint{base}, w.list())
	}
	next := w.write(&base, hour)
	w.add(1)
	last := w.write(&next, hour)
	left := len(w.objects())
	require.NoError(t, w.b.Retain(t.Context(), []checkpoint.Checkpoint{last, next}, time.Now(), false))
	require.Equal(t, []checkpoint.Checkpoint{last, next}, w.list())
	require.Len(t, w.objects(), left-2, "the oldest's manifest and state; its ids are needed, and what is young may be another writer's")
	require.NoError(t, w.b.Retain(t.Context(), []checkpoint.Checkpoint{last, next}, time.Now().Add(2*time.Hour), false))
	require.Len(t, w.objects(), 2*2+3, "two manifests, two states, three parts of ids")
	for _, c := range w.list() {
		require.NoError(t, w.b.Verify(t.Context(), &c))
	}
}

// Big states go in several parts.
func TestWrite_Parts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	random := make([]byte, 9<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, err := r.Read(random)
	require.NoError(t, err)
	require.NoError(t, w.st.Commit(t.Context(), &store.Commit{
		Position: store.Position{IngestSeq: 1, IngestTime: 1, EventsSeq: 0, HighestTime: 1},
		Sessions: []store.SessionWrite{{Key: alpha, Exists: true, View: random}},
	}))
	c := w.write(nil, hour)
	require.Greater(t, len(c.State.Parts), 2)
	_, err = w.b.Load(t.Context(), &c, t.TempDir(), hour)
	require.NoError(t, err)
}
