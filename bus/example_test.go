package bus_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/skaldbus/skald/bus"
)

// Any id is one token of a subject, and no id is a wildcard.
func ExampleSubjects() {
	subjects, err := bus.NewSubjects("") // "" is the prefix skald
	if err != nil {
		log.Fatal(err)
	}
	key := bus.Key{Workspace: "acme", Session: "build v1.2 *"}
	fmt.Println(subjects.Ingest(key, bus.ClassActivity))
	fmt.Println(subjects.Event(key, bus.TypeError))
	// Output:
	// skald.in.acme.build=20v1=2E2=20=2A.activity
	// skald.ev.acme.build=20v1=2E2=20=2A.error
}

// A fact is read from its wire form, the same in EVENTS, pages and the CLI; its data
// stays as the worker sent it.
func ExampleParseEvent() {
	ev, err := bus.ParseEvent([]byte(`{"seq":42,"session_id":"s","workspace_id":"w","recorded_at_ms":1789200000000,` +
		`"stored_at_ms":1789200000003,"type":"error","data":{"message":"1.0 \u00e9","command_id":null}}`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ev.Seq, ev.Key().Session, ev.Type)
	fmt.Println(string(ev.Data))
	_, err = bus.ParseEvent([]byte(`{"seq":-1}`))
	var invalid *bus.InvalidError
	fmt.Println(errors.As(err, &invalid), invalid.Field)
	// Output:
	// 42 s error
	// {"message":"1.0 \u00e9","command_id":null}
	// true seq
}

// A worker with a journal of its own computes the digest of each event over the
// bytes of its observation, chained to the event before.
func ExampleRelayEvent_ComputeDigest() {
	var at bus.ChainPosition // the beginning
	var buf []byte
	for i, observation := range []string{`{"type":"closing"}`, `{"type":"closed"}`} {
		e := bus.RelayEvent{
			Format: bus.FormatChained, Ordinal: at.Ordinal + 1, RecordedAt: int64(1000 + i), Observation: []byte(observation),
		}
		at.Ordinal = e.Ordinal
		at.Digest, buf = e.ComputeDigest(at.Digest, buf)
		fmt.Println(at.Ordinal, at.Digest.String()[:16])
	}
	// Output:
	// 1 e71c0b0223364d9a
	// 2 137e4b825d44aa79
}

// A cursor is a number, or an epoch and a number, which also notices that numbers
// have begun anew.
func ExampleParseCursor() {
	for _, text := range []string{"17", "0198c0de:17", "-1"} {
		c, err := bus.ParseCursor("after_seq", text)
		fmt.Printf("%q %d %v\n", c.Epoch, c.Seq, err != nil)
	}
	// Output:
	// "" 17 false
	// "0198c0de" 17 false
	// "" 0 true
}
