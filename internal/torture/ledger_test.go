//go:build linux

package torture_test

import (
	"crypto/sha256"
	"fmt"
	"sync"
)

// ledger is what was said and seen. Safe for concurrent use.
type ledger struct {
	mu       sync.Mutex
	sessions map[string]*account
	numbers  map[uint64][16]byte // what a number was seen to be, by anyone
	facts    map[string]uint64   // the number that a fact was seen under
	cursors  map[string]uint64   // of readers, by name
	seen     int                 // rows that readers were given
	problem  string
	losses   int // times that INGEST lost what it had acknowledged
	// anonymous are the texts of messages without an identity, and whether INGEST has
	// acknowledged them.
	anonymous map[string]bool
}

// The session that messages without an identity go to.
const (
	anonymousWorkspace = "ws.0"
	anonymousName      = "anonymous"
)

// newAnonymous returns a text that was not used yet.
func (l *ledger) newAnonymous() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := fmt.Sprint("anonymous ", len(l.anonymous))
	l.anonymous[text] = false
	return text
}

// ingestLost notes that INGEST may have lost what it acknowledged. What has no identity
// and nobody to send it again may be gone with it.
func (l *ledger) ingestLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for text := range l.anonymous {
		l.anonymous[text] = false
	}
	l.losses++
}

// hasLost reports whether JetStream was set back or lost a stream.
func (l *ledger) hasLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.losses > 0
}

func (l *ledger) storedAnonymous(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.anonymous[text] = true
}

// account is one session as its worker knows it.
type account struct {
	session
	outbox    bool   // its worker has one
	sending   uint64 // the highest message that may have gone out
	applied   uint64 // all up to it were told to be applied
	finished  bool
	dropped   bool
	forgotten bool // an operator's forget was acknowledged, or is under way
}

func newLedger() *ledger {
	return &ledger{sessions: map[string]*account{}, numbers: map[uint64][16]byte{}, facts: map[string]uint64{}, cursors: map[string]uint64{}, anonymous: map[string]bool{}}
}

func (l *ledger) add(s session, outbox bool) {
	l.sessions[s.key()] = &account{session: s, outbox: outbox}
}

// hear enters what a worker was told.
func (l *ledger) hear(line told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.sessions[line.Session]
	switch line.What {
	case sending:
		a.sending = max(a.sending, line.N)
	case applied, kept, finished:
		a.applied = max(a.applied, line.N)
		a.finished = line.What == finished
	case dropped:
		a.dropped = true
		if !a.forgotten {
			l.wrongLocked(fmt.Sprintf("session %s was told to be forgotten, and nobody forgot it", line.Session))
		}
	}
}

// see enters a row that a reader was given: a number means one thing, and a fact has
// one number.
func (l *ledger) see(who string, r row, text []byte) {
	seq, sum := r.Seq, sha256.Sum256(text)
	fact := ""
	if r.Workspace == anonymousWorkspace && r.Session == anonymousName {
		fact = r.Data.Message
	} else if n, err := r.label(); err == nil {
		fact = fmt.Sprint(r.Workspace, "/", r.Session, "#", n)
	}
	short := [16]byte(sum[:16])
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen++
	before, ok := l.numbers[seq]
	if ok && before != short {
		l.wrongLocked(fmt.Sprintf("%s: number %d means something else than before: %s", who, seq, text))
	}
	l.numbers[seq] = short
	if first, ok := l.facts[fact]; ok && first != seq {
		l.wrongLocked(fmt.Sprintf("%s: numbers %d and %d are the same fact %s: %s", who, first, seq, fact, text))
	}
	if fact != "" {
		l.facts[fact] = seq
	}
	l.cursors[who] = max(l.cursors[who], seq)
}

// at is the highest number that a reader was given.
func (l *ledger) at(r *reader) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursors[r.name]
}

// kept is how far each session has come, as far as was heard.
func (l *ledger) kept() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]uint64{}
	for key, a := range l.sessions {
		out[key] = a.applied
	}
	return out
}

func (l *ledger) rowsSeen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

func (l *ledger) wrong(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongLocked(what)
}

func (l *ledger) wrongLocked(what string) {
	if l.problem == "" {
		l.problem = what
	}
}

func (l *ledger) firstWrong() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// forget marks a session as forgotten, before it is.
func (l *ledger) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sessions[key].forgotten = true
}

// account returns one account as it stands.
func (l *ledger) account(key string) (account, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a, ok := l.sessions[key]; ok {
		return *a, true
	}
	return account{}, false
}

// snapshot returns all accounts as they stand.
func (l *ledger) snapshot() map[string]account {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]account{}
	for k, a := range l.sessions {
		out[k] = *a
	}
	return out
}
