package target

import (
	"context"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

// FollowImpatiently is Follow of a gateway whose streams have to begin within so long.
func FollowImpatiently(ctx context.Context, t Target, begins time.Duration, p api.Params, each func(raw []byte, at bus.Cursor) error, trouble func(error)) (bus.Cursor, error) {
	s := newStream(t.(*gateway), p, each, trouble)
	s.begins = begins
	err := s.run(ctx)
	return s.at, err
}
