//go:build unix

package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// connect connects a plain client, for the time of the test.
func connect(t *testing.T, url string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(opts, nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// conn returns the test's connection to the server, made by the first call.
func (s *server) conn(t *testing.T) *nats.Conn {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		s.conns = map[string]*nats.Conn{}
	}
	nc := s.conns[t.Name()]
	if nc == nil || nc.IsClosed() {
		nc = connect(t, s.nats)
		s.conns[t.Name()] = nc
	}
	return nc
}

func (s *server) js(t *testing.T) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(s.conn(t))
	require.NoError(t, err)
	return js
}

// plainWorker is a plain NATS client that publishes; it knows nothing of Skald but the
// subjects.
type plainWorker struct {
	t  *testing.T
	nc *nats.Conn
}

func (s *server) worker(t *testing.T) *plainWorker { return &plainWorker{t, s.conn(t)} }

// ingestSubject is that of a session's message.
func ingestSubject(workspace, session, class string) string {
	return "skald.in." + bus.Escape(workspace) + "." + bus.Escape(session) + "." + class
}

// send publishes and returns the server's answer, or the error that it gave.
func (w *plainWorker) send(subject string, h nats.Header, body string) (*jetstream.PubAck, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	m, err := w.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Header: h, Data: []byte(body)})
	if err != nil {
		return nil, err
	}
	var answer struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	require.NoError(w.t, json.Unmarshal(m.Data, &answer), "%s", m.Data)
	if answer.Error != nil {
		return nil, answer.Error
	}
	return &answer.PubAck, nil
}

// put publishes what must be stored and returns its sequence in INGEST.
func (w *plainWorker) put(subject string, h nats.Header, body string) uint64 {
	w.t.Helper()
	ack, err := w.send(subject, h, body)
	require.NoError(w.t, err, "%s", subject)
	return ack.Sequence
}

// withID is the header of a message with an event id.
func withID(eventID string) nats.Header { return nats.Header{"Skald-Event-Id": {eventID}} }

// withCount is the header of a publisher's message.
func withCount(publisher, n string) nats.Header {
	return nats.Header{"Skald-Publisher": {publisher}, "Skald-Publisher-Seq": {n}}
}

// failed is the body of an error message.
func failed(message string) string { return `{"message":` + quoted(message) + `,"recorded_at_ms":1}` }

// busStatus is what the tests read of the status.
type busStatus struct {
	Ingest struct {
		Position uint64  `json:"position"`
		Lag      *uint64 `json:"lag"`
	} `json:"ingest"`
	Events struct {
		Lag *uint64 `json:"lag"`
	} `json:"events"`
	Latest     uint64 `json:"latest_seq"`
	Applied    int    `json:"applied"`
	Duplicates int    `json:"duplicates"`
	Held       int    `json:"held"`
	Rejects    int    `json:"rejects"`
	Dropped    int    `json:"dropped"`
	Foreign    int    `json:"foreign"`
	Sessions   int    `json:"sessions"`
}

// settle waits until all that is stored is in the table, and returns the status.
func (s *server) settle(t *testing.T) busStatus {
	t.Helper()
	var st busStatus
	skaldtest.Eventually(t, patience, func() bool {
		resp, err := client.Get(s.http + "/api/v1/status")
		if err != nil {
			return !s.running() // there is nothing to wait for
		}
		defer resp.Body.Close()
		st = busStatus{}
		if json.NewDecoder(resp.Body).Decode(&st) != nil {
			return false
		}
		return st.Ingest.Lag != nil && *st.Ingest.Lag == 0 && st.Events.Lag != nil && *st.Events.Lag == 0
	}, "lag is 0")
	require.True(t, s.running(), "serve still runs")
	return st
}

// rejectEntry is an entry as `skald rejects` prints it.
type rejectEntry struct {
	ID      int64   `json:"id"`
	Seq     uint64  `json:"ingest_seq"`
	Session *string `json:"session_id"`
	Subject string  `json:"subject"`
	Class   string  `json:"class"`
	Reason  string  `json:"reason"`
	Detail  string  `json:"detail"`
	Size    int     `json:"payload_size"`
	Hash    string  `json:"payload_sha256"`
	Payload *string `json:"payload"`
	Base64  *string `json:"payload_base64"`
}

