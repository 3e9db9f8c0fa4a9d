package docs_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/service"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer/store"
)

// The table of the NATS service has the subjects that a running one serves, and
// the parameters that each takes.
func TestService(t *testing.T) {
	p := open(t)
	st, err := store.Open(filepath.Join(t.TempDir(), "skald.db"), store.Options{})
	require.NoError(t, err)
	defer st.Close()
	nc, err := nats.Connect(skaldtest.Server(t).ClientURL())
	require.NoError(t, err)
	defer nc.Close()
	subjects, err := bus.NewSubjects("")
	require.NoError(t, err)
	s := service.New(service.Options{API: api.New(api.Options{Reader: st.Reader()}), Conn: nc, Subjects: subjects, Version: "1.0.0"})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()

	var info micro.Info
	require.Eventually(t, func() bool {
		m, err := nc.Request("$SRV.INFO."+service.Name, nil, time.Second)
		return err == nil && json.Unmarshal(m.Data, &info) == nil &&
			slices.ContainsFunc(info.Endpoints, func(e micro.EndpointInfo) bool { return e.Name == "op-status" }) // the last to be added
	}, skaldtest.Timeout, 5*time.Millisecond)
	for _, e := range info.Endpoints {
		shown := strings.Replace(strings.Replace(e.Subject, "*", "<workspace>", 1), "*", "<session>", 1)
		row := p.row("## NATS service", 0, shown)
		// A parameter that is not known is answered with the list of those that are.
		m, err := nc.Request(strings.ReplaceAll(e.Subject, "*", "x"), []byte(`{"x":"1"}`), skaldtest.Timeout)
		require.NoError(t, err)
		f, ok := api.ParseFailure(400, m.Data)
		require.True(t, ok, "%s: %s", e.Subject, m.Data)
		if row[1] == "empty" {
			known := e.Name == "session" // its workspace is known, and fixed by the subject
			require.Equal(t, !known, strings.HasSuffix(f.Message, "no parameter is"), f.Message)
			continue
		}
		_, list, _ := strings.Cut(f.Message, "[")
		for _, name := range strings.Fields(strings.TrimSuffix(list, "]")) {
			if strings.Contains(e.Subject, "api.") && name == api.ParamWorkspace {
				continue
			}
			if strings.Contains(e.Subject, "op.") && name != api.ParamWorkspace {
				continue // as in the workspace's row
			}
			require.Contains(t, row[1], "`"+name+"`", e.Subject)
		}
	}
}
