package demo

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/skaldbus/skald/bus"
)

// MaxSessions bounds a story's sessions: more would not be a small fleet.
const MaxSessions = 1000

// Kind is what a step is to the publisher.
type Kind uint8

// Kinds of steps.
const (
	Observe  Kind = iota // an observation of the session's chain
	Activity             // what the session does now
	Fail                 // an error outside the chain
	Record               // the session's record
	Kill                 // the worker dies, and another takes its place
)

// Step is one thing that happens.
type Step struct {
	At      time.Duration // on the story's own clock, from its beginning
	Worker  string        // who does it: the workspace's id
	Key     bus.Key       // in which session; empty for Kill
	Kind    Kind
	Body    string   // JSON with nowMark for the time; Fail: the message
	Command string   // the command that it belongs to, if any
	Record  record   // of kind Record
	Gives   []string // the types of the facts that come of it, in order

	effect effect
	turn   int // whose prompt is queued
}

// record is a session's record: an empty member leaves what is there.
type record struct {
	Title, State, LastError string
	ClearError              bool
}

// Session is one of the story's sessions.
type Session struct {
	Key  bus.Key
	Task string // what it is about
}

// Story is an endless sequence of steps, in the order of its clock. Not safe for
// concurrent use.
type Story struct {
	clock  time.Duration
	actors []*actor // by index, as they were made
	due    queue
	kills  *rand.Rand
	nextAt time.Duration // when the next worker is killed
	ready  []Step        // steps of a kill that are to be handed out first
	spaces []string
}

// firstKill is early enough that whoever watches for a minute sees one.
const firstKill = 20 * time.Second

// NewStory returns the story of a seed with so many sessions, 1 to MaxSessions.
func NewStory(seed uint64, sessions int) (*Story, error) {
	if err := checkSessions(sessions); err != nil {
		return nil, err
	}
	s := &Story{kills: rand.New(rand.NewPCG(seed, 1)), nextAt: firstKill}
	s.spaces = workspaces[:max(1, min(len(workspaces), sessions/3))]
	for i := range sessions {
		rng := rand.New(rand.NewPCG(seed, uint64(i)+2))
		space := i % len(s.spaces)
		s.actors = append(s.actors, newActor(i, s.spaces[space], rng))
	}
	for _, a := range s.actors {
		a.fill(0)
		heap.Push(&s.due, a)
	}
	return s, nil
}

func checkSessions(n int) error {
	if n < 1 || n > MaxSessions {
		return &bus.InvalidError{Field: "sessions", Rule: fmt.Sprintf("must be from 1 to %d, not %d", MaxSessions, n)}
	}
	return nil
}

// Sessions returns the story's sessions.
func (s *Story) Sessions() []Session {
	out := make([]Session, len(s.actors))
	for i, a := range s.actors {
		out[i] = Session{Key: a.key, Task: a.task.about}
	}
	return out
}

// Prompt returns what is asked with a command of the story, "" if it has none of
// that id.
func (s *Story) Prompt(commandID string) string {
	session, turn, ok := strings.Cut(commandID, "/prompt-")
	n, err := strconv.Atoi(turn)
	if !ok || err != nil || n < 0 {
		return ""
	}
	for _, a := range s.actors {
		if a.key.Session == session {
			return a.prompt(n)
		}
	}
	return ""
}

// Workers returns the ids of the workers, which are those of their workspaces.
func (s *Story) Workers() []string { return s.spaces }

// Next returns the next step.
func (s *Story) Next() Step {
	if len(s.ready) == 0 && s.due[0].at() >= s.nextAt {
		s.kill()
	}
	var step Step
	if len(s.ready) > 0 {
		step, s.ready = s.ready[0], s.ready[1:]
	} else {
		a := s.due[0]
		step = a.take()
		a.fill(step.At)
		heap.Fix(&s.due, 0)
	}
	s.clock = step.At
	return step
}

// kill ends a worker in the middle of what its sessions stream, and has them begin
// again.
func (s *Story) kill() {
	at := s.nextAt
	s.nextAt += time.Duration(50+s.kills.IntN(40)) * time.Second
	worker := s.spaces[s.kills.IntN(len(s.spaces))]
	for _, a := range s.actors {
		if a.key.Workspace == worker {
			s.ready = append(s.ready, a.burst(at)...)
		}
	}
	s.ready = append(s.ready, Step{At: at, Worker: worker, Kind: Kill})
	for _, a := range s.actors {
		if a.key.Workspace == worker {
			a.interrupt(at)
		}
	}
	heap.Init(&s.due)
}

// pace returns how many steps a second the story of a seed has, on its own clock.
func pace(seed uint64, sessions int) (float64, error) {
	s, err := NewStory(seed, sessions)
	if err != nil {
		return 0, err
	}
	const sample = 4000
	var last Step
	for range sample {
		last = s.Next()
	}
	return sample / last.At.Seconds(), nil
}

// queue holds the actors by the time of their next step.
type queue []*actor

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if a, b := q[i].at(), q[j].at(); a != b {
		return a < b
	}
	return q[i].index < q[j].index // or the order would be the heap's
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(*actor)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
