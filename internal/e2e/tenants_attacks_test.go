//go:build unix

package e2e_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
)

// attacks is what a hostile worker or reader of acme tries, by itself and against the
// other tenant, glo.bex.
var attacks = []hostile{
	{"no key", 0, func(t *testing.T, w *tenants) {
		_, err := nats.Connect(w.servers(), nats.RootCAs(w.ca()), nats.Timeout(patience))
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}},
	{"unknown key", 0, func(t *testing.T, w *tenants) {
		pair, err := nkeys.CreateUser()
		require.NoError(t, err)
		public, err := pair.PublicKey()
		require.NoError(t, err)
		_, err = nats.Connect(w.servers(), nats.RootCAs(w.ca()), nats.Timeout(patience), nats.Nkey(public, pair.Sign))
		require.ErrorIs(t, err, nats.ErrAuthorization)
	}},
	{"no TLS", 0, func(t *testing.T, w *tenants) {
		key, err := nats.NkeyOptionFromSeed(w.file("workspaces/acme/workers/w.nk"))
		require.NoError(t, err)
		_, err = nats.Connect("nats://"+w.clients[0], key, nats.Timeout(patience))
		require.Error(t, err)
	}},

	{"worker: a session of the other tenant", 0, sub("skald.in.glo=2Ebex.s.error", byWorker)},
	{"worker: the other tenant's edge", 0, sub("skald.edge.glo=2Ebex.s.error", byWorker)},
	{"worker: own edge, past the import", 0, sub("skald.edge.acme.s.error", byWorker)},
	{"worker: control", 0, func(t *testing.T, w *tenants) {
		silent(t, w.worker, "skald.in.acme.go.control", `{"op":"forget"}`)
	}},
	{"worker: control of the bus", 0, func(t *testing.T, w *tenants) {
		silent(t, w.worker, "skald.in.=.=.control", `{"op":"prune","before_seq":9}`)
	}},
	{"worker: an unknown class", 0, sub("skald.in.acme.s.other", byWorker)},
	{"worker: EVENTS", 0, sub("skald.ev.acme.s.error", byWorker)},
	{"worker: EVENTS of the other tenant", 0, sub("skald.ev.glo=2Ebex.s.error", byWorker)},
	{"worker: EVENTS' void", 0, sub("skald.ev.=.=.void", byWorker)},
	{"worker: the other tenant's chain", 0, sub("skald.api.glo=2Ebex.position.fence", byWorker)},
	{"worker: the other tenant's outcomes", 0, sub("skald.api.glo=2Ebex.outcome.fence", byWorker)},
	{"worker: pages of its own", 0, sub("skald.api.acme.events", byWorker)},
	{"worker: operators' questions", 0, sub("skald.op.status", byWorker)},
	{"worker: the services", 0, sub("$SRV.INFO.skald", byWorker)},
	{"worker: the system", 0, sub("$SYS.REQ.SERVER.PING", byWorker)},
	{"worker: wildcard filters", 1, func(t *testing.T, w *tenants) {
		w.deaf(t, w.worker, ">", "skald.in.>", "skald.edge.>", "skald.ev.>", "$JS.>")
	}},
	{"worker: the other tenant's confirmations", 1, func(t *testing.T, w *tenants) {
		w.deaf(t, w.worker, "skald.done.glo=2Ebex.*", "skald.done.glo=2Ebex.deaf", "skald.done.*.*", "skald.done.>")
	}},
	{"worker: other inboxes", 1, func(t *testing.T, w *tenants) { w.deaf(t, w.worker, "_INBOX.>", "_R_.>") }},
	{"worker: JetStream", 0, func(t *testing.T, w *tenants) {
		for _, what := range []string{
			"STREAM.INFO.SKALD_EVENTS", "STREAM.NAMES", "STREAM.PURGE.SKALD_INGEST", "STREAM.DELETE.SKALD_INGEST", "STREAM.MSG.GET.SKALD_EVENTS",
			"STREAM.LEADER.STEPDOWN.SKALD_INGEST", "DIRECT.GET.SKALD_INGEST.1", "CONSUMER.CREATE.SKALD_EVENTS", "CONSUMER.MSG.NEXT." + acmeDurable,
		} {
			w.noJetStream(t, w.worker, "$JS.API."+what)
			w.noJetStream(t, w.worker, "SKALD.API."+what)
		}
	}},
	{"worker: an answer to the other tenant", 1, func(t *testing.T, w *tenants) {
		inject(t, w.worker, "skald.in.acme.s.error", "skald.in.glo=2Ebex.s.error", failed("mine"))
	}},
	{"worker: an answer into EVENTS", 1, func(t *testing.T, w *tenants) {
		inject(t, w.worker, "skald.in.acme.s.error", "skald.ev.acme.s.error", failed("mine"))
	}},
	{"worker: an answer as control", 1, func(t *testing.T, w *tenants) {
		inject(t, w.worker, "skald.in.acme.s.error", "skald.in.acme.s.control", failed("mine"))
	}},
	{"worker: an answer into the API", 1, func(t *testing.T, w *tenants) {
		inject(t, w.worker, "skald.in.acme.s.error", "SKALD.API.STREAM.PURGE.SKALD_INGEST", failed("mine"))
	}},
	{"worker: a position as the other tenant's message", 0, func(t *testing.T, w *tenants) {
		inject(t, w.worker, "skald.api.acme.position.s", "skald.in.glo=2Ebex.s.error", "")
		inject(t, w.worker, "skald.api.acme.position.s", "skald.edge.glo=2Ebex.s.error", "")
		inject(t, w.worker, "skald.api.acme.position.s", "skald.ev.glo=2Ebex.s.error", "")
	}},
	{"worker: the halting header", 1, func(t *testing.T, w *tenants) {
		m := w.forged(t, nats.Header{"Nats-Expected-Last-Msg-Id": {"no such"}, "Skald-Event-Id": {"halt"}})
		require.Equal(t, nats.Header{"Skald-Event-Id": {"halt"}}, m.Header)
	}},
	{"worker: expectations, batches and roll-ups", 1, func(t *testing.T, w *tenants) {
		m := w.forged(t, nats.Header{
			"Nats-Expected-Last-Sequence": {"1"}, "Nats-Expected-Stream": {"OTHER"}, "Nats-Rollup": {"all"}, "Nats-TTL": {"1s"},
			"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}, "Nats-Incr": {"1"}, "Nats-Schedule": {"@every 1s"},
		})
		require.Empty(t, m.Header)
	}},
	{"worker: another's message as a duplicate", 2, func(t *testing.T, w *tenants) {
		require.Empty(t, w.forged(t, nats.Header{"Nats-Msg-Id": {"same"}}).Header)
		w.honest.put(ingestSubject("glo.bex", "s", "error"), nats.Header{"Nats-Msg-Id": {"same"}}, failed("theirs"))
	}},
	{"worker: a forged origin", 1, func(t *testing.T, w *tenants) {
		m := w.forged(t, nats.Header{"Skald-Ingest-Seq": {"1"}, "Skald-Ingest-Time": {"1"}, "Skald-Index": {"0"}, "Skald-Epoch": {"x"}, "Skald-Chain": {"1:x"}})
		require.Empty(t, m.Header)
	}},
	{"worker: a trace to the other tenant", 0, func(t *testing.T, w *tenants) {
		require.NoError(t, w.worker.PublishMsg(&nats.Msg{
			Subject: "skald.in.glo=2Ebex.s.error", Data: []byte(failed("x")),
			Header: nats.Header{"Nats-Trace-Dest": {"skald.in.glo=2Ebex.s.error"}, "Nats-Trace-Only": {"true"}},
		}))
	}},
	{"worker: too large", 0, func(t *testing.T, w *tenants) {
		me := &plainWorker{t, w.worker}
		_, err := me.send(ingestSubject("acme", "s", "error"), nil, failed(strings.Repeat("x", int(w.worker.MaxPayload())-1000)))
		require.ErrorContains(t, err, "10054")
		_, err = me.send(ingestSubject("acme", "s", "error"), nil, strings.Repeat("x", int(w.worker.MaxPayload())+1))
		require.ErrorIs(t, err, nats.ErrMaxPayload)
		_, err = me.send(ingestSubject("acme", "s", "error"), nats.Header{"traceparent": {strings.Repeat("x", 70_000)}}, failed("x"))
		require.Error(t, err)
	}},
	{"reader: pages of the other tenant", 0, sub("skald.api.glo=2Ebex.events", byReader)},
	{"reader: sessions of the other tenant", 0, sub("skald.api.glo=2Ebex.sessions", byReader)},
	{"reader: a session of the other tenant", 0, sub("skald.api.glo=2Ebex.session.fence", byReader)},
	{"reader: pages of all", 0, sub("skald.op.events", byReader)},
	{"reader: the other tenant in the query", 0, func(t *testing.T, w *tenants) {
		require.Equal(t, "400", serviceError(t, w.reader, "skald.api.acme.events", `{"workspace_id":"glo.bex","after_seq":0}`))
	}},
	{"reader: publishing", 0, sub("skald.in.acme.s.error", byReader)},
	{"reader: publishing past the import", 0, sub("skald.edge.acme.s.error", byReader)},
	{"reader: control", 0, sub("skald.in.acme.go.control", byReader)},
	{"reader: EVENTS", 0, sub("skald.ev.acme.s.error", byReader)},
	{"reader: wildcard filters", 1, func(t *testing.T, w *tenants) {
		w.deaf(t, w.reader, ">", "skald.>", "skald.ev.acme.>", "skald.ev.glo=2Ebex.*.*", "_INBOX.>", "_R_.>")
	}},
	{"reader: a page as a message", 0, func(t *testing.T, w *tenants) {
		for _, to := range []string{
			"skald.in.acme.s.error", "skald.edge.acme.s.error", "skald.ev.acme.s.error", "skald.in.glo=2Ebex.s.error", "skald.in.acme.s.control",
		} {
			inject(t, w.reader, "skald.api.acme.events", to, `{"after_seq":0}`)
		}
	}},
	{"reader: a delivery as a message", 0, func(t *testing.T, w *tenants) {
		for _, to := range []string{
			"skald.in.acme.s.error", "skald.edge.acme.s.error", "skald.ev.acme.s.error", "skald.in.glo=2Ebex.s.error",
			"SKALD.API.CONSUMER.MSG.NEXT." + otherDurable, "$JS.API.CONSUMER.MSG.NEXT." + otherDurable,
		} {
			inject(t, w.reader, "SKALD.API.CONSUMER.MSG.NEXT."+acmeDurable, to, `{"batch":3,"no_wait":true}`)
			inject(t, w.reader, "SKALD.API.CONSUMER.INFO."+acmeDurable, to, "")
		}
	}},
	{"reader: foreign durables", 0, func(t *testing.T, w *tenants) {
		for _, durable := range []string{otherDurable, theirDurable} {
			for _, what := range []string{"INFO.", "MSG.NEXT.", "DELETE.", "RESET."} {
				w.noJetStream(t, w.reader, "$JS.API.CONSUMER."+what+durable)
				w.noJetStream(t, w.reader, "SKALD.API.CONSUMER."+what+durable)
			}
			silent(t, w.reader, "$JS.ACK."+durable+".1.1.1.1.1", "+NXT")
			cons, err := w.js.Consumer(t.Context(), "SKALD_EVENTS", strings.TrimPrefix(durable, "SKALD_EVENTS."))
			require.NoError(t, err)
			require.Zero(t, cons.CachedInfo().Delivered.Consumer, "nobody has pulled from it")
		}
	}},
	{"reader: durables of its making", 0, func(t *testing.T, w *tenants) {
		for _, create := range []string{
			"CONSUMER.CREATE.SKALD_EVENTS", "CONSUMER.CREATE.SKALD_EVENTS.x", "CONSUMER.CREATE.SKALD_EVENTS.x.skald.ev.glo=2Ebex.*.*",
			"CONSUMER.CREATE.SKALD_EVENTS.acme=r-d.skald.ev.*.*.*", "CONSUMER.DURABLE.CREATE.SKALD_EVENTS.x", "CONSUMER.DELETE." + acmeDurable,
		} {
			w.noJetStream(t, w.reader, "$JS.API."+create)
			w.noJetStream(t, w.reader, "SKALD.API."+create)
		}
		names := []string{}
		ev, err := w.js.Stream(t.Context(), "SKALD_EVENTS")
		require.NoError(t, err)
		for name := range ev.ConsumerNames(t.Context()).Name() {
			if strings.Contains(name, "=r-") {
				names = append(names, name)
			}
		}
		require.ElementsMatch(t, []string{"acme=r-d", "acme=r-o", "glo=2Ebex=r-d"}, names)
	}},
	{"reader: direct gets", 0, func(t *testing.T, w *tenants) {
		for _, get := range []string{"DIRECT.GET.SKALD_EVENTS", "DIRECT.GET.SKALD_EVENTS.skald.ev.acme.s.error", "STREAM.MSG.GET.SKALD_EVENTS", "STREAM.INFO.SKALD_EVENTS"} {
			w.noJetStream(t, w.reader, "$JS.API."+get)
			w.noJetStream(t, w.reader, "SKALD.API."+get)
		}
	}},
}

// noJetStream requires that the bus' JetStream does not answer: nobody does, or the
// tenant's own account, which has none and says so in one way or another.
func (w *tenants) noJetStream(t *testing.T, nc *nats.Conn, subject string) {
	t.Helper()
	m, err := nc.Request(subject, []byte(`{"seq":1}`), silence)
	if err != nil {
		return
	}
	require.True(t, strings.HasPrefix(subject, "$JS.API."), "%s: %s", subject, m.Data)
	require.Contains(t, string(m.Data), `"error":{"code":`, subject)
}
