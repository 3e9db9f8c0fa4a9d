package projection_test

import (
	"fmt"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
)

// The same state and message give the same facts, wherever and whenever: nothing but
// the two decides.
func ExampleState_Apply() {
	var session projection.State
	for i, text := range []string{`{"activity":{"state":"running"}}`, `{"activity": {"state":"running"}}`, `{"activity":7}`} {
		r := session.Apply(projection.Message{
			Class: bus.ClassActivity, Seq: uint64(i + 1), Time: 1_789_200_000_000_000_000,
			Identity: bus.Identity{Publisher: "worker-1", Count: uint64(i + 1)}, Body: []byte(text),
		}, nil)
		fmt.Print(r.Outcome)
		for _, f := range r.Facts {
			fmt.Printf(" %s %s", f.Type, f.Data)
		}
		for _, e := range r.Rejects {
			fmt.Printf(" %s: %s", e.Reason, e.Detail)
		}
		fmt.Println()
	}
	// Output:
	// applied activity_changed {"activity":{"state":"running"}}
	// applied
	// rejected bad_body: activity: must be an object
}
