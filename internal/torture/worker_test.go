//go:build linux

package torture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// workerEnv holds a worker's order; a process of the test binary that finds it is one.
const workerEnv = "SKALD_TORTURE_WORKER"

// order is what a worker process is told.
type order struct {
	Server string `json:"server"`
	Seed   uint64 `json:"seed"`
	Pause  int    `json:"pause"` // most ms between two messages of a session
	// Outbox is a directory: then package publisher sends, and Kept says how far the
	// ledger has heard that messages are kept there.
	Outbox   string            `json:"outbox"`
	Kept     map[string]uint64 `json:"kept"`
	Sessions []session         `json:"sessions"`
}

// told is a line that a worker writes: what Skald said of a message, or that one is
// about to go out for the first time.
type told struct {
	Session string `json:"session"`
	N       uint64 `json:"n"` // message or ordinal; all up to it
	What    string `json:"what"`
}

// What a line says.
const (
	sending  = "sending"
	applied  = "applied"
	kept     = "kept" // in the outbox: it will be applied
	dropped  = "dropped"
	finished = "finished" // the session is done, all of it is applied
	failed   = "failed"
)

// worker runs the sessions of an order until its input ends, then finishes what is
// out and leaves.
type worker struct {
	o    order
	nc   *nats.Conn
	stop chan struct{}

	mu  sync.Mutex // of out
	out *json.Encoder
}

func runWorker() int {
	w := &worker{stop: make(chan struct{}), out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &w.o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	var err error
	w.nc, err = nats.Connect(w.o.Server, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // its end is what counts
		close(w.stop)
	}()
	if w.o.Outbox != "" {
		if err := w.keeping(); err != nil {
			w.say(w.o.Sessions[0], 0, failed+": "+err.Error())
		}
		w.nc.Close()
		return 0
	}
	var wg sync.WaitGroup
	for i, s := range w.o.Sessions {
		wg.Go(func() {
			r := &runner{w: w, s: s, rng: rand.New(rand.NewPCG(w.o.Seed, uint64(i)))}
			if err := r.run(); err != nil {
				w.say(s, 0, failed+": "+err.Error())
			}
		})
	}
	wg.Wait()
	w.nc.Close()
	return 0
}

func (w *worker) say(s session, n uint64, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out.Encode(told{s.key(), n, what}) //nolint:errcheck // nobody is left to hear it
}

func (w *worker) stopping() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// runner is one session at work.
type runner struct {
	w   *worker
	s   session
	rng *rand.Rand
}

var errDropped = errors.New("the session was forgotten")

func (r *runner) run() error {
	var err error
	var n uint64
	if r.s.Kind == chained {
		n, err = r.runChain()
	} else {
		n, err = r.runSingles()
	}
	switch {
	case errors.Is(err, errDropped):
		r.w.say(r.s, n, dropped)
	case err != nil:
		return err
	default:
		r.w.say(r.s, n, finished)
	}
	return nil
}

// runSingles sends messages without a chain, one after the other, and returns the
// last one that is applied.
func (r *runner) runSingles() (uint64, error) {
	n, err := r.resumeSingles()
	for err == nil && !r.w.stopping() {
		n++
		r.w.say(r.s, n, sending)
		m := r.s.single(n)
		if err = r.deliver(m, func() (bool, error) { return r.isApplied(n) }); err != nil {
			break
		}
		r.w.say(r.s, n, applied)
		r.rest()
	}
	return n, err
}

// resumeSingles finds the last message that is applied. Counts are asked for; event
// ids are tried in turn: one that was not sent yet is unknown.
func (r *runner) resumeSingles() (uint64, error) {
	if r.s.Kind == counted {
		p, err := r.position()
		if err != nil {
			return 0, err
		}
		for _, c := range p.Publishers {
			if c.Publisher != r.s.publisher() {
				continue
			}
			for _, gap := range c.Missing { // lost after they were acknowledged
				return gap[0] - 1, nil
			}
			return c.Count, nil
		}
		return 0, nil
	}
	// Galloping, then halving: ids are applied in order.
	low, high := uint64(0), uint64(1)
	for {
		ok, err := r.isApplied(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, high*2
	}
	for high-low > 1 {
		mid := (low + high) / 2
		ok, err := r.isApplied(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			low = mid
		} else {
			high = mid
		}
	}
	return low, nil
}

// runChain sends the journal in pages of random length, now and then the second of
// two first, so that it is held until the other comes.
func (r *runner) runChain() (uint64, error) {
	j := newJournal(r.s)
	p, err := r.position()
	for err == nil && !r.w.stopping() {
		at := p.Frontier.Ordinal
		if d := p.Frontier.Digest; d != j.digest(at) {
			return at, fmt.Errorf("the digest at %d is %s, not %s", at, d, j.digest(at))
		}
		last := at + 1 + r.rng.Uint64N(9)
		if r.rng.IntN(6) == 0 {
			end := last + 1 + r.rng.Uint64N(5)
			r.w.say(r.s, end, sending)
			r.publish(j.page(last+1, end)) // if it gets lost, it is the next one anyway
		}
		r.w.say(r.s, last, sending)
		err = r.deliver(j.page(at+1, last), func() (bool, error) {
			p, err = r.position()
			return p.Frontier.Ordinal >= last, err
		})
		if err == nil {
			r.w.say(r.s, p.Frontier.Ordinal, applied)
			r.rest()
		}
	}
	return p.Frontier.Ordinal, err
}

// impatience is how long a message that was acknowledged may take to be decided
// before it is sent again.
const impatience = 2 * time.Second

// deliver sends a message, now and then twice, until done says that it is decided.
func (r *runner) deliver(m *nats.Msg, done func() (bool, error)) error {
	for {
		if !r.publish(m) {
			if r.w.nc.IsClosed() {
				return nats.ErrConnectionClosed
			}
			time.Sleep(time.Duration(5+r.rng.IntN(50)) * time.Millisecond) // the server is away
			continue
		}
		if r.rng.IntN(50) == 0 {
			r.publish(m)
		}
		for until := time.Now().Add(impatience); time.Now().Before(until); {
			if ok, err := done(); err != nil || ok {
				return err
			}
			time.Sleep(time.Duration(1+r.rng.IntN(5)) * time.Millisecond)
		}
	}
}

// publish reports whether INGEST acknowledged a message.
func (r *runner) publish(m *nats.Msg) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	reply, err := r.w.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return false
	}
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *struct{} `json:"error"`
	}
	return json.Unmarshal(reply.Data, &ack) == nil && ack.Error == nil && ack.Seq > 0
}

