package materializer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// getMsg returns the message under a sequence of s, or with next the first one
// from there on. The error is jetstream.ErrMsgNotFound if there is none.
//
// Anyone who may publish can store a message whose headers can not be decoded. A
// consumer delivers it without headers; asking for it by its number fails in the
// client library, and would fail again for ever. So here, too, it has none.
func (m *Materializer) getMsg(ctx context.Context, s jetstream.Stream, seq uint64, next bool) (*jetstream.RawStreamMsg, error) {
	subject := ""
	if next {
		subject = ">"
	}
	return m.findMsg(ctx, s, seq, subject)
}

// findMsg is getMsg for the first message from a sequence on whose subject matches; an
// empty subject means the sequence itself.
func (m *Materializer) findMsg(ctx context.Context, s jetstream.Stream, seq uint64, subject string) (*jetstream.RawStreamMsg, error) {
	var opts []jetstream.GetMsgOpt
	if subject != "" {
		opts = append(opts, jetstream.WithGetMsgSubject(subject))
	}
	raw, err := s.GetMsg(ctx, seq, opts...)
	if errors.Is(err, nats.ErrBadHeaderMsg) {
		return m.getWithoutHeaders(ctx, s.CachedInfo().Config.Name, seq, subject)
	}
	return raw, err
}

func (m *Materializer) getWithoutHeaders(ctx context.Context, stream string, seq uint64, subject string) (*jetstream.RawStreamMsg, error) {
	query := struct {
		Seq  uint64 `json:"seq"`
		Next string `json:"next_by_subj,omitempty"`
	}{Seq: seq, Next: subject}
	body, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, watchTimeout, fmt.Errorf("no answer within %s", watchTimeout))
	defer cancel()
	reply, err := m.o.Conn.RequestWithContext(ctx, bus.APIPrefix(m.o.JS)+"STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, err
	}
	switch msg := answer.Message; {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case answer.Error != nil:
		return nil, answer.Error
	case msg == nil:
		return nil, jetstream.ErrInvalidJetStreamResponse
	default:
		return &jetstream.RawStreamMsg{Subject: msg.Subject, Sequence: msg.Seq, Data: msg.Data, Time: msg.Time}, nil
	}
}
