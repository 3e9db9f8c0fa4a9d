//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/auth"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// tenants is a bus of two tenants whose worker and reader are hostile. The other
// tenant's users are honest.
type tenants struct {
	*cluster
	t      *testing.T
	js     jetstream.JetStream // a materializer's view
	s      *server
	worker *nats.Conn   // acme's
	reader *nats.Conn   // acme's, who owns the durable d
	honest *plainWorker // glo.bex's
}

const (
	acmeDurable  = "SKALD_EVENTS.acme=r-d"
	otherDurable = "SKALD_EVENTS.acme=r-o"
	theirDurable = "SKALD_EVENTS.glo=2Ebex=r-d"
)

func newTenants(t *testing.T, edit func(string) string) *tenants {
	c := newCluster(t, edit)
	w := &tenants{cluster: c, t: t}
	w.s = c.serve("m1", t.TempDir())
	c.edge("e1") // one, so that messages of all senders keep their order
	c.durables()
	w.js = c.bus()
	w.worker, w.reader = c.as("workspaces/acme/workers/w"), c.as("workspaces/acme/readers/r")
	w.honest = &plainWorker{t, c.as("workspaces/glo=2Ebex/workers/w")}
	return w
}

func (w *tenants) ends(t *testing.T) (ingest, events uint64) {
	in, err := w.js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	ev, err := w.js.Stream(t.Context(), "SKALD_EVENTS")
	require.NoError(t, err)
	return in.CachedInfo().State.LastSeq, ev.CachedInfo().State.LastSeq
}

// silent asks and requires that no answer comes: the server refuses, or nobody hears.
func silent(t *testing.T, nc *nats.Conn, subject, body string) {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), silence)
	require.Error(t, err, "%s was answered", subject)
	require.Nil(t, m)
}

// silence is how long nothing may come. What comes later is noticed by the fence.
const silence = 150 * time.Millisecond

// inject publishes with the subject of another as the place for the answer.
func inject(t *testing.T, nc *nats.Conn, subject, reply, body string) {
	t.Helper()
	require.NoError(t, nc.PublishRequest(subject, reply, []byte(body)))
}

// deaf subscribes and requires that nothing comes while the other tenant is at work.
func (w *tenants) deaf(t *testing.T, nc *nats.Conn, subjects ...string) {
	t.Helper()
	var subs []*nats.Subscription
	for _, s := range subjects {
		sub, err := nc.SubscribeSync(s)
		require.NoError(t, err)
		defer sub.Unsubscribe() //nolint:errcheck // the server may have refused it
		subs = append(subs, sub)
	}
	require.NoError(t, nc.Flush())
	seq := w.honest.put(ingestSubject("glo.bex", "deaf", "error"), nil, failed("secret"))
	w.s.settle(t)
	for _, sub := range subs {
		m, err := sub.NextMsg(silence)
		require.Error(t, err, "%s brought %v after INGEST %d", sub.Subject, m, seq)
	}
}

// hostile is something that a worker or reader tries. stores is how many messages
// that adds to INGEST: rightful ones of its own workspace, or the honest worker's.
type hostile struct {
	name   string
	stores uint64
	try    func(t *testing.T, w *tenants)
}

func sub(subject string, f func(w *tenants) *nats.Conn) func(*testing.T, *tenants) {
	return func(t *testing.T, w *tenants) { silent(t, f(w), subject, "") }
}

func byWorker(w *tenants) *nats.Conn { return w.worker }
func byReader(w *tenants) *nats.Conn { return w.reader }

// forged sends an error of the own workspace with headers, and returns it as stored.
func (w *tenants) forged(t *testing.T, h nats.Header) *jetstream.RawStreamMsg {
	t.Helper()
	me := &plainWorker{t, w.worker}
	seq := me.put(ingestSubject("acme", "s", "error"), h, failed("forged"))
	in, err := w.js.Stream(t.Context(), "SKALD_INGEST")
	require.NoError(t, err)
	m, err := in.GetMsg(t.Context(), seq)
	require.NoError(t, err)
	return m
}

// Two tenants, and a hostile worker and reader in one of them: nothing that they try
// reaches the other tenant, EVENTS or INGEST, or stops anything; what they may do works.
// With the permissions of the configuration, and with the accounts alone: permissions
// are no part of what keeps tenants apart.
func TestTenants(t *testing.T) {
	for _, layer := range []struct {
		name string
		edit func(string) string
	}{
		{"as written", nil},
		{"accounts alone", func(s string) string { return permissions.ReplaceAllString(s, " }") }},
	} {
		t.Run(layer.name, func(t *testing.T) {
			w := newTenants(t, layer.edit)
			w.allowed(t)
			require.Greater(t, len(attacks), 20)
			for _, h := range attacks {
				t.Run(h.name, func(t *testing.T) {
					w.s.settle(t)
					ingest, events := w.ends(t)
					h.try(t, w)
					require.NoError(t, w.worker.Flush())
					require.NoError(t, w.reader.Flush())
					// The fence comes behind what the attempt may have led to, but for what an
					// edge has still in hand of the other workspace.
					w.honest.put(ingestSubject("glo.bex", "fence", "error"), nil, failed(h.name))
					skaldtest.Eventually(t, patience, func() bool {
						now, _ := w.ends(t)
						return now >= ingest+h.stores+1
					})
					require.Zero(t, w.s.settle(t).Foreign)
					seq, now := w.ends(t)
					require.Equal(t, ingest+h.stores+1, seq, "INGEST holds what it should")
					require.Equal(t, events+h.stores+1, now, "EVENTS holds what it should")
				})
			}
			t.Run("worker: many at a time", w.flood)
			w.allowed(t) // nothing has stopped
		})
	}
}

