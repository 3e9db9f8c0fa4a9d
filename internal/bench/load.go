package bench

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/skaldbus/skald/bus"
)

// The load that the figures are stated for.
const (
	loadSessions   = 1000
	loadWorkspaces = 10
	loadBody       = 300 // bytes
	loadEpoch      = 1_789_200_000_000
	// batchMessages is how many messages an atomic batch has at most, and
	// batchBytes how many bytes.
	batchMessages = 1000
	batchBytes    = 8 << 20
)

// Identity is how a message says what it is.
type Identity string

// Identities.
const (
	ByCount   Identity = "counts"
	ByEventID Identity = "event ids"
)

// session returns the key of the i-th session.
func session(i int) bus.Key {
	return bus.Key{Workspace: fmt.Sprintf("workspace-%d", i%loadWorkspaces), Session: fmt.Sprintf("0198c0de-7e57-7000-8000-%012d", i)}
}

// message returns the i-th message of so many sessions, an error with a body of 300
// bytes that begins with its index.
func message(subjects bus.Subjects, id Identity, i, sessions int) *nats.Msg {
	m := nats.NewMsg(subjects.Ingest(session(i%sessions), bus.ClassError))
	if id == ByCount {
		m.Header[bus.HeaderPublisher] = []string{"worker-1"}
		m.Header[bus.HeaderPublisherSeq] = []string{strconv.Itoa(i/sessions + 1)}
	} else {
		m.Header[bus.HeaderEventID] = []string{fmt.Sprintf("0198c0de-7e57-7000-8000-%012d", i)}
	}
	body := fmt.Appendf(make([]byte, 0, loadBody), `{"recorded_at_ms":%d,"message":"%d `, loadEpoch+i, i)
	for len(body) < loadBody-2 {
		body = append(body, 'x')
	}
	m.Data = append(body, `"}`...)
	return m
}

// store stores n messages in atomic batches: make returns the i-th. after, unless it
// is nil, is called with how many are stored after each batch.
func storeAll(ctx context.Context, js jetstream.JetStream, n int, make func(i int) *nats.Msg, after func(stored int) error) error {
	var batch []*nats.Msg
	size := 0
	for i := range n {
		m := make(i)
		batch, size = append(batch, m), size+len(m.Data)
		if len(batch) < batchMessages && size < batchBytes && i < n-1 {
			continue
		}
		if _, err := jetstreamext.PublishMsgBatch(ctx, js, batch); err != nil {
			return fmt.Errorf("store messages: %w", err)
		}
		batch, size = nil, 0
		if after != nil {
			if err := after(i + 1); err != nil {
				return err
			}
		}
	}
	return nil
}
