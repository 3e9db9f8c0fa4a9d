package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/materializer/store"
)

// operator is a command that reads the store of a data directory, publishes what
// follows from it into INGEST, and waits until that store has taken it. INGEST is the
// one door to a store: a running service owns the file, and what comes through INGEST
// reaches every other store of the bus too, also one that comes back later.
type operator struct {
	at   natsFlags
	wait time.Duration

	data string
	r    *store.Reader
	conn *target.NATS
}

func (o *operator) add(f *pflag.FlagSet) {
	f.DurationVar(&o.wait, "wait", 10*time.Second, "how long to wait until the store has taken it")
	o.at.add(f)
}

// open opens both sides, which must be of one bus.
func (o *operator) open(e env, cmd *cobra.Command, data string) (err error) {
	if o.wait < 0 {
		return usage("--wait: must not be negative")
	}
	ctx := cmd.Context()
	o.data = data
	if o.r, err = openReader(e, cmd, data); err != nil {
		return err
	}
	if o.conn, err = o.at.open(ctx); err != nil {
		return err
	}
	own, err := o.r.Status(ctx)
	if err != nil {
		return err
	}
	st, err := askStatus(ctx, o.conn)
	if err != nil {
		return err
	}
	if st.Epoch != own.Epoch {
		return fmt.Errorf("%w: the store in %s is of epoch %q, what runs at %s of %q; --data and --server must name the same", bus.ErrOtherBus, data, own.Epoch, o.conn, st.Epoch)
	}
	return nil
}

func (o *operator) close() {
	if o.conn != nil {
		o.conn.Close() //nolint:errcheck // all that was sent has been answered
	}
	if o.r != nil {
		o.r.Close() //nolint:errcheck // it only reads
	}
}

// send publishes the message and waits until the store has read it. It returns the
// message's sequence in INGEST.
func (o *operator) send(ctx context.Context, m message) (uint64, error) {
	seq, err := storeMessage(ctx, o.conn, m)
	if err != nil {
		return 0, err
	}
	cause := fmt.Errorf("it is stored as message %d of INGEST, but the store in %s did not take it within %s; it will: %w", seq, o.data, o.wait, bus.ErrUnavailable)
	ctx, cancel := context.WithTimeoutCause(ctx, o.wait, cause)
	defer cancel()
	for {
		pos, err := o.r.Position(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case err != nil:
			return 0, err
		case pos.IngestSeq >= seq:
			return seq, nil
		}
		select {
		case <-time.After(outcomePoll):
		case <-ctx.Done():
		}
	}
}

// storeMessage publishes one message and returns its sequence in INGEST. Without an
// answer it may be stored or not.
func storeMessage(ctx context.Context, conn *target.NATS, m message) (uint64, error) {
	js, err := jetstream.New(conn.Conn())
	if err != nil {
		return 0, fmt.Errorf("use JetStream: %w", err)
	}
	subject := conn.Subjects().IngestAdmin()
	if m.key != (bus.Key{}) {
		subject = conn.Subjects().Ingest(m.key, m.class)
	}
	ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Header: m.headers(), Data: m.body})
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return 0, fmt.Errorf("publish at %s: no stream takes it, has skald serve run on this server, with this prefix?: %w", conn, err)
	case err != nil:
		return 0, fmt.Errorf("publish at %s: %w", conn, err)
	}
	return ack.Sequence, nil
}
