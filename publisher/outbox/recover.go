package outbox

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/skaldbus/skald/bus"
)

const (
	suffix   = ".seg"
	idDigits = 12 // so that names sort
)

// loaded is a segment's file.
type loaded struct {
	id   uint64
	path string
	data []byte
	head head
}

func (l *loaded) corrupt(at int, why string) error {
	return &CorruptError{File: l.path, Offset: int64(at), Why: why}
}

// recover reads what is in the directory.
func (b *Box) recover() error {
	files, err := b.load()
	if err != nil {
		return err
	}
	sessions := map[bus.Key]*Session{}
	entries := map[uint64]found{}
	for i := range files {
		f := &files[i]
		limit := len(f.data)
		if i < len(files)-1 {
			if next := files[i+1].head.prevEnd; next > uint64(limit) {
				return f.corrupt(limit, fmt.Sprintf("it ends here, and had %d bytes", next))
			} else {
				limit = int(next)
			}
		}
		seg := &segment{id: f.id}
		end, err := b.replay(f, limit, seg, sessions, entries)
		if err != nil {
			return err
		}
		if end < limit && i < len(files)-1 {
			return f.corrupt(end, "the bytes from here on have changed")
		}
		if rest := f.data[end:limit]; len(rest) > 0 {
			if anyFrame(rest[1:]) {
				return f.corrupt(end, "the bytes from here on have changed")
			}
			b.o.Logger.Warn("outbox: the last write is not whole and was left out",
				slog.String("file", f.path), slog.Int("at", end), slog.Int("bytes", len(rest)))
		}
		seg.size = int64(end)
		b.segments = append(b.segments, seg)
	}
	for _, e := range entries {
		s := sessions[e.key]
		s.Entries = append(s.Entries, e.Entry)
		known := b.states[e.key]
		at := e.at
		at.of = known
		b.keptLocked(e.Number, at)
	}
	b.found = sorted(sessions)
	return nil
}

// found is an entry in the files.
type found struct {
	Entry
	key bus.Key
	at  place
}

// replay takes in the frames of a file up to limit, and returns where they end.
func (b *Box) replay(f *loaded, limit int, seg *segment, sessions map[bus.Key]*Session, entries map[uint64]found) (end int, err error) {
	for end < limit {
		payload, size, ok := readFrame(f.data[end:limit])
		if !ok {
			break
		}
		stray := false
		err := visit(payload, visitor{
			head: func(h head) { b.number = max(b.number, h.number) },
			state: func(s State) {
				if sessions[s.Key] == nil {
					sessions[s.Key] = &Session{}
				}
				sessions[s.Key].State = s
			},
			entry: func(e found, record []byte) {
				s := sessions[e.key]
				if s == nil {
					stray = true
					return
				}
				s.take(&e.Entry)
				e.at = place{in: seg, size: int64(len(record))}
				entries[e.Number] = e
				b.number = max(b.number, e.Number)
			},
			release: func(n uint64) { delete(entries, n) },
		})
		if err == nil && stray {
			err = errors.New("an entry is of no session")
		}
		if err != nil {
			return end, f.corrupt(end, err.Error())
		}
		end += size
	}
	for k, s := range sessions {
		if b.states[k] == nil {
			b.states[k] = &session{}
		}
		b.states[k].State = s.State
	}
	return end, nil
}

// take moves the state to where it stands with the entry.
func (s *State) take(e *Entry) {
	s.UsedAt = max(s.UsedAt, e.AcceptedAt)
	switch e.Kind {
	case Counted:
		s.Count = max(s.Count, e.Count)
	case Chained:
		if !s.Placed || e.Last.Ordinal > s.End.Ordinal {
			s.Placed, s.End = true, e.Last
		}
	}
}

// load reads the segments in their order, each with its head.
func (b *Box) load() ([]loaded, error) {
	names, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, err
	}
	var files []loaded
	for _, n := range names {
		id, ok := strings.CutSuffix(n.Name(), suffix)
		number, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil {
			continue // the lock, or somebody's own
		}
		l := loaded{id: number, path: filepath.Join(b.dir, n.Name())}
		if l.data, err = os.ReadFile(l.path); err != nil {
			return nil, err
		}
		files = append(files, l)
	}
	slices.SortFunc(files, func(a, b loaded) int { return int(int64(a.id) - int64(b.id)) })
	for i := range files {
		f := &files[i]
		if i > 0 && f.id != files[i-1].id+1 {
			return nil, &CorruptError{File: b.path(files[i-1].id + 1), Why: "the file is missing"}
		}
		ok := false
		if payload, _, whole := readFrame(f.data); whole {
			if err := visit(payload, visitor{head: func(h head) { f.head, ok = h, true }}); err != nil {
				return nil, f.corrupt(0, err.Error())
			}
		}
		switch {
		case ok:
		case i < len(files)-1 || anyFrame(f.data):
			return nil, f.corrupt(0, "its first frame has changed")
		default:
			b.o.Logger.Warn("outbox: a segment was begun and not finished", slog.String("file", f.path), slog.Int("bytes", len(f.data)))
			if err := errors.Join(os.Remove(f.path), syncDir(b.dir)); err != nil {
				return nil, err
			}
			return files[:i], nil
		}
	}
	return files, nil
}

// sorted returns sessions by key, their entries by number.
func sorted(m map[bus.Key]*Session) []Session {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b bus.Key) int {
		if c := strings.Compare(a.Workspace, b.Workspace); c != 0 {
			return c
		}
		return strings.Compare(a.Session, b.Session)
	})
	out := make([]Session, 0, len(m))
	for _, k := range keys {
		s := *m[k]
		slices.SortFunc(s.Entries, func(a, b Entry) int { return int(int64(a.Number) - int64(b.Number)) })
		out = append(out, s)
	}
	return out
}
