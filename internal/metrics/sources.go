package metrics

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// storeTimeout bounds what a scrape waits for the store.
	storeTimeout = 2 * time.Second
	// knownFor is how long what the server has said counts as known. The watcher asks
	// every 2 s, and an answer may take as long.
	knownFor = 6 * time.Second
)

// Check is one check of readiness.
type Check struct {
	Name string
	OK   bool
}

// Sources are what is asked at each scrape. All are required.
type Sources struct {
	Checks       func() []Check // of readiness; must not block, and the names are a fixed list
	CutOff       func() int64   // live streams that were ended since their client took nothing
	Hub          *live.Hub
	Materializer *materializer.Materializer
	Store        *store.Store
	Streams      func() int // live streams that are open
}

// Add adds the figures of the sources. It is called once.
func (m *Metrics) Add(s Sources) { m.registry.MustRegister(&collector{s}) }

// collector asks the sources.
type collector struct{ s Sources }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+"_"+name, help, labels, nil)
}

// The figures that are asked for, in the order of the code below.
var (
	checkOK = desc("check_ok", "Whether a check of readiness passes, 1 or 0.", "check")

	connected  = desc("nats_connected", "Whether the connection to NATS is up, 1 or 0.")
	reconnects = desc("nats_reconnects_total", "Times that the connection to NATS was made again.")

	ingestPosition = desc("ingest_position", "Sequence of the last message of INGEST that is committed.")
	eventsPosition = desc("events_position", "Number of the last fact of EVENTS that is committed.")
	silentStores   = desc("silent_stores", "Other stores of the bus that are listed and have not been heard of; INGEST is not trimmed beyond where they are.")
	appendResults  = desc("appends_total", "Appends to EVENTS: taken, lost to another materializer, or of unknown outcome.", "result")

	ingestLast  = desc("ingest_last_sequence", "INGEST's last sequence; absent while the server does not answer.")
	ingestBytes = desc("ingest_bytes", "What INGEST holds; absent while the server does not answer.")
	ingestMax   = desc("ingest_limit_bytes", "Bound of what INGEST holds; absent if there is none.")
	eventsLast  = desc("events_last_sequence", "EVENTS' last sequence; absent while the server does not answer.")
	lagMessages = desc("lag_messages", "Messages of INGEST that are stored and not committed; absent while the server does not answer.")
	lagSeconds  = desc("lag_seconds", "Age of the oldest message that is stored and not committed, 0 if there is none; absent while the server does not answer.")

	readable    = desc("store_readable", "Whether the store answered this scrape, 1 or 0.")
	sessions    = desc("sessions", "Sessions that readers see.")
	held        = desc("held_pages", "Pages that wait for a gap in their session's journal to fill.")
	rejects     = desc("reject_entries", "Entries that wait for an operator.")
	rejectBytes = desc("reject_payload_bytes", "Payloads that reject entries keep.")
	removals    = desc("pending_removals", "Rows of forgotten sessions that are still to be removed.")
	unprojected = desc("unprojected_observations", "Observations that moved a chain on but could not be used, since the store was made.")
	foreign     = desc("foreign_messages", "Messages in EVENTS that are not Skald's, since the store was made.")
	holes       = desc("ingest_lost_messages", "Sequences that INGEST lost, since the store was made.")
	storeBytes  = desc("store_bytes", "Size of the store's file, without its log.")
	walBytes    = desc("store_wal_bytes", "Size of the store's write-ahead log.")

	readers     = desc("stream_readers", "Live streams over HTTP that are open.")
	fedReaders  = desc("stream_readers_live", "Open live streams that are fed as facts come; the rest read the table.")
	slowReaders = desc("slow_readers_total", "Times that a live stream was too slow: it went back to the table, or was cut off.", "result")
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		checkOK, connected, reconnects, ingestPosition, eventsPosition, silentStores, appendResults,
		ingestLast, ingestBytes, ingestMax, eventsLast, lagMessages, lagSeconds,
		readable, sessions, held, rejects, rejectBytes, removals, unprojected, foreign, holes, storeBytes, walBytes,
		readers, fedReaders, slowReaders,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	put := scrape(ch)
	for _, check := range c.s.Checks() {
		put.gauge(checkOK, truth(check.OK), check.Name)
	}
	status, again := c.s.Materializer.Connection()
	put.gauge(connected, truth(status == nats.CONNECTED))
	put.counter(reconnects, float64(again))
	c.materializer(put)
	c.store(put)
	hub := c.s.Hub.Stats()
	put.gauge(readers, float64(c.s.Streams()))
	put.gauge(fedReaders, float64(hub.Readers))
	put.counter(slowReaders, float64(hub.Behind), "behind")
	put.counter(slowReaders, float64(c.s.CutOff()), "cut_off")
}

func (c *collector) materializer(put scrape) {
	m := c.s.Materializer
	ingest, events := m.Position()
	put.gauge(ingestPosition, float64(ingest))
	put.gauge(eventsPosition, float64(events))
	put.gauge(silentStores, float64(len(m.Silent())))
	stats := m.Stats()
	put.counter(appendResults, float64(stats.AppendsWon), "taken")
	put.counter(appendResults, float64(stats.AppendsLost), "lost")
	put.counter(appendResults, float64(stats.Questions), "unknown")
	lag := m.Lag()
	if lag.At.IsZero() || time.Since(lag.At) > knownFor {
		return
	}
	put.gauge(ingestLast, float64(lag.IngestLast))
	put.gauge(ingestBytes, float64(lag.IngestBytes))
	if lag.IngestMax > 0 {
		put.gauge(ingestMax, float64(lag.IngestMax))
	}
	put.gauge(eventsLast, float64(lag.EventsLast))
	put.gauge(lagMessages, float64(lag.Messages))
	put.gauge(lagSeconds, lag.Age.Seconds())
}

func (c *collector) store(put scrape) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	s, err := c.s.Store.Reader().Status(ctx)
	put.gauge(readable, truth(err == nil))
	if err == nil {
		put.gauge(sessions, float64(s.Sessions))
		put.gauge(held, float64(s.Held))
		put.gauge(rejects, float64(s.Rejects))
		put.gauge(rejectBytes, float64(s.RejectBytes))
		put.gauge(removals, float64(s.Removals))
		put.gauge(unprojected, float64(s.Unprojected))
		put.gauge(foreign, float64(s.Foreign))
		put.gauge(holes, float64(s.Holes))
	}
	if n, err := c.s.Store.Size(); err == nil {
		put.gauge(storeBytes, float64(n))
	}
	if n, err := c.s.Store.WALSize(); err == nil {
		put.gauge(walBytes, float64(n))
	}
}

// scrape takes the figures of one scrape.
type scrape chan<- prometheus.Metric

func (s scrape) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s scrape) counter(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func truth(ok bool) float64 {
	if ok {
		return 1
	}
	return 0
}