// intruder is a worker of acme in JavaScript that tries the other tenant.
const intruder = `
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
const seed = new TextEncoder().encode(readFileSync(process.env.SEED, "utf8").trim());
const nc = await connect({ servers: process.env.SERVERS.split(","), authenticator: nkeyAuthenticator(seed), tls: { caFile: process.env.CA } });
for (const subject of ["skald.in.glo=2Ebex.s.error", "skald.api.glo=2Ebex.position.fence"]) {
  await nc.request(subject, "{}", { timeout: 2000 }).then(() => console.log("answered"), () => console.log("refused"));
}
await nc.close();
`

// jsReader is a reader of acme in JavaScript: a page of its own workspace, its durable, and
// the other tenant's page.
const jsReader = `
import { readFileSync } from "node:fs";
import { jetstream } from "@nats-io/jetstream";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";
const seed = new TextEncoder().encode(readFileSync(process.env.SEED, "utf8").trim());
const nc = await connect({ servers: process.env.SERVERS.split(","), authenticator: nkeyAuthenticator(seed), tls: { caFile: process.env.CA } });
const page = (await nc.request("skald.api.acme.events", JSON.stringify({ after_seq: 0 }), { timeout: 20000 })).json();
console.log("page", page.events.length > 0 && page.events.every((e) => e.workspace_id === "acme"));
const durable = await jetstream(nc, { apiPrefix: "SKALD.API" }).consumers.get("SKALD_EVENTS", "acme=r-d");
const m = await durable.next({ expires: 20000 });
console.log("durable", m.subject.startsWith("skald.ev.acme."), await m.ackAck());
await nc.request("skald.api.glo=2Ebex.events", "{}", { timeout: 2000 }).then(() => console.log("answered"), () => console.log("refused"));
await nc.close();
`

// allowed does what worker, reader and operator may do.
func (w *tenants) allowed(t *testing.T) {
	// A worker with the publisher: positions, pages, confirmations.
	p, err := publisher.New(w.worker, publisher.Options{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) })
	defer running.Wait()
	defer stop()
	session, err := p.Session(t.Context(), bus.Key{Workspace: "acme", Session: "go"})
	require.NoError(t, err)
	r, err := session.Error(t.Context(), "one", "")
	require.NoError(t, err)
	done, err := r.Materialized(t.Context())
	require.NoError(t, err)
	require.NotZero(t, done.IngestSeq)

	// A reader: pages by the command line, and its durable with the plain library.
	lines := skald(t, "", "events", "--context", w.file("workspaces/acme/readers/r.json"), "--workspace", "acme", "--after-seq", "0", "--limit", "1000").ok(t)
	require.NotEmpty(t, lines)
	js, err := jetstream.NewWithAPIPrefix(w.reader, auth.APIPrefix)
	require.NoError(t, err)
	cons, err := js.Consumer(t.Context(), "SKALD_EVENTS", strings.TrimPrefix(acmeDurable, "SKALD_EVENTS."))
	require.NoError(t, err)
	pending := int(cons.CachedInfo().NumPending)
	require.NotZero(t, pending, "the durable has the workspace's facts")
	batch, err := cons.Fetch(pending, jetstream.FetchMaxWait(patience))
	require.NoError(t, err)
	n := 0
	for m := range batch.Messages() {
		require.True(t, strings.HasPrefix(m.Subject(), "skald.ev.acme."), m.Subject())
		require.NoError(t, m.DoubleAck(t.Context()))
		n++
	}
	require.NoError(t, batch.Error())
	require.Equal(t, pending, n)

	// A worker in another language, with its own NATS client.
	worker := node(t, "worker.js", "--server", w.servers(), "--workspace", "acme", "--session", "js "+bus.NewID(), "--turns", "3",
		"--nkey", w.file("workspaces/acme/workers/w.nk"), "--ca", w.ca())
	out, err := worker.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), `"ordinal":9`)
	theirs := node(t, "--input-type=module", "-e", intruder)
	theirs.Env = append(theirs.Env, "SERVERS="+w.servers(), "SEED="+w.file("workspaces/acme/workers/w.nk"), "CA="+w.ca())
	out, err = theirs.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "refused\nrefused\n", string(out))

	// And a reader in it: something is pending for its durable again, by the worker.
	w.s.settle(t)
	reads := node(t, "--input-type=module", "-e", jsReader)
	reads.Env = append(reads.Env, "SERVERS="+w.servers(), "SEED="+w.file("workspaces/acme/readers/r.nk"), "CA="+w.ca())
	out, err = reads.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "page true\ndurable true true\nrefused\n", string(out))

	// An operator: status, and control messages through the edge.
	ops := w.file("operators/ops.json")
	require.NotEmpty(t, skald(t, "", "status", "--json", "--context", ops).ok(t))
	id := bus.NewID()
	w.honest.put(ingestSubject("glo.bex", id, "error"), nil, failed("x"))
	w.s.settle(t)
	skald(t, "", "forget", id, "--workspace", "glo.bex", "--yes", "--context", ops).ok(t)
	w.s.settle(t)
}