// rejects lists what was rejected, by sequence in INGEST.
func (s *server) rejects(t *testing.T, flags ...string) map[uint64]rejectEntry {
	t.Helper()
	out := map[uint64]rejectEntry{}
	for _, line := range skald(t, "", append([]string{"rejects", "--json", "--limit", "1000", "--data", s.data}, flags...)...).ok(t) {
		var r rejectEntry
		require.NoError(t, json.Unmarshal([]byte(line), &r), line)
		require.NotContains(t, out, r.Seq, "one entry a message")
		out[r.Seq] = r
	}
	return out
}

// confirmation is a confirmation on skald.done.….
type confirmation struct {
	Seq       uint64 `json:"ingest_seq"`
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason"`
	EventID   string `json:"event_id"`
	Publisher string `json:"publisher"`
	Count     uint64 `json:"publisher_seq"`
	Frontier  *struct {
		Ordinal uint64 `json:"ordinal"`
		Digest  string `json:"digest"`
	} `json:"frontier"`
}

// confirmations collects confirmations.
type confirmations struct {
	t   *testing.T
	mu  sync.Mutex
	got map[uint64]confirmation
}

// listen subscribes to the workspace's confirmations, "*" meaning all.
func (s *server) listen(t *testing.T, token string) *confirmations {
	t.Helper()
	h := &confirmations{t: t, got: map[uint64]confirmation{}}
	nc := s.conn(t)
	_, err := nc.Subscribe("skald.done."+token+".*", func(m *nats.Msg) {
		var one confirmation
		if json.Unmarshal(m.Data, &one) == nil {
			h.mu.Lock()
			h.got[one.Seq] = one
			h.mu.Unlock()
		}
	})
	require.NoError(t, err)
	require.NoError(t, nc.FlushTimeout(patience))
	return h
}

// of waits for the confirmation of a message.
func (h *confirmations) of(seq uint64) confirmation {
	h.t.Helper()
	var one confirmation
	skaldtest.Eventually(h.t, patience, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		var ok bool
		one, ok = h.got[seq]
		return ok
	}, fmt.Sprint("confirmation of ", seq))
	return one
}

// relayChain is a worker's chain of relay events. It digests as the contract says,
// by itself, so that a mistake of the server's is not repeated here.
type relayChain struct {
	ordinal uint64
	digest  string
}

func newRelayChain() *relayChain { return &relayChain{digest: strings.Repeat("0", 64)} }

// notice is an observation from which no fact follows.
const notice = `{"type":"notice","data":{"message":"n"}}`

// relayDigest is the digest of an event of format 1.
func relayDigest(ordinal uint64, previous, recordedAt, observation string) string {
	sum := sha256.Sum256([]byte(fmt.Sprintf("hel-relay-event-v1\x00"+`{"ordinal":%d,"previous_digest":"%s","recorded_at_ms":%s,"observation":%s}`,
		ordinal, previous, recordedAt, observation)))
	return hex.EncodeToString(sum[:])
}

// next is the relayChain's next event, as its JSON.
func (j *relayChain) next(observation string) string {
	previous := j.digest
	j.ordinal++
	j.digest = relayDigest(j.ordinal, previous, "7", observation)
	return fmt.Sprintf(`{"ordinal":%d,"previous_digest":"%s","digest":"%s","recorded_at_ms":7,"observation":%s}`,
		j.ordinal, previous, j.digest, observation)
}

// page is the next n events as the body of a message.
func (j *relayChain) page(n int) string {
	after := fmt.Sprintf(`{"ordinal":%d,"digest":"%s"}`, j.ordinal, j.digest)
	events := make([]string, n)
	for i := range events {
		events[i] = j.next(notice)
	}
	return `{"after":` + after + `,"events":[` + strings.Join(events, ",") + `]}`
}
