package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

// Name is the service's name.
const Name = "skald"

// HeaderLatest is in each reply of a store that could be read: the last number that
// it had passed before it was asked, so the reply is at least as new. One who has
// seen a higher number was answered by a store that lags, and asks again.
const HeaderLatest = "Skald-Latest-Seq"

const (
	// maxInFlight is how many requests are answered at a time. More wait in the
	// subscriptions, which NATS bounds.
	maxInFlight = 64
	// maxPageBytes is the most that a page holds, as over HTTP.
	maxPageBytes = 4 << 20
)

// ErrRunning: Run was called a second time.
var ErrRunning = errors.New("service has run already")

// Options are what the service works with. All but Logger are required.
type Options struct {
	API      *api.API
	Conn     *nats.Conn
	Logger   *slog.Logger // nil discards
	Subjects bus.Subjects
	Version  string // of this build, a semantic version without v
}

// Service answers queries over NATS. Make one with [New], run it once with
// [Service.Run].
type Service struct {
	o       Options
	log     *slog.Logger
	running atomic.Bool
	slots   chan struct{} // a token for each request being answered

	mu       sync.Mutex
	stopped  bool           // no request is taken any more
	inFlight sync.WaitGroup // grows only under mu, and only while not stopped
}

// New returns a service; it subscribes to nothing yet. It panics if an option is
// missing.
func New(o Options) *Service {
	if o.API == nil || o.Conn == nil || o.Subjects.Prefix() == "" || o.Version == "" {
		panic("service.New: an option is missing")
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Service{o: o, log: log, slots: make(chan struct{}, maxInFlight)}
}

// Run serves until ctx ends, then answers what it has taken on and returns nil.
// It returns an error if the subscriptions can not be made. It can be called once.
func (s *Service) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	m, err := micro.AddService(s.o.Conn, micro.Config{
		Name:        Name,
		Version:     s.o.Version,
		Description: "pages, sessions and status of a Skald bus",
		Metadata:    map[string]string{"prefix": s.o.Subjects.Prefix()},
		ErrorHandler: func(_ micro.Service, err *micro.NATSError) {
			s.log.Warn("NATS service", slog.String("subject", err.Subject), slog.Any("err", err))
		},
	})
	if err != nil {
		return fmt.Errorf("add NATS service: %w", err)
	}
	err = s.addEndpoints(ctx, m)
	if err == nil {
		<-ctx.Done()
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.inFlight.Wait()
	if stopErr := m.Stop(); stopErr != nil && !errors.Is(stopErr, nats.ErrConnectionClosed) {
		err = errors.Join(err, fmt.Errorf("stop NATS service: %w", stopErr))
	}
	return err
}

// handle wraps a query as an endpoint's handler. Requests of one subscription
// come one after the other, and one that waits for its store must not hold up
// the others: each is answered by a goroutine of its own, maxInFlight at most.
func (s *Service) handle(ctx context.Context, q query) micro.Handler {
	return micro.HandlerFunc(func(req micro.Request) {
		s.mu.Lock()
		if s.stopped {
			s.mu.Unlock()
			s.fail(ctx, req, nats.Header{}, fmt.Errorf("%w: this process is stopping", bus.ErrUnavailable))
			return
		}
		s.inFlight.Add(1)
		s.mu.Unlock()
		s.slots <- struct{}{}
		go func() {
			defer s.inFlight.Done()
			defer func() { <-s.slots }()
			// Not cancelled with Run: what was taken on is answered.
			ctx := context.WithoutCancel(ctx)
			h := nats.Header{}
			if latest, err := s.o.API.Latest(ctx); err == nil { // else the answer says what is wrong
				h.Set(HeaderLatest, strconv.FormatUint(latest, 10))
			}
			body, err := s.answer(ctx, req, q)
			if err != nil {
				s.fail(ctx, req, h, err)
				return
			}
			s.reply(ctx, req, h, body)
		}()
	})
}

func (s *Service) answer(ctx context.Context, req micro.Request, q query) ([]byte, error) {
	p, err := api.ParseJSON(req.Data())
	if err != nil {
		return nil, err
	}
	key, err := s.address(req.Subject())
	if err != nil {
		return nil, err
	}
	most := int(s.o.Conn.MaxPayload()) - bus.PayloadReserve
	return q(ctx, key, p, most)
}

// fail replies with what the caller is told about err.
func (s *Service) fail(ctx context.Context, req micro.Request, h nats.Header, err error) {
	f := s.o.API.Fail(ctx, req.Subject(), err)
	h.Set(micro.ErrorHeader, oneLine(f.Message))
	h.Set(micro.ErrorCodeHeader, strconv.Itoa(f.Status))
	s.reply(ctx, req, h, f.AppendJSON(nil))
}

// reply publishes by itself instead of through req: the framework reads what a
// request's own methods note as soon as the handler returns, which is before.
func (s *Service) reply(ctx context.Context, req micro.Request, h nats.Header, body []byte) {
	if req.Reply() == "" {
		return // published, not requested: nobody to answer
	}
	err := s.o.Conn.PublishMsg(&nats.Msg{Subject: req.Reply(), Header: h, Data: body})
	if err != nil {
		s.log.WarnContext(ctx, "reply could not be sent", slog.String("subject", req.Subject()), slog.Any("err", err))
	}
}
