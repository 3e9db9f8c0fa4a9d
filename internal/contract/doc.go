// Package contract holds the facts that every build of Skald must agree with, as
// data for tests:
//
//   - semantics.md: the rules of events, names, JSON shapes, projection, digests;
//   - acceptance.json: cases that a running service must pass, from outside;
//   - digest-vectors.json: relay events with their digests.
//
// They are copies of what is agreed on outside of this repository, kept byte for
// byte; a test compares them where the originals are at hand. The same test
// compares ../conformance, the program that runs the acceptance cases against a
// built binary. It is a module of its own, since it must not share code with what
// it judges, and finds its cases in this folder:
//
//	cd internal/conformance && go run . -bin /path/to/skald
package contract
