package bus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

func options(js jetstream.JetStream) bus.StreamOptions {
	return bus.StreamOptions{IngestBytes: bus.MinIngestBytes, MaxPayload: js.Conn().MaxPayload()}
}

// config starts a server with a configuration and returns a connection to it.
func config(t *testing.T, text string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	require.NoError(t, os.WriteFile(file, []byte("listen: \"127.0.0.1:-1\"\n"+text), 0o600))
	s := skaldtest.ServerWith(t, natsd.Options{ConfigFile: file, SyncInterval: time.Minute})
	nc, err := s.InProcess(opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// A new bus gets both streams with the settings that its promises need; who
// comes later finds them and adopts what was decided.
func TestOpen_CreatesAndFinds(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "team")
	o := options(js)
	o.IDHorizon = time.Hour
	made, err := s.Open(t.Context(), js, o, "")
	require.NoError(t, err)
	require.NotEmpty(t, made.Epoch)
	require.NotEmpty(t, made.IngestID)
	require.Equal(t, time.Hour, made.Horizon)
	require.Empty(t, made.Differs)

	in, ev := made.Ingest.CachedInfo().Config, made.Events.CachedInfo().Config
	require.Equal(t, "TEAM_INGEST", in.Name)
	require.Equal(t, []string{"team.in.*.*.*"}, in.Subjects)
	require.Equal(t, jetstream.LimitsPolicy, in.Retention)
	require.Equal(t, jetstream.DiscardNew, in.Discard)
	require.EqualValues(t, bus.MinIngestBytes, in.MaxBytes)
	require.EqualValues(t, natsd.DefaultMaxPayload-bus.PayloadReserve, in.MaxMsgSize)
	require.Equal(t, jetstream.FileStorage, in.Storage)
	require.Equal(t, "1", in.Metadata[bus.MetaContract])
	require.Equal(t, "TEAM_EVENTS", ev.Name)
	require.Equal(t, []string{"team.ev.*.*.*"}, ev.Subjects)
	require.Equal(t, jetstream.LimitsPolicy, ev.Retention)
	require.EqualValues(t, -1, ev.MaxBytes)
	require.Zero(t, ev.MaxAge)
	require.True(t, ev.AllowAtomicPublish)
	require.False(t, ev.AllowDirect)
	require.False(t, ev.DenyDelete)
	require.Equal(t, jetstream.FileStorage, ev.Storage)
	require.Equal(t, made.Epoch, ev.Metadata[bus.MetaEpoch])

	for _, known := range []string{"", made.Epoch} {
		found, err := s.Open(t.Context(), js, options(js), known)
		require.NoError(t, err)
		require.Equal(t, made.Epoch, found.Epoch)
		require.Equal(t, made.IngestID, found.IngestID)
		require.Equal(t, time.Hour, found.Horizon)
		require.Empty(t, found.Differs)
	}
	other, err := subjects(t, "other").Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	require.NotEqual(t, made.Epoch, other.Epoch)
	require.NotEqual(t, made.IngestID, other.IngestID)
}

// Of several processes that open a new bus at the same moment one creates each
// stream, and all come to the same one.
func TestOpen_AtOnce(t *testing.T) {
	t.Parallel()
	server := skaldtest.Server(t)
	const processes = 8
	conns := make([]jetstream.JetStream, processes)
	for i := range conns {
		_, conns[i] = skaldtest.Connect(t, server)
	}
	for round := range 5 {
		s := subjects(t, fmt.Sprintf("bus%d", round))
		var wg sync.WaitGroup
		opened, errs := make([]bus.Streams, processes), make([]error, processes)
		start := make(chan struct{})
		for i, js := range conns {
			wg.Go(func() {
				<-start
				opened[i], errs[i] = s.Open(t.Context(), js, options(js), "")
			})
		}
		close(start)
		wg.Wait()
		for i := range conns {
			require.NoError(t, errs[i])
			require.Equal(t, opened[0].Epoch, opened[i].Epoch)
			require.Equal(t, opened[0].IngestID, opened[i].IngestID)
			require.Equal(t, opened[0].Epoch, opened[i].Ingest.CachedInfo().Config.Metadata[bus.MetaEpoch])
		}
	}
}

// What a process that died between the two streams left is adopted.
func TestOpen_HalfMade(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "")
	made, err := s.Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	require.NoError(t, js.DeleteStream(t.Context(), s.IngestStream()))
	again, err := s.Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	require.Equal(t, made.Epoch, again.Epoch)
	require.NotEqual(t, made.IngestID, again.IngestID)
}

