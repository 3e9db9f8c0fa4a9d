package materializer_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"github.com/synadia-io/orbit.go/jetstreamext"
	_ "modernc.org/sqlite"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	serveGCPercent  = 200 // as skald serve sets it
	benchMessages   = 100_000
	benchSessions   = 1000
	benchWorkspaces = 10
	benchBody       = 300 // bytes
)

// BenchmarkCatchUp measures the whole path: stored INGEST messages of 300 bytes
// over 1,000 sessions of 10 workspaces, into EVENTS and the table, with a server
// that syncs before it acknowledges. The baseline is the bare driver: the same
// event rows inserted into a file of the same schema in batches of 1,000 with
// synchronous=FULL. The bars are those of the project's figures: 0.5 of the
// baseline's rate with publishers' counts, 0.25 with bare event ids.
func BenchmarkCatchUp(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(serveGCPercent))
	for _, c := range []struct {
		identity string
		bar      float64
		set      func(h nats.Header, i int)
	}{
		{"count", 0.5, func(h nats.Header, i int) {
			h[bus.HeaderPublisher] = []string{"worker-1"}
			h[bus.HeaderPublisherSeq] = []string{strconv.Itoa(i/benchSessions + 1)}
		}},
		{"event-id", 0.25, func(h nats.Header, i int) {
			h[bus.HeaderEventID] = []string{fmt.Sprintf("0198c0de-7e57-7000-8000-%012d", i)}
		}},
	} {
		b.Run("identity="+c.identity, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				w := newBenchBus(b)
				w.preload(b, c.set)
				b.StartTimer()
				took := w.catchUp(b)
				b.StopTimer()
				bare := w.bareInsert(b)
				rate := benchMessages / took.Seconds()
				base := benchMessages / bare.Seconds()
				verdict := "PASS"
				if rate/base < c.bar {
					verdict = "FAIL"
				}
				b.Logf("catch-up with %s: %.0f msg/s, bare driver %.0f rows/s, ratio %.2f, bar %.2f: %s",
					c.identity, rate, base, rate/base, c.bar, verdict)
				b.ReportMetric(rate, "msgs/s")
				b.ReportMetric(base, "bare-rows/s")
				b.ReportMetric(rate/base, "ratio")
				w.close()
				b.StartTimer()
			}
		})
	}
}

type benchBus struct {
	dir     string
	server  *server.Server
	nc      *nats.Conn
	js      jetstream.JetStream
	subj    bus.Subjects
	streams bus.Streams
	store   *store.Store
}

func newBenchBus(tb testing.TB) *benchBus {
	w := &benchBus{dir: tb.TempDir()}
	var err error
	w.server, err = server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: w.dir, SyncAlways: true, MaxPayload: 8 << 20, NoSigs: true, NoLog: true,
	})
	require.NoError(tb, err)
	w.server.Start()
	require.True(tb, w.server.ReadyForConnections(10*time.Second))
	w.nc, err = nats.Connect("", nats.InProcessServer(w.server))
	require.NoError(tb, err)
	w.js, err = jetstream.New(w.nc)
	require.NoError(tb, err)
	w.subj, err = bus.NewSubjects("")
	require.NoError(tb, err)
	ctx := context.Background()
	w.streams, err = w.subj.Open(ctx, w.js, bus.StreamOptions{MaxPayload: w.nc.MaxPayload()}, "")
	require.NoError(tb, err)
	w.store, err = store.Open(filepath.Join(w.dir, "skald.db"), store.Options{})
	require.NoError(tb, err)
	require.NoError(tb, w.store.Adopt(ctx, store.Bus{Epoch: w.streams.Epoch, IngestID: w.streams.IngestID}))
	return w
}

func (w *benchBus) close() {
	w.store.Close()
	w.nc.Close()
	w.server.Shutdown()
	w.server.WaitForShutdown()
}

