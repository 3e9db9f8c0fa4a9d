//go:build unix

package e2e_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// deployed is where the files stand that operators are given.
const deployed = "../../deploy"

// description is that of the tests' cluster: two tenants.
const description = `{
  "servers": ["SERVERS"], "ca": "certs/ca.pem",
  "administrators": ["admin"], "materializers": ["m1", "m2"], "edges": ["e1", "e2"], "operators": ["ops"],
  "workspaces": [
    {"id": "acme", "workers": ["w"], "readers": [{"name": "r", "durables": ["d"]}, {"name": "other", "durables": ["o"]}]},
    {"id": "glo.bex", "workers": ["w"], "readers": [{"name": "r", "durables": ["d"]}]}
  ]
}`

// cluster is three NATS servers with the configuration that is shipped, and the keys
// that skald auth wrote.
type cluster struct {
	t        *testing.T
	dir      string
	nodes    [3]*process
	clients  []string // addresses
	monitors []string
	env      [3][]string
}

// newCluster starts the three nodes and waits until each is healthy. edit may change
// the accounts before.
func newCluster(t *testing.T, edit func(accounts string) string) *cluster {
	t.Helper()
	skaldtest.NeedProgram(t, "openssl")
	c := &cluster{t: t, dir: t.TempDir()}
	var routes []string
	for range c.nodes {
		c.clients = append(c.clients, skaldtest.FreeAddress(t))
		c.monitors = append(c.monitors, skaldtest.FreeAddress(t))
		routes = append(routes, skaldtest.FreeAddress(t))
	}
	conf, err := os.ReadFile(filepath.Join(deployed, "nats", "nats.conf"))
	require.NoError(t, err)
	c.write("nats.conf", string(conf))
	certs, err := filepath.Abs(filepath.Join(deployed, "nats", "certs.sh"))
	require.NoError(t, err)
	out, err := exec.Command(certs, filepath.Join(c.dir, "certs"), "node1", "node2", "node3").CombinedOutput()
	require.NoError(t, err, "%s", out)
	c.write("tenants.json", strings.Replace(description, `"SERVERS"`, `"tls://`+strings.Join(c.clients, `", "tls://`)+`"`, 1))
	skald(t, "", "auth", "write", filepath.Join(c.dir, "tenants.json"), "--out", filepath.Join(c.dir, "auth")).ok(t)
	accounts, err := os.ReadFile(filepath.Join(c.dir, "auth", "accounts.conf"))
	require.NoError(t, err)
	if edit != nil {
		edited := edit(string(accounts))
		require.NotEqual(t, string(accounts), edited)
		accounts = []byte(edited)
	}
	c.write("accounts.conf", string(accounts))
	for i, node := range []string{"node1", "node2", "node3"} {
		shipped, err := os.ReadFile(filepath.Join(deployed, "nats", node+".env"))
		require.NoError(t, err)
		c.env[i] = environment()
		for line := range strings.Lines(string(shipped)) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				c.env[i] = append(c.env[i], name+"="+strings.Trim(value, "'"))
			}
		}
		// The tests' own ports; the rest is as shipped.
		c.env[i] = append(c.env[i], `NODE_CLIENT="`+c.clients[i]+`"`, `NODE_MONITOR="`+c.monitors[i]+`"`, `NODE_CLUSTER="`+routes[i]+`"`,
			`NODE_ROUTE_1="nats-route://`+routes[0]+`"`, `NODE_ROUTE_2="nats-route://`+routes[1]+`"`, `NODE_ROUTE_3="nats-route://`+routes[2]+`"`,
			`NODE_MAX_FILE_STORE=2GB`)
	}
	for i := range c.nodes {
		c.start(i)
	}
	t.Cleanup(func() {
		for i, n := range c.nodes {
			n.cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // a test may have frozen it
			kill(n)
			if t.Failed() {
				t.Logf("node %d:\n%s", i+1, tail(n.text(), 15))
			}
		}
	})
	c.healthy()
	return c
}

func (c *cluster) write(name, text string) {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

// start starts a node that does not run.
func (c *cluster) start(i int) {
	c.t.Helper()
	cmd := exec.Command(skaldtest.NATSServerBinary(c.t), "-c", "nats.conf")
	cmd.Dir, cmd.Env = c.dir, c.env[i]
	p, err := spawn(cmd)
	require.NoError(c.t, err)
	c.nodes[i] = p
}

// healthy waits until each node says so: it knows the cluster's leader and its copies
// have caught up.
func (c *cluster) healthy() {
	c.t.Helper()
	for i, addr := range c.monitors {
		skaldtest.Eventually(c.t, patience, func() bool {
			resp, err := client.Get("http://" + addr + "/healthz")
			if err != nil {
				return !c.nodes[i].running()
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}, "node is healthy")
		require.True(c.t, c.nodes[i].running(), c.nodes[i].text())
	}
}

func (c *cluster) servers() string { return "tls://" + strings.Join(c.clients, ",tls://") }

// file returns the path of a user's file: "edges/e1.json".
func (c *cluster) file(name string) string {
	return filepath.Join(c.dir, "auth", filepath.FromSlash(name))
}

func (c *cluster) ca() string { return filepath.Join(c.dir, "certs", "ca.pem") }

// as connects a plain client with the seed of a user: "operators/ops".
func (c *cluster) as(user string, opts ...nats.Option) *nats.Conn {
	c.t.Helper()
	key, err := nats.NkeyOptionFromSeed(c.file(user + ".nk"))
	require.NoError(c.t, err)
	quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) // refusals are what tests are about
	return connect(c.t, c.servers(), append(opts, quiet, key, nats.RootCAs(c.ca()))...)
}

// bus connects as a materializer, who may see all of it.
func (c *cluster) bus() jetstream.JetStream {
	c.t.Helper()
	js, err := jetstream.New(c.as("materializers/m1"))
	require.NoError(c.t, err)
	return js
}

// serve starts a materializer.
func (c *cluster) serve(name, data string) *server {
	c.t.Helper()
	return serve(c.t, data, "--server", c.servers(), "--nkey", c.file("materializers/"+name+".nk"), "--tlsca", c.ca(), "--replicas", "3")
}

// edge starts an edge and waits until it takes messages.
func (c *cluster) edge(name string) *process {
	c.t.Helper()
	p := background(c.t, command(c.t, "edge", "--context", c.file("edges/"+name+".json")))
	skaldtest.Eventually(c.t, patience, func() bool { return strings.Contains(p.text(), "edge on") || !p.running() }, "edge runs")
	require.True(c.t, p.running(), p.text())
	return p
}

// durables has skald auth make the readers' durables.
func (c *cluster) durables() {
	c.t.Helper()
	skald(c.t, "", "auth", "durables", filepath.Join(c.dir, "tenants.json"), "--context", c.file("materializers/m1.json")).ok(c.t)
}

// permissions matches those of a user in the configuration that skald auth writes.
var permissions = regexp.MustCompile(`(?s), permissions: \{.*?subscribe: .*?\n +\} \}`)

// tail returns the last lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