// A store that belongs to a bus never starts that bus's numbers anew.
func TestOpen_StreamMissing(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "")
	made, err := s.Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	for _, name := range []string{s.IngestStream(), s.EventsStream()} {
		require.NoError(t, js.DeleteStream(t.Context(), name))
		_, err = s.Open(t.Context(), js, options(js), made.Epoch)
		require.ErrorIs(t, err, bus.ErrStreamMissing)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, made.Epoch)
		_, err = js.Stream(t.Context(), name)
		require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	}
}

// A store and streams of different buses do not work together.
func TestOpen_OtherEpoch(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "")
	made, err := s.Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	_, err = s.Open(t.Context(), js, options(js), "another")
	require.ErrorIs(t, err, bus.ErrOtherBus)
	require.ErrorContains(t, err, "another")
	require.ErrorContains(t, err, made.Epoch)
}

// Each setting under which a promise would not hold is refused, with the
// stream's and the setting's name, and is not changed.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	type cfg = jetstream.StreamConfig
	source := func(name string) *jetstream.StreamSource { return &jetstream.StreamSource{Name: name} }
	_, err := js.CreateStream(t.Context(), cfg{Name: "ELSEWHERE", Subjects: []string{"elsewhere"}})
	require.NoError(t, err)
	for i, tc := range []struct {
		events bool // which stream is changed
		change func(*cfg)
		err    error
		names  string
	}{
		{true, func(c *cfg) { delete(c.Metadata, bus.MetaEpoch) }, bus.ErrOtherBus, bus.MetaEpoch},
		{false, func(c *cfg) { delete(c.Metadata, bus.MetaEpoch) }, bus.ErrOtherBus, bus.MetaEpoch},
		{true, func(c *cfg) { c.Metadata[bus.MetaContract] = "2" }, bus.ErrContract, bus.MetaContract},
		{false, func(c *cfg) { c.Metadata[bus.MetaContract] = "2" }, bus.ErrContract, bus.MetaContract},
		{false, func(c *cfg) { delete(c.Metadata, bus.MetaContract) }, bus.ErrContract, bus.MetaContract},
		{false, func(c *cfg) { delete(c.Metadata, bus.MetaIngestID) }, bus.ErrStreamSettings, bus.MetaIngestID},
		{false, func(c *cfg) { delete(c.Metadata, bus.MetaIDHorizon) }, bus.ErrStreamSettings, bus.MetaIDHorizon},
		{false, func(c *cfg) { c.Metadata[bus.MetaIDHorizon] = "7d" }, bus.ErrStreamSettings, bus.MetaIDHorizon},
		{false, func(c *cfg) { c.Metadata[bus.MetaIDHorizon] = "999" }, bus.ErrStreamSettings, bus.MetaIDHorizon},
		{true, func(c *cfg) { c.Retention = jetstream.InterestPolicy }, bus.ErrStreamSettings, "retention"},
		{false, func(c *cfg) { c.Retention = jetstream.WorkQueuePolicy }, bus.ErrStreamSettings, "retention"},
		{true, func(c *cfg) { c.Mirror, c.Subjects, c.AllowAtomicPublish = source("ELSEWHERE"), nil, false }, bus.ErrStreamSettings, "mirror"},
		{false, func(c *cfg) { c.Mirror, c.Subjects, c.AllowAtomicPublish = source("ELSEWHERE"), nil, false }, bus.ErrStreamSettings, "mirror"},
		{true, func(c *cfg) { c.AllowRollup, c.DenyPurge = true, false }, bus.ErrStreamSettings, "allow_rollup_hdrs"},
		{false, func(c *cfg) { c.AllowRollup, c.DenyPurge = true, false }, bus.ErrStreamSettings, "allow_rollup_hdrs"},
		{true, func(c *cfg) { c.Subjects = []string{c.Subjects[0] + ".x"} }, bus.ErrStreamSettings, "subjects"},
		{false, func(c *cfg) { c.Subjects = []string{c.Subjects[0] + ".x"} }, bus.ErrStreamSettings, "subjects"},
		{true, func(c *cfg) { c.AllowAtomicPublish = false }, bus.ErrStreamSettings, "allow_atomic"},
		{true, func(c *cfg) { c.AllowDirect = true }, bus.ErrStreamSettings, "allow_direct"},
		{true, func(c *cfg) { c.DenyDelete = true }, bus.ErrStreamSettings, "deny_delete"},
		{true, func(c *cfg) { c.Sources = []*jetstream.StreamSource{source("ELSEWHERE")} }, bus.ErrStreamSettings, "sources"},
		{true, func(c *cfg) { c.MaxMsgsPerSubject = 5 }, bus.ErrStreamSettings, "max_msgs_per_subject"},
		{false, func(c *cfg) { c.MaxMsgsPerSubject = 5 }, bus.ErrStreamSettings, "max_msgs_per_subject"},
		{false, func(c *cfg) { c.MaxAge = time.Hour }, bus.ErrStreamSettings, "max_age"},
		{false, func(c *cfg) { c.Discard = jetstream.DiscardOld }, bus.ErrStreamSettings, "discard"},
	} {
		t.Run(fmt.Sprintf("%d %s", i, tc.names), func(t *testing.T) {
			s := subjects(t, fmt.Sprintf("case%d", i))
			made, err := s.Open(t.Context(), js, options(js), "")
			require.NoError(t, err)
			c := made.Ingest.CachedInfo().Config
			if tc.events {
				c = made.Events.CachedInfo().Config
			}
			require.NoError(t, js.DeleteStream(t.Context(), c.Name))
			tc.change(&c)
			changed, err := js.CreateStream(t.Context(), c)
			require.NoError(t, err)

			_, err = s.Open(t.Context(), js, options(js), "")
			require.ErrorIs(t, err, tc.err)
			require.ErrorContains(t, err, tc.names)
			require.ErrorContains(t, err, c.Name)
			after, err := js.Stream(t.Context(), c.Name)
			require.NoError(t, err)
			require.Equal(t, changed.CachedInfo().Config, after.CachedInfo().Config)

			require.NoError(t, js.DeleteStream(t.Context(), s.IngestStream())) // the next case needs the room
			require.NoError(t, js.DeleteStream(t.Context(), s.EventsStream()))
		})
	}
}

