package demo

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/skaldbus/skald/bus"
)

// actor is one session: what has been decided of its life, and the dice for the rest.
type actor struct {
	index int
	rng   *rand.Rand
	key   bus.Key
	task  task

	script  []Step // what is to come, in the order of time; never empty after fill
	clock   time.Duration
	turns   int // begun in the script
	calls   int
	asked   int
	opened  bool // in the script
	waiting bool // the script goes on with a prompt that is queued already

	// What was handed out, which is less than the script decides.
	begun  bool
	queued int    // the turn whose prompt is queued, -1 if none is
	active string // the command of the turn that runs, empty if none does
	asking bool   // a question is open
	broken bool   // its record names an error, which is over with the next turn
}

// effect is what a step changes of what an actor has to know when its worker dies.
type effect uint8

const (
	nothing effect = iota
	queues
	starts
	ends
	asks
	answers
	breaks
	mends
)

func newActor(index int, workspace string, rng *rand.Rand) *actor {
	t := tasks[index%len(tasks)]
	return &actor{
		index: index, rng: rng, task: t, queued: -1,
		key: bus.Key{Workspace: workspace, Session: fmt.Sprintf("%s-%04x", t.id, rng.Uint32N(1<<16))},
	}
}

func (a *actor) at() time.Duration { return a.script[0].At }

func (a *actor) take() Step {
	s := a.script[0]
	a.script = a.script[1:]
	a.begun = true
	switch s.effect {
	case queues:
		a.queued = s.turn
	case starts:
		a.queued, a.active = -1, s.Command
	case ends:
		a.active = ""
	case asks:
		a.asking = true
	case answers:
		a.asking = false
	case breaks:
		a.broken = true
	case mends:
		a.broken = false
	}
	return s
}

// fill decides what comes next if nothing is decided, from now on.
func (a *actor) fill(now time.Duration) {
	if len(a.script) > 0 {
		return
	}
	a.clock = max(a.clock, now)
	if !a.opened {
		a.open()
		return
	}
	a.turn()
}

// wait lets some time pass, in seconds.
func (a *actor) wait(least, most float64) {
	a.clock += time.Duration((least + a.rng.Float64()*(most-least)) * float64(time.Second))
}

func (a *actor) chance(percent int) bool { return a.rng.IntN(100) < percent }

func pick[T any](a *actor, from []T) T { return from[a.rng.IntN(len(from))] }

func (a *actor) add(s Step) {
	s.At, s.Worker, s.Key = a.clock, a.key.Workspace, a.key
	a.script = append(a.script, s)
}

func (a *actor) observe(command, body string, gives ...string) {
	a.affect(nothing, command, body, gives...)
}

func (a *actor) affect(e effect, command, body string, gives ...string) {
	a.add(Step{Kind: Observe, Body: body, Command: command, Gives: gives, effect: e, turn: a.turns})
}

func (a *actor) does(body string) {
	a.add(Step{Kind: Activity, Body: body, Gives: []string{bus.TypeActivityChanged}})
}

// open starts the session.
func (a *actor) open() {
	a.opened = true
	a.wait(0, 2.5)
	a.observe("", sessionOpened(fmt.Sprintf("native-%d-%s", a.index, a.key.Session)))
	harness := []string{"anvil", "quill", "ember"}[a.index%3]
	a.observe("", agentInitialized(harness, fmt.Sprintf("1.%d.0", a.index%5)), bus.TypeRuntimeResolved)
	a.add(Step{Kind: Record, Record: record{State: "running"}})
	a.turn()
}

// command returns the id of a turn's prompt.
func (a *actor) command(turn int) string { return fmt.Sprintf("%s/prompt-%d", a.key.Session, turn) }

func (a *actor) prompt(turn int) string {
	if turn < len(a.task.prompts) {
		return a.task.prompts[turn]
	}
	// Sessions begin at different places, so that not all ask for the same.
	return followUps[(turn+4*a.index)%len(followUps)]
}

// turn is one prompt from its asking to its end, and the rest behind it.
func (a *actor) turn() {
	turn := a.turns
	id := a.command(turn)
	if !a.waiting {
		a.affect(queues, id, commandQueued(id, a.prompt(turn)))
	}
	a.turns++
	a.waiting = false
	a.wait(0.2, 1)
	if a.broken {
		a.add(Step{Kind: Record, Record: record{State: "running", ClearError: true}, effect: mends})
	}
	a.affect(starts, id, commandStarted(id), bus.TypeTurnStarted)
	a.does(activity("running", "turn", "turn_started_at_ms", ""))
	a.stream("agent_thought_chunk", pick(a, thoughts))
	rounds := 1 + a.rng.IntN(3)
	// The first sessions show the beginner what else can happen.
	question := turn == 0 && a.index%4 == 0 || a.chance(18)
	for range rounds {
		a.callTool(id)
		a.stream("agent_message_chunk", pick(a, sayings))
	}
	if turn == 0 {
		a.observe("", infoUpdate(a.task.about))
	}
	if question && !a.ask(id) {
		return // the question stays open until someone comes back
	}
	if a.chance(12) {
		next := a.command(a.turns)
		a.affect(queues, next, commandQueued(next, a.prompt(a.turns)))
		a.waiting = true
	}
	a.wait(0.3, 1.5)
	a.end(id, turn)
	if !a.waiting {
		a.wait(0.2, 0.8)
		a.does(activity("idle", "idle", "idle_since_ms", ""))
		a.wait(3, 14)
	}
}

