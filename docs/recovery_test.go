package docs_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer"
)

// The operator's page names the messages that serve and repair stop with, every
// action of a repair, and every kind of finding, just as the program writes them.
func TestRecovery_Names(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("recovery.md")
	require.NoError(t, err)
	p := page{t: t, text: string(b)}
	symptoms := p.section("## Symptoms")
	for _, err := range []error{bus.ErrStreamMissing, bus.ErrOtherBus, materializer.ErrEventsDiffer, materializer.ErrEventsGone, materializer.ErrRestored, materializer.ErrRepairPending} {
		require.Contains(t, symptoms, "*"+err.Error()+"*")
	}
	require.Contains(t, p.section("## skald repair"), "*"+materializer.ErrNoRepair.Error()+"*")
	require.Contains(t, p.section("## skald repair"), "`DIR/"+materializer.PlanFile+"`")
	for _, a := range []materializer.RepairAction{
		materializer.RepairRebuild, materializer.RepairPutBack, materializer.RepairEpoch, materializer.RepairNewEpoch, materializer.RepairRecount, materializer.RepairRenumber, materializer.RepairAdopt,
	} {
		p.row("## skald repair", 0, string(a))
	}
	for _, kind := range []string{
		materializer.FoundFile, materializer.FoundBus, materializer.FoundCounter, materializer.FoundOrphan, materializer.FoundSession,
		materializer.FoundState, materializer.FoundOrder, materializer.FoundTwice, materializer.FoundChain, materializer.FoundID, materializer.FoundDiffers,
		materializer.FoundNoMessage, materializer.FoundNoRow, materializer.FoundForgotten, materializer.FoundForeign,
		materializer.FoundPosition, materializer.FoundNoFact, materializer.FoundRowOnly, materializer.FoundUnchecked,
	} {
		p.row("## skald verify", 0, kind)
	}
}
