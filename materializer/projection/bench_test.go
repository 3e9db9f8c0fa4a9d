package projection_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// The baseline of every benchmark here is what no projection can do without:
// checking that the bytes are JSON, and hashing them.
func baseline(b *testing.B, body []byte) {
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if !json.Valid(body) {
			b.Fatal("not JSON")
		}
		sha256.Sum256(body)
	}
}

func BenchmarkCountedError(b *testing.B) {
	body := []byte(fmt.Sprintf(`{"recorded_at_ms":1789200000000,"message":"%s","command_id":"019950f4-7f3a-7aa0-8f6e-2f0c6f6c1a11"}`, strings.Repeat("connection lost; ", 12)))
	b.Run(fmt.Sprintf("size=%d/v=ours", len(body)), func(b *testing.B) {
		s := &projection.State{}
		m := projection.Message{Class: bus.ClassError, Seq: 1, Time: 1, Body: body, Identity: bus.Identity{Publisher: "worker-1"}}
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			m.Identity.Count++
			if r := s.Apply(m, nil); r.Outcome != projection.Applied {
				b.Fatal(r.Detail)
			}
		}
	})
	b.Run(fmt.Sprintf("size=%d/v=baseline", len(body)), func(b *testing.B) { baseline(b, body) })
}

func BenchmarkPage(b *testing.B) {
	j := &journal{}
	for i := range bus.MaxPageEvents {
		if i%16 == 0 {
			j.add(fmt.Sprintf(`{"type":"command_rejected","data":{"command_id":"c%d","command":"set_config","message":"no such key"}}`, i))
			continue
		}
		j.add(fmt.Sprintf(`{"type":"session_update","data":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"piece %d of what the agent says, \"quoted\" and\n broken"},"messageId":"m"}}}`, i))
	}
	for _, size := range []uint64{1, bus.MaxPageEvents} {
		body := []byte(j.pageAfter(1, size))
		b.Run(fmt.Sprintf("events=%d/size=%d/v=ours", size, len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				var s projection.State
				if r := s.Apply(projection.Message{Class: bus.ClassProjection, Seq: 1, Time: 1, Body: body}, nil); r.Outcome != projection.Applied {
					b.Fatal(r.Detail)
				}
			}
		})
		b.Run(fmt.Sprintf("events=%d/size=%d/v=baseline", size, len(body)), func(b *testing.B) { baseline(b, body) })
	}
}

// What a commit has to encode for a session whose publishers' counts moved.
func BenchmarkAppendPublishers(b *testing.B) {
	s := newSession(b)
	for i := range uint64(100) {
		s.apply(bus.ClassError, counted("worker-1", i+1), `{"message":"m"}`)
	}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = s.state.AppendPublishers(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}
