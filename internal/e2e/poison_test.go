//go:build unix

package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// A batch was written in one transaction and one row broke a constraint: either all
// of it was thrown away, or all of it came again and failed again for ever. Here four
// bad messages share their batch with 196 good ones, which all arrive.
func TestB03_OneBadEventTakesNoNeighbours(t *testing.T) {
	t.Parallel()
	broker := outsideNATS(t, natsd.Options{})
	data := t.TempDir()
	serve(t, data, "--server", broker.ClientURL()).stop(t) // makes the streams
	w := &plainWorker{t, connect(t, broker.ClientURL())}
	at := ingestSubject("b03", "s", "error")
	bad := map[int]struct{ subject, body, reason, detail string }{
		100: {at, `{"id":"e-100",`, "bad_body", "body: is cut off after 14 bytes"},
		101: {at, ``, "bad_body", "body: must not be empty"},
		102: {"skald.in.b03.=.error", failed("no session"), "bad_subject", "session: token has a = that two upper-case hex digits do not follow"},
		103: {ingestSubject("b03", "s", "telepathy"), failed("x"), "unknown_class", `class: "telepathy" is not known`},
	}
	seqs := map[int]uint64{}
	for i := 1; i <= 200; i++ {
		m := bad[i]
		if m.subject == "" {
			m.subject, m.body = at, failed(fmt.Sprint(i))
		}
		seqs[i] = w.put(m.subject, withID(fmt.Sprint("e-", i)), m.body)
	}

	s := serve(t, data, "--server", broker.ClientURL())
	rows := s.same(t, "b03")
	require.Len(t, rows, 196)
	row := 0
	for i := 1; i <= 200; i++ {
		if bad[i].subject == "" {
			require.Contains(t, rows[row], fmt.Sprintf(`"data":{"message":"%d",`, i))
			row++
		}
	}
	entries := s.rejects(t)
	require.Len(t, entries, 4)
	for i, m := range bad {
		e := entries[seqs[i]]
		require.Equal(t, m.reason, e.Reason)
		require.Equal(t, m.detail, e.Detail)
		require.Equal(t, m.subject, e.Subject)
		require.Equal(t, len(m.body), e.Size)
		shown := skald(t, "", "rejects", "show", fmt.Sprint(e.ID), "--json", "--data", data).ok(t)
		require.Len(t, shown, 1)
		require.Contains(t, shown[0], `"payload":`+quoted(m.body))
	}
	before := s.settle(t)
	require.Equal(t, 4, before.Rejects)
	require.Equal(t, 196, before.Applied)

	s.stop(t)
	s = serve(t, data, "--server", broker.ClientURL())
	require.Equal(t, rows, s.same(t, "b03"))
	require.Equal(t, before, s.settle(t), "nothing is counted again")
	require.Equal(t, entries, s.rejects(t))
}

// The workers' side took 150 MB and the broker 1 MB; what lay between was dropped
// with a counter, or refused without a reason so that it was sent again for ever. Here
// it is stored whole, or refused at once with the limit, and what follows lands.
func TestB07_LargeEvents(t *testing.T) {
	t.Parallel()
	sizes := []int{900_000, 1_031_940, 1_048_000, 1_048_576, 2_000_000, 5_000_000, 8_372_000, 8_400_000}
	for name, args := range map[string]func(t *testing.T) (data string, args []string, most int){
		"embedded": func(t *testing.T) (string, []string, int) { return t.TempDir(), nil, 8<<20 - 16<<10 },
		"default limit": func(t *testing.T) (string, []string, int) {
			return t.TempDir(), []string{"--server", outsideNATS(t, natsd.Options{MaxPayload: 1 << 20}).ClientURL()}, 1<<20 - 16<<10
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, flags, most := args(t)
			s := serve(t, data, flags...)
			w := s.worker(t)
			want := map[string][]string{}
			for i, size := range sizes {
				frame := len(failed(""))
				body := failed(strings.Repeat("x", size-frame))
				require.Len(t, body, size)
				small := fmt.Sprint("small ", i)

				// By a plain client.
				_, err := w.send(ingestSubject("b07", "raw", "error"), withID(fmt.Sprint(i)), body)
				if size+200 < most {
					require.NoError(t, err, size)
					want["raw"] = append(want["raw"], fmt.Sprint(size-frame))
				} else {
					require.True(t, tooLarge(err), "%d: %v", size, err)
				}
				w.put(ingestSubject("b07", "raw", "error"), nil, failed(small))

				// By the command.
				r := skald(t, body, "publish", "--server", s.nats, "--workspace", "b07", "--session", "cli", "--class", "error", "--id", fmt.Sprint(i), "--body", "-")
				switch {
				case size+768 <= most:
					require.Len(t, r.ok(t), 1)
				case size+768 <= most+64<<10:
					r.fails(t, 2, fmt.Sprintf("body: is %d bytes long, this server takes at most %d", size, most-768))
				default: // it is not read to its end
					r.fails(t, 2, fmt.Sprintf("body: is more than %d bytes long, this server takes at most %d", most-768+64<<10, most-768))
				}
				w.put(ingestSubject("b07", "cli", "error"), nil, failed(small))
				if size+768 <= most {
					want["cli"] = append(want["cli"], fmt.Sprint(size-frame))
				}
				want["raw"], want["cli"] = append(want["raw"], small), append(want["cli"], small)
			}
			rows := s.same(t, "b07")
			for session, want := range want {
				var got []string
				for _, e := range rows {
					_, message, _ := strings.Cut(e, `"data":{"message":"`)
					message, _, _ = strings.Cut(message, `"`)
					if strings.HasPrefix(message, "x") {
						require.Equal(t, strings.Repeat("x", len(message)), message)
						message = fmt.Sprint(len(message))
					}
					if strings.Contains(e, `"session_id":"`+session+`"`) {
						got = append(got, message)
					}
				}
				require.Equal(t, want, got)
			}
			require.Zero(t, s.settle(t).Rejects)
		})
	}
}

