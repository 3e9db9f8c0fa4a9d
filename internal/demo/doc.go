// Package demo plays the life of a small fleet of workers on a real bus, so that
// someone who has never seen Skald sees what it does.
//
// # The story
//
// A [Story] is what happens: workspaces with one worker each, sessions with prompts,
// streaming updates, tool calls, questions and answers, failures, idle and busy
// times, and now and then a worker that is killed in the middle of its work. It is
// a pure function of a seed and a number of sessions: the same ones give the same
// steps in the same order, for ever. Times within the bodies are put in when a step
// is played. Each step says which facts it gives, so that the facts that come can be
// compared with those that should.
//
// # The fleet
//
// [Run] plays a story through packages publisher and consumer, as real workers and
// a real reader would: one connection and one publisher a worker, and one reader of
// EVENTS that hands out each fact as it gets its number. A worker that the story
// kills loses its connection at once, with whatever was under way; the one that
// takes its place asks the bus where each session stands and sends the rest of its
// journal again. Nothing is simulated there.
//
// # What stands where
//
//   - story.go: the story's clock, and when workers are killed.
//   - actor.go: one session's life; observe.go: the JSON of what happens in it.
//   - script.go: the words.
//   - fleet.go, worker.go: playing it; reader.go: what comes of it.
//   - line.go: a fact as one line for people.
package demo