// Settings that an operator may choose are adopted and named.
func TestOpen_Differs(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "")
	made, err := s.Open(t.Context(), js, options(js), "")
	require.NoError(t, err)
	ev, in := made.Events.CachedInfo().Config, made.Ingest.CachedInfo().Config
	ev.MaxAge, ev.MaxBytes, ev.Subjects = 24*time.Hour, 1<<30, append(ev.Subjects, "more.*")
	in.Duplicates, in.MaxBytes, in.MaxMsgs = time.Minute, 2*bus.MinIngestBytes, 1e9
	_, err = js.UpdateStream(t.Context(), ev)
	require.NoError(t, err)
	_, err = js.UpdateStream(t.Context(), in)
	require.NoError(t, err)

	found, err := s.Open(t.Context(), js, options(js), made.Epoch)
	require.NoError(t, err)
	require.Equal(t, []string{
		"SKALD_EVENTS: max_age is 24h0m0s, a new bus would have 0s",
		"SKALD_INGEST: duplicate_window is 1m0s, a new bus would have 100ms",
		"SKALD_INGEST: max_bytes is 134217728, a new bus would have 67108864",
	}, found.Differs)
	require.EqualValues(t, 1<<30, found.Events.CachedInfo().Config.MaxBytes)
}

// The default bound of INGEST is halved until it fits the disk; a bound that was
// asked for is not.
func TestOpen_SmallDisk(t *testing.T) {
	t.Parallel()
	js := config(t, "jetstream { max_file_store: 200MB }")
	o := bus.StreamOptions{MaxPayload: js.Conn().MaxPayload()}
	made, err := subjects(t, "a").Open(t.Context(), js, o, "")
	require.NoError(t, err)
	require.EqualValues(t, 128<<20, made.Ingest.CachedInfo().Config.MaxBytes)
	require.Empty(t, made.Differs)

	o.IngestBytes = 128 << 20
	_, err = subjects(t, "b").Open(t.Context(), js, o, "")
	require.ErrorContains(t, err, "create stream B_INGEST")
	var api *jetstream.APIError
	require.ErrorAs(t, err, &api)

	js = config(t, "jetstream { max_file_store: 32MB }")
	_, err = subjects(t, "c").Open(t.Context(), js, bus.StreamOptions{MaxPayload: js.Conn().MaxPayload()}, "")
	require.ErrorContains(t, err, "create stream C_INGEST")
}

