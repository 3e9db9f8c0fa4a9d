package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

// journal is one session's chain, from which pages are cut.
type journal struct {
	key bus.Key
	end bus.ChainPosition
	buf []byte
}

// next returns the next page: 128 observations of 300 bytes, the body of a
// projection message. Of twenty observations three are those of a turn, of which two
// give a fact; the others stream.
func (j *journal) next() []byte {
	body := fmt.Appendf(make([]byte, 0, 80<<10), `{"after":{"ordinal":%d,"digest":"%s"},"events":[`, j.end.Ordinal, j.end.Digest)
	for i := range bus.MaxPageEvents {
		if i > 0 {
			body = append(body, ',')
		}
		e := bus.RelayEvent{Format: bus.FormatChained, Ordinal: j.end.Ordinal + 1, RecordedAt: loadEpoch + int64(j.end.Ordinal), Observation: observation(j.end.Ordinal)}
		var digest bus.Digest
		digest, j.buf = e.ComputeDigest(j.end.Digest, j.buf)
		body = fmt.Appendf(body, `{"ordinal":%d,"previous_digest":"%s","digest":"%s","recorded_at_ms":%d,"observation":%s}`,
			e.Ordinal, j.end.Digest, digest, e.RecordedAt, e.Observation)
		j.end = bus.ChainPosition{Ordinal: e.Ordinal, Digest: digest}
	}
	return append(body, `]}`...)
}

// turnLength is how many observations a turn has.
const turnLength = 20

// observation returns the observation after so many others.
func observation(before uint64) []byte {
	turn, at := before/turnLength, before%turnLength
	head, tail := "", ""
	switch at {
	case 0:
		head = fmt.Sprintf(`{"type":"command_queued","data":{"command_id":"p%d","created_at_ms":1,"command":{"type":"prompt","data":{"prompt":[{"type":"text","text":"`, turn)
		tail = `"}]}}}}`
	case 1:
		head, tail = fmt.Sprintf(`{"type":"command_started","data":{"command_id":"p%d","started_at_ms":1,"note":"`, turn), `"}}`
	case turnLength - 1:
		head = fmt.Sprintf(`{"type":"command_completed","data":{"command_id":"p%d","outcome":{"type":"prompt","data":{"stop_reason":"EndTurn","note":"`, turn)
		tail = `"}}}}`
	default:
		head, tail = `{"type":"session_update","data":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"`, `"}}}}`
	}
	return []byte(head + strings.Repeat("x", loadBody-len(head)-len(tail)) + tail)
}

// bareWork is what nobody who takes a page can do without, on one core: to see that
// it is JSON, and to hash each event.
func bareWork(bodies [][]byte) (took time.Duration, err error) {
	var buf []byte
	for _, body := range bodies {
		p, err := bus.ParsePage(body) // not counted
		if err != nil {
			return 0, fmt.Errorf("read page: %w", err)
		}
		start := time.Now()
		if !json.Valid(body) {
			return 0, errors.New("a page is no JSON")
		}
		for i := range p.Events {
			previous, _ := bus.ParseDigest(p.Events[i].Previous)
			_, buf = p.Events[i].ComputeDigest(previous, buf)
		}
		took += time.Since(start)
	}
	return took, nil
}

// pagesFigure stores pages of 1,000 sessions in turn and takes them in.
func pagesFigure(ctx context.Context, b *Bench) (_ []Result, err error) {
	w, err := newWorld(ctx, b.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	pages := max(1, b.Sizes.Observations/bus.MaxPageEvents)
	n := pages * bus.MaxPageEvents
	b.note("%d observations in %d stored pages", n, pages)
	journals := make([]journal, min(loadSessions, pages))
	for i := range journals {
		journals[i].key = session(i)
	}
	var bare time.Duration
	var sample [][]byte
	err = storeAll(ctx, w.js, pages, func(i int) *nats.Msg {
		j := &journals[i%len(journals)]
		m := nats.NewMsg(w.subj.Ingest(j.key, bus.ClassProjection))
		m.Data = j.next()
		sample = append(sample, m.Data)
		return m
	}, func(int) error {
		// The baseline takes the same pages, batch by batch: all of them would
		// not fit into memory.
		took, err := bareWork(sample)
		bare, sample = bare+took, nil
		return err
	})
	if err != nil {
		return nil, err
	}
	took, err := w.catchUp(ctx, uint64(pages))
	if err != nil {
		return nil, fmt.Errorf("take in pages: %w", err)
	}
	facts, err := w.facts(ctx)
	if err != nil {
		return nil, err
	}
	if want := n / 10; facts < uint64(want-2*len(journals)) || facts > uint64(want+2*len(journals)) {
		return nil, fmt.Errorf("take in pages: %d observations gave %d facts", n, facts)
	}
	return []Result{{
		Figure: "pages", Case: "of 128", Measured: rate(n, took), Baseline: rate(n, bare), Unit: "obs/s",
		BaselineOf: "JSON and hash on one core", Bar: Bar{Op: AtLeast, Value: 0.3, OfBaseline: true},
	}}, nil
}