// preload stores the messages in INGEST, in atomic batches.
func (w *benchBus) preload(tb testing.TB, set func(nats.Header, int)) {
	filler := make([]byte, benchBody)
	for i := range filler {
		filler[i] = 'x'
	}
	var batch []*nats.Msg
	for i := range benchMessages {
		s := i % benchSessions
		k := bus.Key{Workspace: fmt.Sprintf("workspace-%d", s%benchWorkspaces), Session: fmt.Sprintf("0198c0de-7e57-7000-8000-%012d", s)}
		m := nats.NewMsg(w.subj.Ingest(k, bus.ClassError))
		set(m.Header, i)
		body := fmt.Appendf(nil, `{"recorded_at_ms":%d,"message":"%d `, 1789200000000+i, i)
		m.Data = append(append(body, filler[:benchBody-len(body)-2]...), `"}`...)
		batch = append(batch, m)
		if len(batch) == 1000 || i == benchMessages-1 {
			_, err := jetstreamext.PublishMsgBatch(context.Background(), w.js, batch)
			require.NoError(tb, err)
			batch = nil
		}
	}
}

// catchUp runs a materializer until all is committed.
func (w *benchBus) catchUp(tb testing.TB) time.Duration {
	m, err := materializer.New(materializer.Options{Conn: w.nc, JS: w.js, Store: w.store, Streams: w.streams, Subjects: w.subj})
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	start := time.Now()
	go func() { done <- m.Run(ctx) }()
	require.NoError(tb, m.WaitCommitted(ctx, benchMessages))
	took := time.Since(start)
	cancel()
	require.NoError(tb, <-done)
	info, err := w.streams.Events.Info(context.Background())
	require.NoError(tb, err)
	require.EqualValues(tb, benchMessages, info.State.Msgs)
	return took
}

// bareInsert copies the table's event rows into a fresh file with nothing but the
// driver: the same table and index, prepared statement, batches of 1,000, FULL.
func (w *benchBus) bareInsert(tb testing.TB) time.Duration {
	src, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(w.dir, "skald.db")}).EscapedPath()+"?mode=ro")
	require.NoError(tb, err)
	defer src.Close()
	var schema string
	require.NoError(tb, src.QueryRow(`SELECT group_concat(sql, ';') FROM sqlite_schema WHERE tbl_name='events' AND sql IS NOT NULL`).Scan(&schema))
	type row struct {
		seq, pk, recorded, oseq, otime, oindex int64
		typ, source                            string
		trace                                  sql.NullString
		data                                   []byte
	}
	var all []row
	rows, err := src.Query(`SELECT seq,session_pk,type,recorded_at_ms,origin_seq,origin_time,origin_index,source,trace,data FROM events ORDER BY seq`)
	require.NoError(tb, err)
	for rows.Next() {
		var r row
		require.NoError(tb, rows.Scan(&r.seq, &r.pk, &r.typ, &r.recorded, &r.oseq, &r.otime, &r.oindex, &r.source, &r.trace, &r.data))
		all = append(all, r)
	}
	require.NoError(tb, rows.Close())
	require.Len(tb, all, benchMessages)
	dst, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(w.dir, "bare.db")}).EscapedPath()+
		"?_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_pragma=journal_size_limit(67108864)")
	require.NoError(tb, err)
	defer dst.Close()
	dst.SetMaxOpenConns(1)
	_, err = dst.Exec(schema)
	require.NoError(tb, err)
	stmt, err := dst.Prepare(`INSERT INTO events (seq,session_pk,type,recorded_at_ms,origin_seq,origin_time,origin_index,source,trace,data) VALUES (?,?,?,?,?,?,?,?,?,?)`)
	require.NoError(tb, err)
	start := time.Now()
	for at := 0; at < len(all); at += 1000 {
		tx, err := dst.Begin()
		require.NoError(tb, err)
		in := tx.Stmt(stmt)
		for _, r := range all[at:min(at+1000, len(all))] {
			if _, err := in.Exec(r.seq, r.pk, r.typ, r.recorded, r.oseq, r.otime, r.oindex, r.source, r.trace, string(r.data)); err != nil {
				tb.Fatal(err)
			}
		}
		require.NoError(tb, tx.Commit())
	}
	return time.Since(start)
}
