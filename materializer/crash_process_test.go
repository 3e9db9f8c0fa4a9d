package materializer_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/skaldtest"
	"github.com/skaldbus/skald/materializer"
	"github.com/skaldbus/skald/materializer/store"
	"github.com/skaldbus/skald/publisher"
)

// partEnv holds what a process of the test binary is to do, which then is no test: a
// materializer, a repair or a worker that is really killed, where the seams of the same
// code in the test's own process only play a crash.
const partEnv = "SKALD_MATERIALIZER_TEST_PART"

// part is what a process does.
type part struct {
	URL  string
	Path string // of the store
	Plan string // of a repair, which it then carries out instead of running a materializer
	// The process kills itself when it comes to the point At for the Nth time, 0 for never.
	// Points are those of SetSeam; of a repair any step.
	At  string
	Nth int
	// There it waits first until EVENTS ends with this number or a later one.
	Events uint64
	Trims  bool
	// Outbox makes it a worker that keeps so many messages there and waits until all are
	// materialized; EventID one that sends a message itself and waits for the answer.
	Outbox, EventID string
	Says            int
}

// playPart is the process.
func playPart(text string) int {
	var p part
	err := json.Unmarshal([]byte(text), &p)
	if err == nil {
		err = p.play()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (p *part) play() error {
	ctx := context.Background()
	nc, err := nats.Connect(p.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.Timeout(skaldtest.Timeout))
	if err != nil {
		return err
	}
	defer nc.Close()
	if p.Outbox != "" || p.EventID != "" {
		return p.work(ctx, nc)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	subj, err := bus.NewSubjects("")
	if err != nil {
		return err
	}
	st, err := store.Open(p.Path, store.Options{})
	if err != nil {
		return err
	}
	if p.Plan != "" {
		r := materializer.NewRepairer(materializer.RepairOptions{
			Conn: nc, JS: js, PlanFile: p.Plan, Reader: st.Reader(), Store: st, Subjects: subj,
			Streams: bus.StreamOptions{MaxPayload: nc.MaxPayload(), IngestBytes: skaldtest.IngestBytes},
		})
		r.SetSeam(func(string) error { return p.reached(p.At) })
		d, err := r.Diagnose(ctx)
		if err != nil {
			return err
		}
		return errors.Join(r.Carry(ctx, d), st.Close())
	}
	known, err := st.Bus(ctx)
	if err != nil {
		return err
	}
	streams, err := subj.Open(ctx, js, bus.StreamOptions{MaxPayload: nc.MaxPayload()}, known.Epoch)
	if err != nil {
		return err
	}
	if known.Epoch == "" {
		if err := st.Adopt(ctx, store.Bus{Epoch: streams.Epoch, IngestID: streams.IngestID}); err != nil {
			return err
		}
	}
	m, err := materializer.New(materializer.Options{Conn: nc, JS: js, Store: st, Streams: streams, Subjects: subj, Trim: p.Trims, Label: "test"})
	if err != nil {
		return err
	}
	if p.Trims {
		m.SetKeepEvery(100 * time.Millisecond)
	}
	m.SetSeam(func(name string) error {
		if name == p.At && p.Events > 0 {
			for last := uint64(0); last < p.Events; {
				info, err := streams.Events.Info(ctx)
				if err != nil {
					return err
				}
				last = info.State.LastSeq
			}
		}
		return p.reached(name)
	})
	return m.Run(ctx)
}

// reached kills the process if the point is the one to die at.
func (p *part) reached(name string) error {
	if name != p.At || p.Nth == 0 {
		return nil
	}
	if p.Nth--; p.Nth > 0 {
		return nil
	}
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill()
	}
	if err != nil {
		return err
	}
	select {} // nothing more is done until the signal comes
}

// work is a worker that begins when it is told to.
func (p *part) work(ctx context.Context, nc *nats.Conn) error {
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n') //nolint:errcheck // its end will do
	if p.EventID != "" {
		m := nats.NewMsg("skald.in.w.alpha.error")
		m.Header[bus.HeaderEventID] = []string{p.EventID}
		m.Data = []byte(`{"recorded_at_ms":1,"message":"plain"}`)
		_, err := nc.RequestMsg(m, skaldtest.Timeout)
		return err
	}
	pub, err := publisher.New(nc, publisher.Options{Outbox: p.Outbox})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- pub.Run(ctx) }()
	<-pub.Started()
	if p.Says > 0 {
		s, err := pub.Session(ctx, beta)
		if err != nil {
			return err
		}
		for i := range p.Says {
			body := fmt.Appendf(nil, `{"recorded_at_ms":1,"message":"kept %d"}`, i)
			if _, err := s.Publish(ctx, publisher.Message{Class: bus.ClassError, Body: body}); err != nil {
				return err
			}
		}
		fmt.Println("kept")
	}
	return errors.Join(pub.Close(ctx), <-ended)
}

// playing is a running part.
type playing struct {
	w    *world
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	said strings.Builder // on stderr; read it when the process has ended
	done chan struct{}
	err  error // how it ended, once done is closed
}

// play starts a process for the part.
func (w *world) play(p part) *playing {
	t := w.t
	t.Helper()
	binary, err := os.Executable()
	require.NoError(t, err)
	if p.URL == "" {
		p.URL = w.server.ClientURL()
	}
	text, err := json.Marshal(p)
	require.NoError(t, err)
	r := &playing{w: w, cmd: exec.Command(binary), done: make(chan struct{})}
	out, to, err := os.Pipe()
	require.NoError(t, err)
	r.out = bufio.NewReader(out)
	r.cmd.Env = append(os.Environ(), partEnv+"="+string(text))
	r.cmd.Stdout, r.cmd.Stderr = to, &r.said
	r.in, err = r.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	require.NoError(t, to.Close())
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.done
		out.Close()
	})
	return r
}

// hears requires the next line that the process writes.
func (r *playing) hears(want string) {
	r.w.t.Helper()
	line, err := r.out.ReadString('\n')
	require.NoError(r.w.t, err)
	require.Equal(r.w.t, want+"\n", line)
}

// runs reports whether the process has not ended yet.
func (r *playing) runs() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// wait waits for the end of the process and reports whether it was killed; if not, it
// must have ended well.
func (r *playing) wait() (killed bool) {
	r.w.t.Helper()
	skaldtest.Eventually(r.w.t, 2*skaldtest.Timeout, func() bool { return !r.runs() }, "the process does not end")
	var exit *exec.ExitError
	if errors.As(r.err, &exit) && !exit.Exited() {
		return true
	}
	require.NoError(r.w.t, r.err, r.said.String())
	return false
}

// isKilled requires that the process was killed, and did not end by itself.
func (r *playing) isKilled() {
	r.w.t.Helper()
	require.True(r.w.t, r.wait(), "it ended by itself")
}

// ends requires that the process ends by itself, and well.
func (r *playing) ends() {
	r.w.t.Helper()
	require.False(r.w.t, r.wait(), "it was killed")
}
