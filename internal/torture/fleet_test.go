//go:build linux

package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// patience is how long a condition is waited for that has to come, on a machine
// that is busy. It exceeds every timeout of the programs.
const patience = 90 * time.Second

// fleet is all that runs, and what is known of it.
type fleet struct {
	t     *testing.T
	ctx   context.Context
	seed  uint64
	rng   *rand.Rand // of the schedule; used by the test's own goroutine only
	dir   string
	bin   string
	began time.Time

	keep    time.Duration // how long INGEST is kept at least
	pause   int           // least of what a worker's longest pause between two messages is, in ms
	natsAt  string        // where NATS listens
	jsOld   string        // a copy of JetStream's directory; "" if there is none to go back to
	lostTo  uint64        // where EVENTS ended when JetStream was last set back; 0 if it was not
	broker  *process      // nats-server, nil if serve has it embedded
	stores  []*store      // written by the test's own goroutine only, and under mu
	workers []*workers
	proxies []*skaldtest.Proxy
	readers []*reader
	ledger  *ledger
	every   bool // all faults, also those that take long
	http    http.Client
	nc      *nats.Conn // the operator's, never behind a proxy
	js      jetstream.JetStream

	setBacks atomic.Int64 // times that EVENTS' files were set back or taken away

	mu       sync.Mutex
	schedule []string
	injected map[string]int
	wg       sync.WaitGroup
	unwatch  context.CancelFunc
}

// store is one serve with a store of its own.
type store struct {
	*process
	data string
	at   string           // of HTTP
	link *skaldtest.Proxy // to the outside server
	old  string           // a copy of its files; "" if there is none to go back to

	setBacks atomic.Int64 // times that its files were set back or taken away
}

func (s *store) url(path string) string { return "http://" + s.at + path }

// workers is one process that runs some sessions.
type workers struct {
	*process
	link  *skaldtest.Proxy
	stdin io.Closer
	heard chan struct{} // closed when all that it wrote is in the ledger
}

// plan is what a fleet is made of.
type plan struct {
	stores  int
	outside bool          // a nats-server of its own, which more than one store needs
	keep    time.Duration // as in fleet
	pause   int           // as in fleet
}

// newFleet makes a fleet of a seed; start starts it.
func newFleet(t *testing.T, ctx context.Context, seed uint64) *fleet {
	f := &fleet{
		t: t, ctx: ctx, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), bin: skaldtest.Binary(t),
		began: time.Now(), ledger: newLedger(), injected: map[string]int{}, unwatch: func() {}, http: http.Client{Timeout: 10 * time.Second},
		every: os.Getenv("SKALD_TORTURE_FOR") != "",
	}
	t.Cleanup(f.end)
	f.natsAt = skaldtest.FreeAddress(t)
	return f
}

// drawn is the plan that the seed says.
func (f *fleet) drawn() plan {
	p := plan{stores: 1, pause: 5, keep: []time.Duration{0, 24 * time.Hour}[f.rng.IntN(2)]}
	if p.outside = f.rng.IntN(2) == 0; p.outside {
		p.stores = 1 + f.rng.IntN(3)
	}
	return p
}

// start starts the fleet.
func (f *fleet) start(p plan) {
	f.t.Helper()
	f.keep, f.pause = p.keep, p.pause
	if p.outside {
		f.broker = f.makeBroker()
		require.NoError(f.t, f.broker.start())
		f.await("the broker listens", func() error { return f.connect() })
	}
	for i := range p.stores {
		f.stores = append(f.stores, f.makeStore(i))
		require.NoError(f.t, f.stores[i].start())
		f.await("the first store is ready", func() error { return f.ready(f.stores[i]) })
	}
	if f.nc == nil {
		require.NoError(f.t, f.connect())
	}
	f.note("%d stores, outside broker %t, INGEST is kept for %s", p.stores, p.outside, p.keep)
	f.watch()
	f.makeWorkers()
	f.makeReaders()
}

// anyStore is one that a reader may ask.
func (f *fleet) anyStore(rng *rand.Rand) *store {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stores[rng.IntN(len(f.stores))]
}