// tooLarge reports whether a message was refused for its size, by the client or by
// the stream.
func tooLarge(err error) bool {
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == 10054
}

// Tool output with U+0000, half a surrogate pair or a Latin-1 byte passed the front
// door and broke at the insert, and very deep JSON took the process along. Here each
// is stored byte for byte or refused with its reason, at both doors alike.
func TestB08_StrangeCharacters(t *testing.T) {
	t.Parallel()
	s := shared(t)
	w, heard := s.worker(t), s.listen(t, "b08")
	before := s.pid()
	for _, c := range []struct {
		name, body string
		data       string // of the event, if it is stored
		detail     string // why not, else
	}{
		{name: "nul", body: `{"activity":{"v":"a\u0000b"}}`, data: `{"activity":{"v":"a\u0000b"}}`},
		{name: "half pair", body: `{"activity":{"v":"\ud800"}}`, data: `{"activity":{"v":"\ud800"}}`},
		{name: "pair turned round", body: `{"activity":{"v":"\udc00\ud800"}}`, data: `{"activity":{"v":"\udc00\ud800"}}`},
		{name: "latin-1", body: "{\"activity\":{\"v\":\"\xff\"}}", detail: "body: must be valid UTF-8, byte 18 is not"},
		{name: "encoded half pair", body: "{\"activity\":{\"v\":\"\xed\xa0\x80\"}}", detail: "body: must be valid UTF-8, byte 18 is not"},
		{name: "line separator", body: "{\"activity\":{\"v\":\"\u2028<&>\"}}", data: "{\"activity\":{\"v\":\"\u2028<&>\"}}"},
		{name: "deep", body: `{"activity":{"v":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`, detail: "body: nests deeper than 512 levels at byte 527"},
		{name: "twice", body: `{"activity":{"id":"x","id":"y"}}`, data: `{"activity":{"id":"x","id":"y"}}`},
		{name: "byte order mark", body: "\ufeff{\"activity\":{}}", detail: "body: is not JSON at byte 0: a value must follow"},
		{name: "raw control", body: "{\"activity\":{\"v\":\"\x00\"}}", detail: "body: is not JSON at byte 18: a control character in a string must be escaped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seq := w.put(ingestSubject("b08", c.name, "activity"), nil, c.body)
			w.put(ingestSubject("b08", c.name, "error"), nil, failed("after raw"))
			got := heard.of(seq)
			cli := skald(t, c.body, "publish", "--server", s.nats, "--workspace", "b08", "--session", c.name+" cli", "--class", "activity", "--body", "-")
			w.put(ingestSubject("b08", c.name+" cli", "error"), nil, failed("after cli"))
			if c.data == "" {
				require.Equal(t, "rejected", got.Outcome)
				require.Equal(t, "bad_body", got.Reason)
				e := s.rejects(t, "--workspace", "b08", "--session", c.name)[seq]
				require.Equal(t, "bad_body", e.Reason)
				require.Equal(t, c.detail, e.Detail)
				sum := sha256.Sum256([]byte(c.body))
				require.Equal(t, hex.EncodeToString(sum[:]), e.Hash, "the payload is kept as it came")
				cli.fails(t, 2, c.detail)
				return
			}
			require.Equal(t, "applied", got.Outcome)
			require.Len(t, cli.ok(t), 1)
		})
		rows := s.rowsOf(t, "b08", c.name)
		rows = append(rows, s.rowsOf(t, "b08", c.name+" cli")...)
		var data []string
		for _, r := range rows {
			data = append(data, dataOf(r))
		}
		want := []string{`{"message":"after raw","command_id":null}`, `{"message":"after cli","command_id":null}`}
		if c.data != "" {
			want = []string{c.data, want[0], c.data, want[1]}
		}
		require.Equal(t, want, data, c.name)
	}
	s.same(t, "b08")
	require.Equal(t, before, s.pid())
}

// rowsOf returns the session's events over HTTP, when all is in the table.
func (s *server) rowsOf(t *testing.T, workspace, session string) []string {
	t.Helper()
	s.settle(t)
	return s.doors()[0].walk(t, url.Values{"workspace_id": {workspace}, "session_id": {session}}, 1000)
}

// dataOf is the data of an event, which is its last member.
func dataOf(event string) string {
	_, data, _ := strings.Cut(event, `,"data":`)
	return strings.TrimSuffix(data, "}")
}

// outsideNATS starts a NATS server that outlives serve.
func outsideNATS(t *testing.T, o natsd.Options) *natsd.Server {
	t.Helper()
	o.SyncInterval = patience // power cuts are not the point
	return skaldtest.ServerWith(t, o)
}
