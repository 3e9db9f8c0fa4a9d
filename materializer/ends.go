package materializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/checkpoint"
)

// endPrefix begins the names of objects that stand for a removed last fact of EVENTS.
// Each number has an object of its own, so that two materializers never write
// different things under one name.
const endPrefix = "events-end/"

// removedEnd is the content of such an object.
type removedEnd struct {
	Seq        uint64 `json:"seq"`
	IngestSeq  uint64 `json:"ingest_seq"`
	IngestTime int64  `json:"ingest_time"`
	Index      int    `json:"index"`
}

func readRemovedEnd(ctx context.Context, bucket jetstream.ObjectStore, seq uint64) (bus.Origin, error) {
	b, err := bucket.GetBytes(ctx, endPrefix+strconv.FormatUint(seq, 10))
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return bus.Origin{}, nil
	}
	if err != nil {
		return bus.Origin{}, fmt.Errorf("read the origin of EVENTS %d: %w", seq, err)
	}
	var e removedEnd
	if err := json.Unmarshal(b, &e); err != nil {
		return bus.Origin{}, fmt.Errorf("read the origin of EVENTS %d: %w", seq, err)
	}
	return bus.Origin{Seq: e.IngestSeq, Time: e.IngestTime, Index: e.Index}, nil
}

// writeRemovedEnd writes down what EVENTS' last fact came from, before that
// is deleted, and drops what was written for ends that are none any more.
func (m *Materializer) writeRemovedEnd(ctx context.Context, seq uint64, o bus.Origin) error {
	state, err := checkpoint.Open(ctx, m.o.JS, m.o.Subjects, m.replicas())
	if err != nil {
		return err
	}
	bucket := state.Objects()
	b, err := json.Marshal(removedEnd{Seq: seq, IngestSeq: o.Seq, IngestTime: o.Time, Index: o.Index})
	if err != nil {
		return fmt.Errorf("encode the origin of EVENTS %d: %w", seq, err)
	}
	if _, err := bucket.PutBytes(ctx, endPrefix+strconv.FormatUint(seq, 10), b); err != nil {
		return fmt.Errorf("write the origin of EVENTS %d: %w", seq, err)
	}
	old, err := bucket.List(ctx)
	if err != nil {
		return nil // tidying only
	}
	for _, o := range old {
		if n, err := strconv.ParseUint(strings.TrimPrefix(o.Name, endPrefix), 10, 64); err == nil && n < seq && strings.HasPrefix(o.Name, endPrefix) {
			_ = bucket.Delete(ctx, o.Name)
		}
	}
	return nil
}
