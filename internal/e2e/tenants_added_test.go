//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// A worker and a workspace that are added while the cluster runs get through on each node,
// when each was told twice to load the accounts, as docs/deploy.md says; those who were
// there before are not disturbed.
func TestTenants_Added(t *testing.T) {
	w := newTenants(t, nil)
	w.honest.put(ingestSubject("glo.bex", "s", "error"), nil, failed("before"))

	description, err := os.ReadFile(filepath.Join(w.dir, "tenants.json"))
	require.NoError(t, err)
	more := strings.Replace(string(description), `"workers": ["w"]`, `"workers": ["w", "second"]`, 1)
	more = strings.Replace(more, `"workspaces": [`, `"workspaces": [ {"id": "initech", "workers": ["w"]},`, 1)
	w.write("tenants.json", more)
	skald(t, "", "auth", "write", filepath.Join(w.dir, "tenants.json"), "--out", filepath.Join(w.dir, "auth")).ok(t)
	accounts, err := os.ReadFile(filepath.Join(w.dir, "auth", "accounts.conf"))
	require.NoError(t, err)
	w.write("accounts.conf", string(accounts))

	const reloaded = "Reloaded server configuration"
	reload := func(nth int) {
		for i, n := range w.nodes {
			n.signal(t, syscall.SIGHUP)
			skaldtest.Eventually(t, patience, func() bool { return strings.Count(n.text(), reloaded) == nth }, fmt.Sprintf("node %d reloads", i+1))
		}
	}
	// reaches says of each new worker and node whether a message is acknowledged.
	reaches := func() (out []string) {
		for user, workspace := range map[string]string{"workspaces/acme/workers/second": "acme", "workspaces/initech/workers/w": "initech"} {
			for i, addr := range w.clients {
				key, err := nats.NkeyOptionFromSeed(w.file(user + ".nk"))
				require.NoError(t, err)
				nc := connect(t, "tls://"+addr, key, nats.RootCAs(w.ca()), nats.DontRandomize(), nats.IgnoreDiscoveredServers())
				_, err = nc.Request(ingestSubject(workspace, "new", "error"), []byte(failed("after")), 5*time.Second)
				nc.Close()
				if err != nil {
					out = append(out, fmt.Sprintf("%s at node %d: %v", user, i+1, err))
				}
			}
		}
		return out
	}
	reload(1)
	require.Len(t, reaches(), 6, "one reload is enough: say so in docs/deploy.md and docs/tenants.md")
	reload(2)
	// The nodes tell each other by and by.
	skaldtest.EventuallyWith(t, patience, func(c *assert.CollectT) { require.Empty(c, reaches()) })
	w.honest.put(ingestSubject("glo.bex", "s", "error"), nil, failed("after"))
	w.s.settle(t)
}
