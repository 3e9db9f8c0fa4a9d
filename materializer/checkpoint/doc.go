// Package checkpoint keeps stores without their events in the object store SKALD_STATE,
// so that INGEST can be trimmed and a new or lost store can come back: the rows are in
// EVENTS, the state is in the newest checkpoint, and INGEST has what came after.
//
// # What lies there
//
//	checkpoint/<position>-<random>/state.0001 …   a snapshot of the store, compressed, in parts
//	checkpoint/<position>-<random>/ids.0001 …     the event ids since the checkpoint before
//	checkpoint/<position>-<random>/manifest       names all parts it needs, and their checksums
//
// Event ids are most of what a store weighs and change least, so each checkpoint adds
// those of the messages since the one before and names the older parts again, until all
// of a part have passed the horizon. A manifest is complete by itself.
//
// A checkpoint counts only with its manifest, and that is written when all it names has
// been read back. So a crash leaves parts that nobody names; [Bucket.Retain] removes
// them, and what belongs to no checkpoint that is kept, after a while. Objects are small,
// so that no transfer takes long and a lost one is not waited for.
//
// Everything is checked when it is read: each part, each whole, the manifest itself.
// What does not match is [ErrDamaged], and the next older checkpoint has to do.
package checkpoint
