package materializer

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// maxAuditIDs is how many rows without a known id are named.
const maxAuditIDs = 100

// ids compares the event ids with the rows: a message that comes twice would be taken
// twice, or one that comes for the first time not at all. Ids near the end of the horizon
// are left out, since a sweep may have them next.
func (a *auditor) ids(ctx context.Context) error {
	a.progress("comparing event ids", 0, 1)
	since := int64(math.MaxInt64) // it is not known how long they are
	if a.ingest != nil {
		if ms, err := strconv.ParseInt(a.ingest.Config.Metadata[bus.MetaIDHorizon], 10, 64); err == nil {
			since = a.start.HighestTime - ms*1e6/2
		}
	}
	missing, unread, err := a.o.Reader.AuditIDs(ctx, since, maxAuditIDs)
	if err != nil {
		return err
	}
	for _, m := range missing {
		if err := a.found(Finding{Kind: FoundID, Seq: m.Seq, Key: m.Key, Detail: fmt.Sprintf("its event id %q is not known", m.EventID)}); err != nil {
			return err
		}
	}
	if unread > 0 {
		return a.found(Finding{Kind: FoundID, Detail: fmt.Sprintf("%d event ids are known of messages that were not read", unread)})
	}
	return nil
}
