// Package live makes live streams of facts: history from the table, then what is
// committed, without a gap or a repetition, in the order of the numbers.
//
// A [Hub] is the one place from which a process feeds its live readers. The
// materializer tells it of each commit; the hub reads the new rows once, whoever
// waits for them, frames each of them once, and hands it to the readers whose filter
// it passes. A reader that nothing happens for costs no query and is not woken.
//
//	materializer ── Committed ─→ Hub ── one page a commit ── table
//	                              │                            │
//	                              ├─ queue ─→ Stream           │
//	                              └─ queue ─→ Stream ←─ pages ─┘
//
// A [Stream] is one reader's place. It pages the table until it has reached the end,
// then joins the hub, and pages on up to the number at which it joined: everything
// above that comes through its queue. A number that came from a page is not taken
// again from the queue.
//
// The hub waits for nobody. A reader whose queue is full is taken off the hub and its
// queue is given up; it finds its next rows in the table, at its own pace, and joins
// again when it has caught up. So a slow reader loses nothing, and holds no more
// memory than a queue and a page.
//
// Rows come from the table, not from the materializer's hands, so that live readers
// see what pages show and nothing else.
//
// Events are framed as server-sent events ([AppendFrame]): id is the number, event the
// type, data the wire form. Nothing in a fact can end its frame or begin another.
package live
