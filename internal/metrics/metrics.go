package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

const (
	// prefix begins the name of each figure.
	prefix = "skald"
	// otherReason is the label of a reason that the list does not have.
	otherReason = "other"
)

// outcomes are the values of the label result.
var outcomes = []projection.Outcome{
	projection.Applied, projection.Duplicate, projection.Held, projection.Rejected, projection.Dropped,
}

// durations are the upper bounds of buckets, in seconds: from a memory disk to an
// append or commit that is about to be given up.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// sizes are the upper bounds of buckets, in messages, up to the largest transaction.
var sizes = prometheus.ExponentialBuckets(1, 4, 8)

// Build says what is running.
type Build struct {
	Version, Commit, Go, NATSServer, SQLite string
	Contract                                string
}

// Metrics are the figures of one process. Make them with [New]. It is safe for
// concurrent use, and an observer of a materializer.
type Metrics struct {
	registry *prometheus.Registry

	byOutcome []prometheus.Counter // by projection.Outcome
	byReason  map[bus.Reason]prometheus.Counter
	other     prometheus.Counter // rejects of no known reason
	messages  prometheus.Histogram
	rows      prometheus.Counter
	commits   prometheus.Histogram
	refused   prometheus.Counter
	facts     prometheus.Histogram
	appends   prometheus.Histogram
}

// New returns figures that are all 0, those of the process itself included.
func New(b Build) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), byReason: map[bus.Reason]prometheus.Counter{}}
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "_messages_total", Help: "Messages of INGEST that were committed, by what became of them.",
	}, []string{"result"})
	m.byOutcome = make([]prometheus.Counter, len(outcomes)+1)
	for _, o := range outcomes {
		m.byOutcome[o] = results.WithLabelValues(o.String())
	}
	rejects := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: prefix + "_rejected_messages_total", Help: "Messages of INGEST that were rejected, by reason.",
	}, []string{"reason"})
	for _, r := range reasons {
		m.byReason[r] = rejects.WithLabelValues(string(r))
	}
	m.other = rejects.WithLabelValues(otherReason)
	m.messages = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "_commit_batch_messages", Help: "Messages of INGEST in a transaction of the store.", Buckets: sizes,
	})
	m.rows = prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "_rows_total", Help: "Facts that were committed to the table.",
	})
	m.commits = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "_commit_duration_seconds", Help: "Time of a transaction of the store that became durable.", Buckets: durations,
	})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: prefix + "_commit_refusals_total", Help: "Transactions that the store refused; each is tried again.",
	})
	m.facts = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "_append_batch_messages", Help: "Facts in an append to EVENTS.", Buckets: sizes,
	})
	m.appends = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: prefix + "_append_duration_seconds", Help: "Time from the end of an append to EVENTS to its acknowledgement.", Buckets: durations,
	})
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "_build_info", Help: "What is running; always 1.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "commit": b.Commit, "go": b.Go, "nats_server": b.NATSServer, "sqlite": b.SQLite, "contract": b.Contract,
		},
	})
	info.Set(1)
	m.registry.MustRegister(results, rejects, m.messages, m.rows, m.commits, m.refused, m.facts, m.appends, info,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{Namespace: prefix}))
	prometheus.WrapRegistererWithPrefix(prefix+"_", m.registry).MustRegister(collectors.NewGoCollector())
	return m
}

// Handler answers a scrape. A figure that can not be had leaves the others there.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, DisableCompression: true})
}

// Appended implements materializer.Observer.
func (m *Metrics) Appended(facts int, took time.Duration) {
	m.facts.Observe(float64(facts))
	m.appends.Observe(took.Seconds())
}

// Committed implements materializer.Observer.
func (m *Metrics) Committed(messages, rows int, took time.Duration) {
	m.messages.Observe(float64(messages))
	m.rows.Add(float64(rows))
	m.commits.Observe(took.Seconds())
}

// Message implements materializer.Observer.
func (m *Metrics) Message(outcome projection.Outcome, reason bus.Reason) {
	if int(outcome) < len(m.byOutcome) && m.byOutcome[outcome] != nil {
		m.byOutcome[outcome].Inc()
	}
	if outcome != projection.Rejected {
		return
	}
	if c, ok := m.byReason[reason]; ok {
		c.Inc()
		return
	}
	m.other.Inc()
}

// Refused implements materializer.Observer.
func (m *Metrics) Refused() { m.refused.Inc() }
