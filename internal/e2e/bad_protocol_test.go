//go:build unix

package e2e_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What breaks the protocol of NATS ends the connection that it came by, where the
// broker has a word for it with that, and stores nothing.
func TestBadInput_Protocol(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for _, c := range []struct{ name, sent, says string }{
		{"a space in the subject", "PUB skald.in.w.a b c.error 2\r\n{}\r\n", ""},
		{"a line break in the subject", "PUB skald.in.w.a\r\nPUB x 0.error 2\r\n{}\r\n", ""},
		{"a subject of 5,000 characters", "PUB skald.in.w." + strings.Repeat("x", 5_000) + ".error 2\r\n{}\r\n", "-ERR 'maximum control line exceeded'"},
		{"larger than the limit", "PUB skald.in.w.s.error 9000000\r\n", "-ERR 'maximum payload violation'"},
		{"headers longer than the message", "HPUB skald.in.w.s.error 20 10\r\n", ""},
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.nats, "nats://"))
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\n%s", c.sent)
		require.NoError(t, err)
		answer, buf := "", make([]byte, 4096)
		for err == nil {
			var n int
			n, err = conn.Read(buf)
			answer += string(buf[:n])
		}
		conn.Close()
		require.Contains(t, strings.ToLower(answer), strings.ToLower(c.says), c.name)
		w.put(ingestSubject("w", "good", "error"), nil, failed("after "+c.name))
	}
	require.Len(t, s.same(t, "w"), 5)
	require.EqualValues(t, 5, s.settle(t).Ingest.Position)
}

// A message whose headers can not be decoded has none: in INGEST it is accepted, as
// what has no identity is, and in EVENTS it is foreign and takes a number. It hinders
// neither what follows nor a restart right behind it, which looks at the last message
// of both.
func TestBadInput_BrokenHeaders(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for i, block := range []string{"NATS/1.0\r\nno colon\r\n\r\n", "garbage\r\n\r\n", "NATS/1.0\r\nSkald-Event-Id: x\r\n"} {
		s := serve(t, data)
		s.putRaw(t, "skald.in.w.s.error", block, failed(fmt.Sprint("broken ", i)))
		s.settle(t)
		s.stop(t)

		s = serve(t, data)
		s.putRaw(t, "skald.ev.else.s.error", block, "{}")
		s.settle(t)
		s.stop(t)

		s = serve(t, data)
		s.worker(t).put(ingestSubject("w", "s", "error"), nil, failed(fmt.Sprint("after ", i)))
		rows := s.same(t, "w")
		require.Len(t, rows, 2*i+2)
		require.Contains(t, rows[2*i], fmt.Sprintf(`"message":"broken %d"`, i))
		require.Contains(t, rows[2*i+1], fmt.Sprintf(`"message":"after %d"`, i))
		st := s.settle(t)
		require.Equal(t, i+1, st.Foreign)
		require.EqualValues(t, 3*(i+1), st.Latest)
		s.stop(t)
	}
}

// putRaw stores a message with a block of headers that no client library would send.
func (s *server) putRaw(t *testing.T, subject, headers, body string) {
	t.Helper()
	answer, err := s.conn(t).SubscribeSync(nats.NewInbox())
	require.NoError(t, err)
	require.NoError(t, s.conn(t).FlushTimeout(patience))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.nats, "nats://"))
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nHPUB %s %s %d %d\r\n%s%s\r\n",
		subject, answer.Subject, len(headers), len(headers)+len(body), headers, body)
	require.NoError(t, err)
	ack, err := answer.NextMsg(patience)
	require.NoError(t, err)
	require.Contains(t, string(ack.Data), `"seq":`)
}
