// Package outbox keeps on disk what publishers have accepted, until it may be
// given up. It knows nothing of NATS: package publisher adds entries, waits until
// they are kept, and releases each when a materializer has committed it.
//
//	b, err := outbox.Open(dir, outbox.Options{})   // locks the directory
//	for _, s := range b.Sessions() { … }           // what an earlier process left
//	batch, err := b.Add(nil, state, entries)       // numbers them; not kept yet
//	err = batch.Wait()                             // one fsync for all who wait
//	b.Release(entries[0].Number)
//	err = b.Close()
//
// # The files
//
// One journal holds the entries of all sessions, so that one fsync keeps what many
// sessions have added meanwhile. It is a row of segments, NNN.seg; each is a row of
// frames:
//
//	"skob" | length | CRC-32C of the payload | payload: records
//
// A frame is what was written and synced in one go, so only the last one can be
// incomplete. A segment begins with a frame that says where the segment before it
// ends and repeats the state of each session. Segments go, oldest first, when
// nothing in them is needed: all released, or copied to the end, which is done when
// the journal has grown to several times of what it has to hold.
//
// The state of a session that has nothing left to send is forgotten a day after
// its last use; when it is opened again it gets a new publisher id and asks the bus
// where its chain stands.
//
// # Crashes
//
//	when                            | what is left             | what the next Open does
//	--------------------------------+--------------------------+------------------------------------------
//	before or within a write        | a frame cut off, or none | leaves the rest out, says so; nobody was
//	                                |                          | told that it was kept
//	after the write, before its     | the whole frame, perhaps | the entries are there; nobody was told so,
//	fsync or its end                |                          | and nobody was told otherwise
//	after the fsync                 | the frame                | the entries are there
//	a write or fsync failed (full   | a frame cut off or whole | it is cut off at once, or left out by the
//	disk), the process went on      | that was refused         | next segment's first frame; a crash between
//	                                |                          | the two may bring refused entries back
//	while a segment is begun        | a file without its first | removes the file
//	                                | frame                    |
//	after a copy, before the old    | entries twice            | the number says that they are the same
//	segment has gone                |                          |
//	after Release, before it is     | the entry                | the entry is there again: it is sent or asked
//	written                         |                          | about once more, and the bus drops it
//	a bit flips in the last frame   | a frame that is wrong    | like one cut off: the two can not be told
//	                                |                          | apart; Open says how many bytes were left out
//	a bit flips elsewhere           | a wrong frame, good ones | ErrCorrupt with file and offset: entries are
//	                                | behind it                | missing that were kept, so nothing is done
//
// A crash of the machine leaves what a crash of the process leaves, as far as the
// disk keeps what it has synced.
//
// # What stands where
//
//   - outbox.go: Box, adding, releasing.
//   - write.go: batches, the one who writes for all, segments begun and given up.
//   - recover.go: what Open makes of the files.
//   - record.go, frame.go: bytes.
package outbox
