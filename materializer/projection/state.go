package projection

// State is what Skald remembers of one session. The zero value is a session that
// nothing is known of. [State.Apply] changes it in place; it is not safe for
// concurrent use.
//
// A store keeps Exists, Forgotten and the held pages in columns and rows of their
// own, and the rest in the three parts that [State.AppendChain],
// [State.AppendPublishers] and [State.AppendView] encode and [Decode] reads.
type State struct {
	// Exists is true once a message of the session was applied or held. A session
	// whose messages were all rejected has counts but does not exist.
	Exists bool
	// Forgotten is true for a tombstone, which holds nothing else.
	Forgotten bool
	// LastActivityAt is the highest recorded time of the session, ms; nil if none.
	LastActivityAt *int64

	Chain      Chain
	Publishers Publishers
	View       View
	Held       []HeldPage

	// Changed says which parts differ from what the caller has stored. Apply adds
	// to it, the caller clears it.
	Changed Part
}

// Part is a set of parts of a state.
type Part uint8

// The parts.
const (
	PartExists     Part = 1 << iota // Exists or Forgotten
	PartChain                       // Chain, with LastActivityAt
	PartPublishers                  // Publishers, with LastActivityAt
	PartView                        // View
	PartHeld                        // Held: rows of their own, as Result.Hold and Release say

	PartAll = PartExists | PartChain | PartPublishers | PartView | PartHeld
)

// View is the part of a state that the session's view shows and that later
// events are compared with. Every string whose comment says token or object is
// JSON text as the worker sent it, less white space between tokens, and empty if
// there is none.
type View struct {
	Title          string        `json:"title,omitempty"`           // the record's, a string token
	ProjectedTitle string        `json:"projected_title,omitempty"` // from the chain, a string token
	State          string        `json:"state,omitempty"`           // the record's, a string token
	LastError      string        `json:"last_error,omitempty"`      // the record's, a string token
	Execution      Execution     `json:"execution,omitzero"`
	ActiveTurn     *Turn         `json:"active_turn,omitempty"`       // nil if none
	LastOutcome    string        `json:"last_turn_outcome,omitempty"` // an object
	Elicitations   []Elicitation `json:"elicitations,omitempty"`      // open questions, oldest first
	Queue          []Queued      `json:"queue,omitempty"`             // what is queued, oldest first
	Started        []ID          `json:"started,omitempty"`           // prompts that started and did not end, oldest first
	Activity       string        `json:"activity,omitempty"`          // an object
	Runtime        string        `json:"runtime,omitempty"`           // the newest receipt, an object
}

// Execution is what the session is doing, as far as the chain tells.
type Execution struct {
	Kind      string `json:"kind,omitempty"`       // ExecutionIdle…, "" if nothing is known
	StartedAt int64  `json:"started_at,omitempty"` // ms, for ExecutionRunning
}

// Kinds of execution.
const (
	ExecutionIdle    = "idle"
	ExecutionRunning = "running"
	ExecutionClosing = "closing"
	ExecutionClosed  = "closed"
)

// Queued is a prompt or a setting that was queued and has not started.
type Queued struct {
	CommandID ID     `json:"command_id"`
	Kind      string `json:"kind"`      // KindPrompt or KindSetConfig
	Accepted  uint64 `json:"accepted"`  // ordinal of the event that queued it
	QueuedAt  int64  `json:"queued_at"` // ms
}

// Kinds of commands that are queued.
const (
	KindPrompt    = "prompt"
	KindSetConfig = "set_config"
)

// Elicitation is a question to the user that is open.
type Elicitation struct {
	ID      ID     `json:"id"`
	Request string `json:"request"` // an object
}

// exists notes that the session exists.
func (s *State) exists() {
	if !s.Exists {
		s.Exists = true
		s.Changed |= PartExists
	}
}

// touch notes a recorded time, ms. part is the one that the caller's message
// changes anyway: two parts hold the time, so that neither is written for it alone.
func (s *State) touch(at int64, part Part) {
	s.Changed |= part
	if s.LastActivityAt == nil || *s.LastActivityAt < at {
		// A new variable: what the caller has taken of the state must not change.
		latest := at
		s.LastActivityAt = &latest
	}
}
