package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	// DefaultMaxPerWorkspace is how many messages of a workspace may be under way.
	DefaultMaxPerWorkspace = 1024
	// maxPending bounds what one edge has under way, of all workspaces.
	maxPending = 1 << 14
	// queue is the group in which edges share the work.
	queue = "edge"
	// storeTimeout is how long INGEST has for its answer. Publishers wait five
	// seconds by default, and should hear of a refusal.
	storeTimeout = 4 * time.Second
	// drainTimeout bounds how long Run waits for answers when it is stopped.
	drainTimeout = storeTimeout + time.Second
)

// JetStream's error codes that an edge gives by itself.
const (
	codeTooMany     = 10167 // "too many requests"
	codeUnavailable = 10008 // "JetStream system temporarily unavailable"
)

// ErrRunning: Run was called a second time.
var ErrRunning = errors.New("edge has run already")

// Options are what an edge works with. Conn and Subjects are required.
type Options struct {
	Conn     *nats.Conn
	Subjects bus.Subjects

	// Logger takes what a human should know. Nil discards.
	Logger *slog.Logger
	// MaxPerWorkspace is how many messages of one workspace may be under way.
	// Defaults to DefaultMaxPerWorkspace.
	MaxPerWorkspace int
	// Ready is called by Run once the server knows that messages are taken. Nil is
	// not called.
	Ready func()
}

// Edge stores workers' messages. Make one with [New], run it once with [Edge.Run].
type Edge struct {
	o       Options
	js      jetstream.JetStream
	in      string // prefix of INGEST's subjects
	edge    string // prefix of ours
	running atomic.Bool
	waiting sync.WaitGroup

	mu      sync.Mutex
	pending map[string]int // messages under way, by workspace's token
}

// New returns an edge; it subscribes to nothing yet. It panics if an option is
// missing.
func New(o Options) (*Edge, error) {
	if o.Conn == nil || o.Subjects.Prefix() == "" {
		panic("edge.New: an option is missing")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxPerWorkspace == 0 {
		o.MaxPerWorkspace = DefaultMaxPerWorkspace
	}
	if o.MaxPerWorkspace < 0 {
		return nil, &bus.InvalidError{Field: "messages per workspace", Rule: "must not be negative"}
	}
	js, err := jetstream.New(o.Conn, jetstream.WithPublishAsyncMaxPending(2*maxPending), jetstream.WithPublishAsyncTimeout(storeTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	prefix := o.Subjects.Prefix()
	return &Edge{o: o, js: js, in: prefix + ".in.", edge: Subject(o.Subjects), pending: map[string]int{}}, nil
}

// Subject returns the prefix of the subjects that edges take messages on.
func Subject(s bus.Subjects) string { return s.Prefix() + ".edge." }

// Run stores what comes until ctx ends, then waits for the answers that are still
// to come and returns nil. It returns an error if it can not subscribe. It can be
// called once.
func (e *Edge) Run(ctx context.Context) error {
	if !e.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	sub, err := e.o.Conn.QueueSubscribe(e.edge+"*.*.*", queue, e.take)
	if err != nil {
		return fmt.Errorf("subscribe to %s: %w", e.edge+"*.*.*", err)
	}
	if err := e.flush(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("subscribe to %s: %w", e.edge+"*.*.*", err)
	} else if err == nil && e.o.Ready != nil {
		e.o.Ready()
	}
	<-ctx.Done()
	drained := sub.StatusChanged(nats.SubscriptionClosed)
	if err := sub.Drain(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("stop taking messages: %w", err)
	}
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
	}
	e.waiting.Wait() // bounded by storeTimeout
	return nil
}

func (e *Edge) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return e.o.Conn.FlushWithContext(ctx)
}

// take sends one message on and leaves waiting for its answer to a goroutine.
// Messages of a subscription come one after the other, so they keep their order.
func (e *Edge) take(m *nats.Msg) {
	rest := strings.TrimPrefix(m.Subject, e.edge)
	workspace, _, _ := strings.Cut(rest, ".")
	if !e.begin(workspace) {
		e.refuse(m, http.StatusTooManyRequests, codeTooMany, "too many requests")
		return
	}
	// Tried once: what is tried again here would be stored after what came later.
	ack, err := e.js.PublishMsgAsync(&nats.Msg{Subject: e.in + rest, Header: keep(m.Header), Data: m.Data}, jetstream.WithRetryAttempts(0))
	if err != nil {
		e.end(workspace)
		e.failed(m, err)
		return
	}
	e.waiting.Go(func() {
		defer e.end(workspace)
		select {
		case a := <-ack.Ok():
			e.reply(m, jetstream.PubAck{Stream: a.Stream, Sequence: a.Sequence, Duplicate: a.Duplicate, Domain: a.Domain})
		case err := <-ack.Err():
			e.failed(m, err)
		}
	})
}

func (e *Edge) begin(workspace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending[workspace] >= e.o.MaxPerWorkspace || e.js.PublishAsyncPending() >= maxPending {
		return false
	}
	e.pending[workspace]++
	return true
}

func (e *Edge) end(workspace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending[workspace]--; e.pending[workspace] == 0 {
		delete(e.pending, workspace)
	}
}

// keep returns the headers that are Skald's. Their case is kept: one that is spelled
// otherwise has to be rejected by the materializer, as it would be without an edge.
func keep(h nats.Header) nats.Header {
	var out nats.Header
	for name, values := range h {
		for _, ours := range [...]string{bus.HeaderPublisher, bus.HeaderPublisherSeq, bus.HeaderEventID, bus.HeaderTrace, bus.HeaderTraceState} {
			if strings.EqualFold(name, ours) {
				if out == nil {
					out = nats.Header{}
				}
				out[name] = values
			}
		}
	}
	return out
}

// failed passes on what INGEST refused. Where it is not known whether the message is
// stored there is no answer, as there would be none without an edge.
func (e *Edge) failed(m *nats.Msg, err error) {
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused):
		e.refuse(m, refused.Code, int(refused.ErrorCode), refused.Description)
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		e.refuse(m, http.StatusServiceUnavailable, codeUnavailable, "no stream takes "+e.in)
	case errors.Is(err, nats.ErrMaxPayload):
		e.refuse(m, http.StatusBadRequest, 10054, "message size exceeds maximum allowed")
	default:
		e.o.Logger.Warn("message has no answer", slog.String("subject", m.Subject), slog.Any("err", err))
	}
}

func (e *Edge) refuse(m *nats.Msg, code, errCode int, description string) {
	type apiError struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	}
	e.reply(m, struct {
		Error apiError `json:"error"`
	}{apiError{code, errCode, description}})
}

func (e *Edge) reply(m *nats.Msg, v any) {
	if m.Reply == "" {
		return
	}
	body, err := json.Marshal(v)
	if err == nil {
		err = m.Respond(body)
	}
	if err != nil {
		e.o.Logger.Warn("answer could not be sent", slog.String("subject", m.Subject), slog.Any("err", err))
	}
}
