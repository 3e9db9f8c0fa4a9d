// Package skaldtest holds what tests of several packages need: a server of their
// own, connections, streams, messages, and built binaries. Each helper fails the
// test instead of returning an error and cleans up after itself.
//
// Tests share nothing but the binaries, so they may run in parallel. Wait with
// [Eventually], never by sleeping.
package skaldtest
