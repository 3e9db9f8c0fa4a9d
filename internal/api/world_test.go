package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// epoch is the epoch of the test stores.
const epoch = "epoch1"

// startTime is the stored time of message 1, ns; each later one is 1 ms younger.
const startTime = 1_789_200_000_000_000_000

// world is a store that a test fills as a materializer would, one message a
// commit, with EVENTS' numbers counted up.
type world struct {
	t     *testing.T
	store *store.Store
	api   *api.API
	pos   store.Position
}

func newWorld(t *testing.T, o api.Options) *world {
	t.Helper()
	s, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Adopt(context.Background(), store.Bus{Epoch: epoch, IngestID: "ingest1"}))
	o.Reader = s.Reader()
	return &world{t: t, store: s, api: api.New(o)}
}

func key(workspace, session string) bus.Key { return bus.Key{Workspace: workspace, Session: session} }

// publish takes one message and returns what became of it.
func (w *world) publish(k bus.Key, class bus.Class, body string, headers ...string) projection.Result {
	w.t.Helper()
	ctx := context.Background()
	h := nats.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	st, err := w.store.Reader().LoadState(ctx, k)
	require.NoError(w.t, err)
	w.pos.IngestSeq++
	w.pos.IngestTime = startTime + int64(w.pos.IngestSeq)*1e6
	w.pos.HighestTime = w.pos.IngestTime
	m := projection.Message{Key: k, Class: class, Seq: w.pos.IngestSeq, Time: w.pos.IngestTime, Body: []byte(body)}
	m.Identity, m.IdentityErr = bus.ParseIdentity(h, class)
	var known *projection.KnownID
	if hash, ok, err := w.store.Reader().KnownID(ctx, k, m.Identity.EventID, 0); ok {
		require.NoError(w.t, err)
		known = &projection.KnownID{Hash: hash}
	}
	r := st.Apply(m, known)
	c := store.Commit{}
	for i, f := range r.Facts {
		w.pos.EventsSeq++
		c.Rows = append(c.Rows, store.Row{
			Seq: w.pos.EventsSeq, Key: k, Type: f.Type, RecordedAt: f.RecordedAt, Source: f.Source, Data: f.Data,
			Origin: bus.Origin{Seq: m.Seq, Time: m.Time, Index: i},
		})
	}
	sw := store.SessionWrite{Key: k, Exists: st.Exists, Forget: r.Forget, LastActivityAt: st.LastActivityAt, HeldPages: len(st.Held)}
	if !r.Forget {
		sw.Chain, sw.Publishers = st.AppendChain(nil), st.AppendPublishers(nil)
		sw.View, err = st.AppendView(nil)
		require.NoError(w.t, err)
	}
	c.Sessions = []store.SessionWrite{sw}
	for _, rej := range r.Rejects {
		c.Rejects = append(c.Rejects, store.RejectWrite{Key: &k, Subject: "test", Reject: rej})
	}
	if r.Remember {
		c.IDs = []store.ID{{Key: k, EventID: m.Identity.EventID, Hash: r.Hash, AppliedTime: w.pos.HighestTime, IngestSeq: m.Seq}}
	}
	if r.Outcome == projection.Applied {
		c.Counters.Applied = 1
	}
	c.Position = w.pos
	require.NoError(w.t, w.store.Commit(ctx, &c))
	return r
}

// prune raises oldest_seq.
func (w *world) prune(before uint64) {
	w.t.Helper()
	require.NoError(w.t, w.store.Commit(context.Background(), &store.Commit{Position: w.pos, PruneBefore: before}))
}

// errorBody is the body of an error message, which gives one event.
func errorBody(message string) string { return `{"message":"` + message + `","recorded_at_ms":1}` }

// page is a page's JSON.
type page struct {
	Events []struct {
		Seq       uint64 `json:"seq"`
		Session   string `json:"session_id"`
		Workspace string `json:"workspace_id"`
	} `json:"events"`
	NextAfter uint64 `json:"next_after_seq"`
	Latest    uint64 `json:"latest_seq"`
	Oldest    uint64 `json:"oldest_seq"`
	Epoch     string `json:"epoch"`
}

func (p page) seqs() []uint64 {
	out := []uint64{}
	for _, e := range p.Events {
		out = append(out, e.Seq)
	}
	return out
}

// query parses a URL's query.
func query(t *testing.T, raw string) api.Params {
	t.Helper()
	p, err := api.ParseQuery(raw)
	require.NoError(t, err)
	return p
}

func (w *world) page(raw string) page {
	w.t.Helper()
	body, err := w.api.Events(context.Background(), query(w.t, raw), 0)
	require.NoError(w.t, err)
	return decode[page](w.t, body)
}

// fails returns what a caller is told about the query of events.
func (w *world) fails(raw string) *api.Failure {
	w.t.Helper()
	p, err := api.ParseQuery(raw)
	if err == nil {
		_, err = w.api.Events(context.Background(), p, 0)
	}
	require.Error(w.t, err, raw)
	return api.FailureOf(err)
}

func decode[T any](t *testing.T, body []byte) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(body, &v), "%s", body)
	return v
}

// parameterOf returns the parameter that err complains of.
func parameterOf(t *testing.T, err error) string {
	t.Helper()
	var bad *api.ParameterError
	require.True(t, errors.As(err, &bad), "%v", err)
	return bad.Parameter
}
