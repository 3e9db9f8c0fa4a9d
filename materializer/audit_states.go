package materializer

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// states compares the sessions' states and the counters with those that INGEST's
// messages have led to on the temporary store, as long as the store stays where it is.
func (p *reprojection) states(ctx context.Context, at store.Position) error {
	rest := func() (bool, error) {
		now, err := p.a.o.Reader.Position(ctx)
		return now.IngestSeq == at.IngestSeq, err
	}
	moved := func() error {
		return p.a.unchecked("the sessions' states were not compared with INGEST to the end: the store reads on meanwhile; run verify while nothing is published, or serve is stopped")
	}
	n := uint64(0)
	for after := int64(0); ; {
		list, err := p.a.o.Reader.AuditSessions(ctx, after, auditSessionsStep)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			break
		}
		var wrong []Finding
		for i := range list {
			n++
			p.a.progress("comparing states", n, p.a.sum.Sessions)
			parts, err := p.compare(ctx, &list[i])
			if err != nil {
				return err
			}
			if parts != "" {
				wrong = append(wrong, Finding{Kind: FoundState, Key: list[i].Key, Detail: "not what its messages give: " + parts})
			}
		}
		if same, err := rest(); err != nil || !same {
			return firstError(err, moved)
		}
		for _, f := range wrong {
			if err := p.a.found(f); err != nil {
				return err
			}
		}
		after = list[len(list)-1].PK
	}
	is, err := p.a.o.Reader.Status(ctx)
	if err != nil {
		return fmt.Errorf("read the store: %w", err)
	}
	ought, err := p.tmp.Reader().Status(ctx)
	if err != nil {
		return fmt.Errorf("read the temporary store: %w", err)
	}
	if is.IngestSeq != at.IngestSeq {
		return moved()
	}
	for _, c := range []struct {
		what      string
		is, ought int64
	}{
		{"applied", is.Applied, ought.Applied}, {"duplicates", is.Duplicates, ought.Duplicates}, {"dropped", is.Dropped, ought.Dropped},
		{"unprojected", is.Unprojected, ought.Unprojected}, {"sessions", is.Sessions, ought.Sessions}, {"held", is.Held, ought.Held},
	} {
		if c.is != c.ought {
			if err := p.a.found(Finding{Kind: FoundCounter, Detail: fmt.Sprintf("%s: status says %d, INGEST's messages give %d", c.what, c.is, c.ought)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func firstError(err error, or func() error) error {
	if err != nil {
		return err
	}
	return or()
}

// compare names the parts of a session's state that are not what its messages give.
func (p *reprojection) compare(ctx context.Context, s *store.AuditSession) (string, error) {
	if s.StateErr != nil {
		return "", nil // found already
	}
	is, err := p.a.o.Reader.LoadState(ctx, s.Key)
	if err != nil {
		return "", err
	}
	ought, err := p.tmp.Reader().LoadState(ctx, s.Key)
	if err != nil {
		return "", err
	}
	if is.Forgotten || ought.Forgotten {
		if is.Forgotten != ought.Forgotten {
			return fmt.Sprintf("it is forgotten: %v, instead of %v", is.Forgotten, ought.Forgotten), nil
		}
		return "", nil
	}
	var parts []string
	note := func(name string, differs bool) {
		if differs {
			parts = append(parts, name)
		}
	}
	note("existence", is.Exists != ought.Exists)
	// A session that only EVENTS knows has no state.
	if a, b := is.Chain.Position, ought.Chain.Position; a != b {
		note(fmt.Sprintf("chain (at ordinal %d instead of %d)", a.Ordinal, b.Ordinal), true)
	} else {
		note("chain", !bytes.Equal(is.AppendChain(nil), ought.AppendChain(nil)))
	}
	note("counts", !bytes.Equal(is.AppendPublishers(nil), ought.AppendPublishers(nil)))
	note("held pages", !sameHeld(is.Held, ought.Held))
	v1, err := is.AppendView(nil)
	if err != nil {
		return "", fmt.Errorf("encode session %q: %w", s.Key.Session, err)
	}
	v2, err := ought.AppendView(nil)
	if err != nil {
		return "", fmt.Errorf("encode session %q: %w", s.Key.Session, err)
	}
	note("view", !bytes.Equal(v1, v2))
	return strings.Join(parts, ", "), nil
}

func sameHeld(a, b []projection.HeldPage) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}
