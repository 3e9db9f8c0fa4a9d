package publisher_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/publisher"
)

// Where the server's payload limit is above the 32 MiB that JetStream stores, what no fact
// can be made of is refused at the call. One message of that size was stored, and stopped
// the materializer for good. What is taken becomes a fact.
func TestLarge_JetStreamStoresLess(t *testing.T) {
	t.Parallel()
	w := newServer(t, natsd.Options{SyncInterval: time.Minute, MaxPayload: 64 << 20})
	w.create(bus.StreamOptions{})
	w.startNode()
	s := w.publisher(publisher.Options{}).open(key("s"))
	ctx := within(t, skaldtest.Timeout)
	_, err := s.Error(ctx, strings.Repeat("x", bus.MaxRecord-bus.PayloadReserve), "")
	require.ErrorIs(t, err, publisher.ErrTooLarge)
	if testing.Short() {
		return // under the race detector 32 MiB take a minute on their way
	}
	const most = bus.MaxRecord - bus.PayloadReserve - 1024 // and the headers
	r, err := s.Error(ctx, strings.Repeat("x", most), "")
	require.NoError(t, err)
	materialized(t, r)
	require.Len(t, w.ids(key("s"))[0], most)
	materialized(t, observe(t, s, "small"))
}
