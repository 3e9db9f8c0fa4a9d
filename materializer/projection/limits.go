package projection

// Bounds of a session's state. They decide what becomes of messages, so they are
// part of the contract: every materializer must have the same.
const (
	// MaxPublishers is how many publishers' counts a session keeps, those seen last.
	MaxPublishers = 64
	// MaxCountHashes is how many of a publisher's messages, those with the highest
	// counts, are remembered by hash, so that another body under a known count is a
	// conflict and not a duplicate.
	MaxCountHashes = 64
	// MaxMissingRanges is how many ranges of counts that never came a publisher may
	// leave open; a message that would need one more is ahead.
	MaxMissingRanges = 64
	// MaxChainEnds is at how many ends of applied pages a digest stays known.
	MaxChainEnds = 64
	// MaxHeldPages is how many pages a session holds until a gap fills.
	MaxHeldPages = 64
	// MaxHeldBytes bounds the compact bodies of a session's held pages, in sum.
	MaxHeldBytes = 16 << 20
	// MaxObservationID is the longest id inside an observation: the bytes of its
	// JSON token, quotes included. An id goes into facts that a later message
	// causes, so it has to leave room for that message's own parts.
	MaxObservationID = 4096
	// MaxElicitations is how many questions may be open at once.
	MaxElicitations = 4096
	// MaxElicitationBytes bounds the compact requests of open questions, in sum.
	MaxElicitationBytes = 16 << 20
	// MaxQueued is how many prompts and settings may be queued at once.
	MaxQueued = 4096
	// MaxStarted is how many started prompts without an end are remembered. No
	// fact depends on them, so beyond it the oldest is forgotten, not the newest
	// refused.
	MaxStarted = 4096
	// MaxPromptTitle is the longest title made of a prompt, in code points.
	MaxPromptTitle = 64
)