func TestOpen_BadOptions(t *testing.T) {
	t.Parallel()
	_, js := skaldtest.Connect(t, skaldtest.Server(t))
	s := subjects(t, "")
	o := options(js)
	o.IDHorizon = time.Second - 1
	_, err := s.Open(t.Context(), js, o, "")
	requireInvalid(t, err, "", "id horizon")
	o = options(js)
	o.MaxPayload = 2 * bus.PayloadReserve
	_, err = s.Open(t.Context(), js, o, "")
	require.ErrorIs(t, err, bus.ErrStreamSettings)
	require.ErrorContains(t, err, "payload")
	_, err = js.Stream(t.Context(), s.EventsStream())
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
}

// A server, or an account, without JetStream is not taken for a missing stream.
func TestOpen_NoJetStream(t *testing.T) {
	t.Parallel()
	ns, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, NoSigs: true, NoLog: true})
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	nc, err := nats.Connect(ns.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	without, err := jetstream.New(nc)
	require.NoError(t, err)
	account := config(t, `accounts {
		A { users: [ {user: a, password: a} ] }
		B { jetstream: enabled, users: [ {user: b, password: b} ] } }`, nats.UserInfo("a", "a"))
	for _, js := range []jetstream.JetStream{without, account} {
		for _, known := range []string{"", "epoch"} {
			_, err = subjects(t, "").Open(t.Context(), js, options(js), known)
			require.ErrorIs(t, err, bus.ErrNoJetStream)
			require.NotErrorIs(t, err, bus.ErrStreamMissing)
		}
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := bus.NewID()
		require.Regexp(t, `^[a-z2-7]{13}$`, id)
		require.False(t, seen[id])
		seen[id] = true
	}
}

// beingMade is a cluster on which another process is making a stream: the name is taken,
// and no such stream is found.
type beingMade struct{ jetstream.JetStream }

func (beingMade) Stream(context.Context, string) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNotFound
}

func (beingMade) CreateStream(context.Context, jetstream.StreamConfig) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNameAlreadyInUse
}

// Of two processes that made the streams of a cluster at the same time, one ended: the
// stream that the other had begun to make was "not found", which no waiting mends.
func TestOpen_MadeByAnother(t *testing.T) {
	_, err := skaldtest.Subjects(t).Open(t.Context(), beingMade{}, bus.StreamOptions{MaxPayload: 1 << 20}, "")
	require.ErrorIs(t, err, bus.ErrUnavailable)
	require.NotErrorIs(t, err, jetstream.ErrStreamNotFound)
}
