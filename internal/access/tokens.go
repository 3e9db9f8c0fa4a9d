package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// lookEvery is how often the file is looked at.
	lookEvery = time.Second
	// maxFile bounds the file, in bytes.
	maxFile = 4 << 20
)

// Grant is what a token allows.
type Grant struct {
	Name       string
	Workspaces []string // sorted, none twice; nil for all

	revoked chan struct{} // closed when the grant holds no more; nil if it always does
}

// Revoked is closed when the grant holds no more.
func (g *Grant) Revoked() <-chan struct{} { return g.revoked }

// All reports whether the grant is for all workspaces.
func (g *Grant) All() bool { return g.Workspaces == nil }

type entry struct {
	sum   [sha256.Size]byte
	grant *Grant
}

// Tokens are those of a file. It is safe for concurrent use.
type Tokens struct {
	path  string
	log   *slog.Logger
	check chan struct{} // holds one token

	mu      sync.RWMutex
	text    []byte
	entries []entry
	problem error
}

// Open reads the file of tokens. The error is ErrFile, with the line. A nil logger
// discards.
func Open(path string, log *slog.Logger) (*Tokens, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	t := &Tokens{path: path, log: log, check: make(chan struct{}, 1)}
	if _, err := t.load(); err != nil {
		return nil, err
	}
	return t, nil
}

// Find returns what the token allows, nil if it is not known. It takes as long for any
// token of a length.
func (t *Tokens) Find(token string) *Grant {
	if len(token) == 0 || len(token) > maxToken {
		return nil
	}
	sum := sha256.Sum256([]byte(token))
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found *Grant
	for i := range t.entries {
		if subtle.ConstantTimeCompare(t.entries[i].sum[:], sum[:]) == 1 {
			found = t.entries[i].grant
		}
	}
	return found
}

// Problem returns why the file as it is now is not in force, nil if it is.
func (t *Tokens) Problem() error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.problem
}

// Check has Run look at the file now.
func (t *Tokens) Check() {
	select {
	case t.check <- struct{}{}:
	default:
	}
}

// Run puts changes of the file in force until ctx ends, within about a second, and
// returns nil.
func (t *Tokens) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-t.check:
		}
		was := t.Problem()
		changed, err := t.load()
		switch {
		case err != nil && (was == nil || was.Error() != err.Error()):
			t.log.ErrorContext(ctx, "tokens can not be read, those from before stay in force", slog.Any("err", err))
		case err == nil && (changed || was != nil):
			t.log.InfoContext(ctx, "tokens read anew")
		}
	}
}

// load reads the file and puts it in force, if it is right.
func (t *Tokens) load() (changed bool, err error) {
	text, err := readFile(t.path)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && bytes.Equal(text, t.text) && t.problem == nil && t.text != nil {
		return false, nil
	}
	var entries []entry
	if err == nil {
		entries, err = parse(text)
	}
	if err != nil {
		t.problem = fmt.Errorf("%w: %s: %w", ErrFile, t.path, err)
		return false, t.problem
	}
	for _, old := range t.entries {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.sum == old.sum })
		if i >= 0 && slices.Equal(entries[i].grant.Workspaces, old.grant.Workspaces) && entries[i].grant.All() == old.grant.All() {
			entries[i].grant = old.grant // the same token with the same scope
			continue
		}
		close(old.grant.revoked)
	}
	t.text, t.entries, t.problem = append([]byte{}, text...), entries, nil
	return true, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	return text, err
}
