// Package registry lists the stores of a bus with how far each has come: what the trim
// of INGEST must not pass, and up to which number EVENTS must reach before anyone
// appends. cmd/skald shows it as `skald replicas`.
//
// The entries are values of the key-value bucket SKALD_STATE, one under each store's id,
// beside the object store of the same name. A value is one message, so that a reader
// sees the old entry or the new one; an object is replaced in several steps, and whoever
// reads between them finds parts that are gone. The server stamps each value with its
// own clock, and takes one only in the place of the revision that its writer has seen:
// by that two stores with one id notice each other.
package registry
