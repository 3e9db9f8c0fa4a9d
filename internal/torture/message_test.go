//go:build linux

package torture_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// kind is how a session's messages are told apart, and so what they are made of.
type kind string

const (
	counted kind = "count" // a publisher's counts
	named   kind = "id"    // event ids
	chained kind = "chain" // a journal
)

// session is what one worker says about one session. All that it will ever say
// follows from these fields.
type session struct {
	Workspace string `json:"workspace"`
	Name      string `json:"name"`
	Kind      kind   `json:"kind"`
	Format    int    `json:"format"` // of relay events
	Pad       int    `json:"pad"`    // bytes that messages are longer
}

func (s session) key() string { return s.Workspace + "/" + s.Name }

// token escapes an id that has no characters outside ASCII.
func token(id string) string {
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "=%02X", c)
	}
	return b.String()
}

func (s session) subject(class string) string {
	return "skald.in." + token(s.Workspace) + "." + token(s.Name) + "." + class
}

// publisher is the id that a session's counts belong to.
func (s session) publisher() string { return "torture-" + token(s.Name) }

// clock is a worker's time for a message, the same whenever the message is made.
func clock(n uint64) string { return strconv.FormatUint(1_700_000_000_000+n, 10) }

// single returns message n, from 1, of a session without a chain. Each gives one
// fact, which label reads n from.
func (s session) single(n uint64) *nats.Msg {
	pad := strings.Repeat("x", s.Pad)
	num := strconv.FormatUint(n, 10)
	class, body := "error", `{"recorded_at_ms":`+clock(n)+`,"message":"`+num+` `+pad+`"}`
	switch n % 4 {
	case 1:
		class, body = "activity", `{"recorded_at_ms":`+clock(n)+`,"activity":{"n":`+num+`,"pad":"`+pad+`"}}`
	case 3:
		class, body = "session", `{"op":"save","recorded_at_ms":`+clock(n)+`,"last_error":"`+num+` `+pad+`"}`
	}
	m := nats.NewMsg(s.subject(class))
	m.Data = []byte(body)
	if s.Kind == counted {
		m.Header["Skald-Publisher"] = []string{s.publisher()}
		m.Header["Skald-Publisher-Seq"] = []string{num}
	} else {
		m.Header["Skald-Event-Id"] = []string{"id-" + num}
	}
	return m
}

// turn is how many events of a journal make one turn, which gives two facts: its
// second event and its third.
const turn = 3

// observation is that of the journal's event of an ordinal, from 1.
func (s session) observation(ordinal uint64) string {
	id := "turn-" + strconv.FormatUint((ordinal-1)/turn, 10)
	switch (ordinal - 1) % turn {
	case 0:
		return `{"type":"command_queued","data":{"command_id":"` + id + `","command":{"type":"prompt","data":{"prompt":[]}},"created_at_ms":1}}`
	case 1:
		return `{"type":"command_started","data":{"command_id":"` + id + `","started_at_ms":` + clock(ordinal) + `}}`
	}
	return `{"type":"command_completed","data":{"command_id":"` + id + `","outcome":{"type":"prompt","data":{"stop_reason":"end_turn"}},"pad":"` + strings.Repeat("x", s.Pad) + `"}}`
}

// journal is a session's chain, made as far as it was asked for.
type journal struct {
	s       session
	digests []string // by ordinal
	events  []string
}

func newJournal(s session) *journal {
	return &journal{s: s, digests: []string{strings.Repeat("0", 64)}, events: []string{""}}
}

// digest returns the chain's digest at an ordinal.
func (j *journal) digest(ordinal uint64) string {
	for uint64(len(j.digests)) <= ordinal {
		n := uint64(len(j.digests))
		observation, previous := j.s.observation(n), ""
		if j.s.Format == 1 {
			previous = `,"previous_digest":"` + j.digests[n-1] + `"`
		}
		rest := fmt.Sprintf(`%s,"recorded_at_ms":%s,"observation":%s`, previous, clock(n), observation)
		sum := sha256.Sum256(fmt.Appendf(nil, "hel-relay-event-v%d\x00{\"ordinal\":%d%s}", j.s.Format, n, rest))
		d := hex.EncodeToString(sum[:])
		format := ""
		if j.s.Format == 2 {
			format = `"format":2,`
		}
		j.events = append(j.events, fmt.Sprintf(`{%s"ordinal":%d,"digest":"%s"%s}`, format, n, d, rest))
		j.digests = append(j.digests, d)
	}
	return j.digests[ordinal]
}

// page returns the message with the events from first to last.
func (j *journal) page(first, last uint64) *nats.Msg {
	j.digest(last)
	m := nats.NewMsg(j.s.subject("projection"))
	m.Data = fmt.Appendf(nil, `{"after":{"ordinal":%d,"digest":"%s"},"events":[%s]}`,
		first-1, j.digests[first-1], strings.Join(j.events[first:last+1], ","))
	return m
}

// row is a fact as any reader gets it.
type row struct {
	Seq       uint64 `json:"seq"`
	Session   string `json:"session_id"`
	Workspace string `json:"workspace_id"`
	Recorded  int64  `json:"recorded_at_ms"`
	Type      string `json:"type"`
	Data      struct {
		Message  string `json:"message"`
		Activity struct {
			N uint64 `json:"n"`
		} `json:"activity"`
		Turn struct {
			CommandID string `json:"command_id"`
		} `json:"turn"`
	} `json:"data"`
}

// label says which of its session's messages a fact came from: n of a single one,
// the ordinal of a relay event. The worker's clock gives it too, and has to agree.
func (r row) label() (uint64, error) {
	var n uint64
	var err error
	switch r.Type {
	case "error":
		num, _, _ := strings.Cut(r.Data.Message, " ")
		n, err = strconv.ParseUint(num, 10, 64)
	case "activity_changed":
		n = r.Data.Activity.N
	case "turn_started", "turn_ended":
		num, _ := strings.CutPrefix(r.Data.Turn.CommandID, "turn-")
		n, err = strconv.ParseUint(num, 10, 64)
		n = n*turn + 2
		if r.Type == "turn_ended" {
			n++
		}
	default:
		err = fmt.Errorf("type %q is none that was asked for", r.Type)
	}
	if err == nil && clock(n) != strconv.FormatInt(r.Recorded, 10) {
		err = fmt.Errorf("recorded at %d, not %s", r.Recorded, clock(n))
	}
	return n, err
}

func parseRow(b []byte) (row, error) {
	var r row
	err := json.Unmarshal(b, &r)
	return r, err
}