// A node is no server for who has no key, and an unknown key is none.
func TestTenants_Keys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tenants.json")
	write := func(text string) {
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(text, "SERVERS", "tls://a:1", 1)), 0o600))
	}
	generate := func() result { return skald(t, "", "auth", "write", file, "--out", filepath.Join(dir, "out")) }
	tree := func() map[string]string {
		out := map[string]string{}
		require.NoError(t, filepath.WalkDir(filepath.Join(dir, "out"), func(path string, e os.DirEntry, err error) error {
			require.NoError(t, err)
			if !e.IsDir() {
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				out[path] = string(text)
				info, err := e.Info()
				require.NoError(t, err)
				if filepath.Base(path) != auth.ConfigFile {
					require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), path)
				}
				require.False(t, filepath.Ext(path) != ".nk" && strings.Contains(string(text), "SU"+"A") && strings.HasPrefix(string(text), "SU"), path)
			}
			return nil
		}))
		return out
	}
	write(description)
	generate().ok(t)
	first := tree()
	require.Len(t, first, 1+2*11)
	generate().ok(t)
	require.Equal(t, first, tree(), "the same again")

	write(strings.Replace(description, `"workspaces": [`, `"workspaces": [{"id": "new", "workers": ["w"]},`, 1))
	generate().ok(t)
	added := tree()
	require.Len(t, added, len(first)+2)
	for path, text := range first {
		if filepath.Base(path) != auth.ConfigFile {
			require.Equal(t, text, added[path], "adding a tenant keeps the others")
		}
	}
	write(description)
	require.Contains(t, generate().stderr, "not admitted: "+filepath.Join("workspaces", "new", "workers", "w.nk"))

	for rule, text := range map[string]string{
		`unknown field "worker"`:   strings.Replace(description, `"workers"`, `"worker"`, 1),
		"names \"w\" twice":        strings.Replace(description, `["w"]`, `["w", "w"]`, 1),
		"edges: must name":         strings.Replace(description, `["e1", "e2"]`, `[]`, 1),
		"of a-z 0-9":               strings.Replace(description, `["ops"]`, `["../ops"]`, 1),
		"workspaces: names":        strings.Replace(description, "glo.bex", "acme", 1),
		"id: must not be empty":    strings.Replace(description, "glo.bex", "", 1),
		"must be one JSON object":  description + "{}",
		"durables: names \"d\"":    strings.Replace(description, `["o"]`, `["d"]`, 1),
		"must each be one address": strings.Replace(description, "SERVERS", "a, b", 1),
	} {
		write(text)
		generate().fails(t, 2, rule)
	}
	write(description)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "out", "operators", "ops.nk"), []byte("nonsense"), 0o600))
	generate().fails(t, 1, "seed of operator ops", "ops.nk")
}

// serviceError returns the code with which the service refused a request.
func serviceError(t *testing.T, nc *nats.Conn, subject, body string) string {
	t.Helper()
	m, err := nc.Request(subject, []byte(body), patience)
	require.NoError(t, err)
	require.True(t, json.Valid(m.Data))
	return m.Header.Get(micro.ErrorCodeHeader)
}

// flood sends more messages at once than one workspace may have under way.
func (w *tenants) flood(t *testing.T) {
	t.Helper()
	const n = 8000
	before, _ := w.ends(t)
	inbox := w.worker.NewRespInbox()
	answers, err := w.worker.SubscribeSync(inbox)
	require.NoError(t, err)
	require.NoError(t, answers.SetPendingLimits(-1, -1))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < n; i++ {
			w.worker.PublishRequest(ingestSubject("acme", "flood", "activity"), inbox, []byte(`{"activity":{"n":1}}`)) //nolint:errcheck // it is judged by the answers
		}
		close(stop)
	})
	theirs := 0
	for done := false; !done; theirs++ {
		w.honest.put(ingestSubject("glo.bex", "beside", "activity"), nil, `{"activity":{"n":1}}`)
		select {
		case <-stop:
			done = true
		default:
		}
	}
	wg.Wait()
	stored, refused := 0, 0
	for range n {
		m, err := answers.NextMsg(patience)
		require.NoError(t, err)
		if strings.Contains(string(m.Data), "10167") {
			refused++
		} else {
			require.Contains(t, string(m.Data), `"stream":"SKALD_INGEST"`)
			stored++
		}
	}
	t.Logf("%d stored, %d refused, %d of the other tenant meanwhile", stored, refused, theirs)
	require.NotZero(t, refused)
	ingest, _ := w.ends(t)
	require.Equal(t, before+uint64(stored+theirs), ingest)
}