// connect makes the operator's own connection.
func (f *fleet) connect() error {
	nc, err := nats.Connect("nats://"+f.natsAt, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	f.nc = nc
	f.js, err = jetstream.New(nc)
	return err
}

func (f *fleet) jsDir() string {
	if f.broker != nil {
		return filepath.Join(f.dir, "broker", "jetstream")
	}
	return filepath.Join(f.stores[0].data, "jetstream")
}

func (f *fleet) makeBroker() *process { return f.natsServer("broker", filepath.Join(f.dir, "broker")) }

// natsServer is a nats-server at the fleet's address, over the directory.
func (f *fleet) natsServer(name, dir string) *process {
	bin := skaldtest.NATSServerBinary(f.t)
	config := filepath.Join(f.dir, name+".conf")
	require.NoError(f.t, os.WriteFile(config, fmt.Appendf(nil,
		"listen: %q\nmax_payload: 8388608\njetstream { store_dir: %q, max_file_store: 20000000000, sync_interval: always }\n", f.natsAt, dir), 0o600))
	return newProcess(f.dir, name, func() *exec.Cmd { return exec.Command(bin, "-c", config) })
}

func (f *fleet) makeStore(i int) *store {
	s := &store{data: filepath.Join(f.dir, fmt.Sprint("data-", i))}
	s.at = skaldtest.FreeAddress(f.t)
	args := []string{"serve", "--data", s.data, "--http", s.at, "--ingest-max-bytes", "2000000000", "--ingest-keep", f.keep.String()}
	if f.broker != nil {
		s.link = f.proxy()
		args = append(args, "--server", s.link.URL())
	} else {
		args = append(args, "--listen", f.natsAt)
		if f.rng.IntN(2) == 0 {
			args = append(args, "--sync-interval", "10s") // a kill leaves what was written to the system
		}
	}
	s.process = newProcess(f.dir, fmt.Sprint("store-", i), func() *exec.Cmd {
		cmd := exec.Command(f.bin, args...)
		cmd.Env = append(os.Environ(), "NATS_URL=")
		return cmd
	})
	return s
}

// proxy makes a proxy in front of NATS.
func (f *fleet) proxy() *skaldtest.Proxy {
	p := skaldtest.NewProxy(f.t, f.natsAt)
	f.proxies = append(f.proxies, p)
	return p
}

// makeWorkers draws the sessions, of all kinds, and starts the processes that run
// them. The last session of each kind is there to be forgotten.
func (f *fleet) makeWorkers() {
	self, err := os.Executable()
	require.NoError(f.t, err)
	for i := range 4 {
		w := &workers{link: f.proxy()}
		o := order{Server: w.link.URL(), Seed: f.rng.Uint64(), Pause: f.pause + f.rng.IntN(30)}
		kinds := []kind{counted, named, chained, counted, chained}
		if i%2 == 1 {
			o.Outbox = filepath.Join(f.dir, fmt.Sprint("outbox-", i))
			kinds = []kind{named, chained, named}
		}
		for j, k := range kinds {
			s := session{Workspace: fmt.Sprint("ws.", (i+j)%4), Name: fmt.Sprintf("%s %d-%d", k, i, j), Kind: k, Format: 1 + f.rng.IntN(2)}
			if f.rng.IntN(4) == 0 {
				s.Pad = f.rng.IntN(20_000)
			}
			o.Sessions = append(o.Sessions, s)
			f.ledger.add(s, o.Outbox != "")
		}
		w.process = newProcess(f.dir, fmt.Sprint("worker-", i), func() *exec.Cmd {
			o.Kept = f.ledger.kept()
			text, err := json.Marshal(o)
			require.NoError(f.t, err)
			cmd := exec.Command(self, "-test.run=^$")
			cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
			stdin, err := cmd.StdinPipe()
			require.NoError(f.t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(f.t, err)
			w.stdin = stdin
			w.heard = make(chan struct{})
			heard := w.heard
			f.wg.Go(func() {
				defer close(heard)
				f.hear(w, stdout)
			})
			return cmd
		})
		f.workers = append(f.workers, w)
		require.NoError(f.t, w.start())
	}
}

// hear takes what a worker writes into the ledger.
func (f *fleet) hear(w *workers, from io.Reader) {
	d := json.NewDecoder(from)
	for {
		var line told
		if err := d.Decode(&line); err != nil {
			return // its end, or a line that a kill cut off
		}
		if strings.HasPrefix(line.What, failed) {
			f.broken("%s: session %s: %s", w.name, line.Session, line.What)
		}
		f.ledger.hear(line)
	}
}

// note adds a line to the schedule.
func (f *fleet) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.schedule = append(f.schedule, fmt.Sprintf("%8.3f ", time.Since(f.began).Seconds())+fmt.Sprintf(format, args...))
}

// broken notes that something is wrong; the test ends at the next look.
func (f *fleet) broken(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	f.note("WRONG: %s", what)
	f.ledger.wrong(what)
}

// give ends the test with all that helps to find the cause.
func (f *fleet) give(what string) {
	f.t.Helper()
	f.mu.Lock()
	schedule := strings.Join(f.schedule, "\n")
	f.mu.Unlock()
	var logs strings.Builder
	all := []*process{f.broker}
	for _, s := range f.stores {
		all = append(all, s.process)
	}
	for _, p := range all {
		if p != nil {
			fmt.Fprintf(&logs, "\n--- %s\n%s", p.name, p.tail(25))
		}
	}
	keep := filepath.Join(os.TempDir(), fmt.Sprintf("skald-torture-%d", f.seed))
	for _, p := range all {
		if p != nil {
			p.kill()
		}
	}
	os.RemoveAll(keep)
	if err := os.Rename(f.dir, keep); err != nil {
		keep = err.Error()
	}
	f.t.Fatalf("seed %d: %s\n\nfirst wrong: %s\n\nschedule\n%s\n%s\nfiles: %s", f.seed, what, f.ledger.firstWrong(), schedule, logs.String(), keep)
}

// await waits until cond holds, and fails the test if something is wrong before.
func (f *fleet) await(what string, cond func() error) {
	f.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := cond()
		if err == nil {
			return
		}
		if wrong := f.ledger.firstWrong(); wrong != "" {
			f.give("while waiting until " + what)
		}
		if time.Now().After(deadline) {
			f.give(fmt.Sprintf("waited %s in vain until %s: %v", patience, what, err))
		}
		time.Sleep(10 * time.Millisecond) // before the next look
	}
}

func (f *fleet) ready(s *store) error {
	resp, err := f.http.Get(s.url("/healthz"))
	if err != nil {
		if !s.running() {
			f.give(fmt.Sprintf("%s ended by itself: %v", s.name, s.err))
		}
		return err
	}
	return resp.Body.Close()
}

// end stops all that runs.
func (f *fleet) end() {
	f.unwatch()
	for _, r := range f.readers {
		r.cancel()
	}
	for _, w := range f.workers {
		w.kill()
	}
	for _, s := range f.stores {
		s.kill()
	}
	if f.broker != nil {
		f.broker.kill()
	}
	if f.nc != nil {
		f.nc.Close()
	}
	f.wg.Wait()
}
