package materializer

import (
	"context"
	"fmt"

	"github.com/skaldbus/skald/materializer/store"
)

// auditSessionsStep is how many sessions are looked at in one snapshot.
const auditSessionsStep = 200

// miscounted says what a session's record counts that is not there.
func miscounted(s *store.AuditSession) (wrong []string) {
	first, last := s.HasFirst, s.HasLast
	if s.Forgotten {
		first, last = 0, 0
	}
	if s.First != first || s.Last != last || s.Rows != s.HasRows {
		wrong = append(wrong, fmt.Sprintf("it counts %d rows from %d to %d, there are %d from %d to %d", s.Rows, s.First, s.Last, s.HasRows, first, last))
	}
	if s.HeldPages != s.HasHeldPages {
		wrong = append(wrong, fmt.Sprintf("it counts %d held pages, there are %d", s.HeldPages, s.HasHeldPages))
	}
	if s.Present && s.Forgotten {
		wrong = append(wrong, "it is shown, though it was forgotten")
	}
	if s.Forgotten && s.HasRows > 0 && !s.Removing {
		wrong = append(wrong, fmt.Sprintf("it was forgotten, and nothing removes its %d rows", s.HasRows))
	}
	if !s.Forgotten && (s.Removing || s.HasRows > 0 && !s.Present) {
		wrong = append(wrong, fmt.Sprintf("its %d rows are hidden, though it was not forgotten", s.HasRows))
	}
	return wrong
}

// miscountedStatus says what status counts that is not there.
func miscountedStatus(c *store.AuditCounts) (wrong []string) {
	for _, n := range []struct {
		what       string
		says, have int64
	}{
		{"sessions", c.Sessions, c.HasSessions}, {"held pages", c.Held, c.HasHeld},
		{"rejects", c.Rejects, c.HasRejects}, {"bytes of rejects", c.RejectBytes, c.HasRejectBytes},
	} {
		if n.says != n.have {
			wrong = append(wrong, fmt.Sprintf("%s: status says %d, there are %d", n.what, n.says, n.have))
		}
	}
	return wrong
}

// miscounts returns how many counts there are that [store.Store.Rewind] would set right.
func miscounts(ctx context.Context, r *store.Reader) (int, error) {
	c, err := r.AuditCounts(ctx)
	if err != nil {
		return 0, err
	}
	n := len(miscountedStatus(&c))
	for after := int64(0); ; {
		list, err := r.AuditSessions(ctx, after, auditSessionsStep)
		if err != nil || len(list) == 0 {
			return n, err
		}
		for i := range list {
			n += len(miscounted(&list[i]))
		}
		after = list[len(list)-1].PK
	}
}