// isApplied asks for the outcome of message n. It is an error if there is a final one
// that is not applied.
func (r *runner) isApplied(n uint64) (bool, error) {
	q := map[string]any{"event_id": "id-" + strconv.FormatUint(n, 10)}
	if r.s.Kind == counted {
		q = map[string]any{"publisher": r.s.publisher(), "publisher_seq": n}
	}
	var a struct{ Outcome, Reason, Detail string }
	if err := r.ask("outcome", q, &a); err != nil {
		return false, err
	}
	switch a.Outcome {
	case "applied":
		return true, nil
	case "dropped":
		return false, errDropped
	case "rejected":
		return false, fmt.Errorf("message %d: rejected: %s %s", n, a.Reason, a.Detail)
	}
	return false, nil
}

// position is what the position service says of a session.
type position struct {
	Frontier struct {
		Ordinal uint64
		Digest  string
	}
	Publishers []struct {
		Publisher string
		Count     uint64
		Missing   [][2]uint64
	}
	Forgotten bool
}

func (r *runner) position() (position, error) {
	var p position
	err := r.ask("position", nil, &p)
	return p, err
}

// ask puts a question until it is answered.
func (r *runner) ask(what string, q map[string]any, into any) error {
	var body []byte
	if q != nil {
		body, _ = json.Marshal(q)
	}
	for {
		m, err := r.w.nc.Request("skald.api."+token(r.s.Workspace)+"."+what+"."+token(r.s.Name), body, 2*time.Second)
		switch {
		case err == nil && m.Header.Get("Nats-Service-Error-Code") == "":
			return json.Unmarshal(m.Data, into)
		case err == nil && m.Header.Get("Nats-Service-Error-Code") == "404":
			return errDropped
		case err == nil && m.Header.Get("Nats-Service-Error-Code") != "503":
			return fmt.Errorf("ask for %s: %s", what, m.Data)
		case r.w.nc.IsClosed():
			return nats.ErrConnectionClosed
		}
		time.Sleep(time.Duration(5+r.rng.IntN(50)) * time.Millisecond)
	}
}

func (r *runner) rest() {
	if r.w.o.Pause > 0 {
		time.Sleep(time.Duration(r.rng.IntN(r.w.o.Pause)) * time.Millisecond)
	}
}