// stream says something in pieces.
func (a *actor) stream(kind, text string) {
	const piece = 12
	for len(text) > 0 {
		n := min(piece, len(text))
		a.wait(0.1, 0.6)
		a.observe("", chunk(kind, text[:n]))
		text = text[n:]
	}
}

func (a *actor) callTool(id string) {
	t := pick(a, tools)
	a.calls++
	call := fmt.Sprintf("call-%d", a.calls)
	a.wait(0.2, 0.8)
	a.observe(id, toolCall(call, t))
	if a.chance(30) {
		a.does(activity("running", "step", "step_started_at_ms", t.title))
	}
	a.wait(0.2, 0.6)
	a.observe(id, toolUpdate(call, "in_progress", ""))
	a.wait(0.5, 3)
	if t.kind == "execute" {
		a.observe(id, terminalOutput(call, t.output))
	}
	if a.chance(10) {
		a.observe(id, toolUpdate(call, "failed", "exit status 1"))
		a.add(Step{Kind: Fail, Body: pick(a, troubles), Command: id, Gives: []string{bus.TypeError}})
		return
	}
	a.observe(id, toolUpdate(call, "completed", t.output))
}

// ask asks the user and waits for the answer. It returns false if the user gives up
// the turn instead.
func (a *actor) ask(id string) bool {
	a.asked++
	ask := pick(a, questions)
	question := fmt.Sprintf("%s/question-%d", a.key.Session, a.asked)
	a.wait(0.3, 1)
	a.affect(asks, id, elicitationRequested(question, ask), bus.TypeInputRequired)
	a.does(activity("waiting_for_input", "turn", "turn_started_at_ms", ask.message))
	a.wait(4, 16)
	action := "accept"
	if a.chance(20) {
		action = "decline"
	}
	if a.chance(8) {
		a.affect(answers, id, observation("elicitations_cleared", ""), bus.TypeInputResolved)
		a.affect(ends, id, commandFailed("command_interrupted", id, "the user has stopped it"), bus.TypeError, bus.TypeTurnEnded)
		a.does(activity("idle", "idle", "idle_since_ms", ""))
		a.wait(4, 10)
		return false
	}
	a.affect(answers, id, elicitationResolved(question, action), bus.TypeInputResolved)
	a.does(activity("running", "turn", "turn_started_at_ms", ""))
	a.stream("agent_message_chunk", pick(a, sayings))
	return true
}

// end ends a turn in one of the ways that there are.
func (a *actor) end(id string, turn int) {
	tokens := 2000 + a.rng.IntN(60_000)
	roll := a.rng.IntN(100)
	if turn == 0 && a.index%4 == 1 {
		roll = 70
	}
	switch {
	case roll < 70:
		a.affect(ends, id, commandCompleted(id, "EndTurn", "", tokens), bus.TypeTurnEnded)
	case roll < 80:
		f := pick(a, failures)
		a.affect(ends, id, commandCompleted(id, f.reason, f.message, tokens), bus.TypeError, bus.TypeTurnEnded)
		if a.chance(50) {
			a.add(Step{Kind: Record, Record: record{State: "error", LastError: f.message}, Gives: []string{bus.TypeError}, effect: breaks})
		}
	case roll < 88:
		a.affect(ends, id, commandCompleted(id, "AwaitingInput", "", tokens), bus.TypeInputRequired, bus.TypeTurnEnded)
	case roll < 93:
		a.affect(ends, id, commandCompleted(id, "Cancelled", "", tokens), bus.TypeTurnEnded)
	case roll < 96:
		a.affect(ends, id, commandCompleted(id, "QuotaLimit", "the quota is used up until midnight", tokens), bus.TypeTurnEnded)
	default:
		a.affect(ends, id, commandFailed("command_rejected", id, "the harness refused the prompt"), bus.TypeError, bus.TypeTurnEnded)
	}
}

// burst is what a session streams at the moment in which its worker dies.
func (a *actor) burst(at time.Duration) []Step {
	if a.active == "" || a.asking {
		return nil
	}
	kept, clock := a.script, a.clock
	a.script, a.clock = nil, at
	for range 12 {
		a.observe("", chunk("agent_message_chunk", pick(a, sayings)))
	}
	steps := a.script
	a.script, a.clock = kept, clock
	return steps
}

// interrupt replaces what was to come: the worker has died, and the one that takes
// its place finds the session's harness gone.
func (a *actor) interrupt(at time.Duration) {
	a.script, a.clock = nil, at
	a.wait(3, 5)
	a.waiting = a.queued >= 0
	if a.waiting {
		a.turns = a.queued
	}
	if !a.begun {
		a.opened, a.turns = false, 0
		a.open()
		return
	}
	a.observe("", observation("session_restarted", ""))
	if a.asking {
		a.affect(answers, a.active, observation("elicitations_cleared", ""), bus.TypeInputResolved)
	}
	if a.active != "" {
		a.affect(ends, a.active, commandFailed("command_interrupted", a.active, "the worker was killed"), bus.TypeError, bus.TypeTurnEnded)
		a.does(activity("idle", "idle", "idle_since_ms", ""))
	}
	a.wait(1, 4)
}
