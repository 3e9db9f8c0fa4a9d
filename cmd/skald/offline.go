package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/dirlock"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/target"
)

// repair is the command line that repairs what these options serve.
func (o *serveOptions) repair() string {
	return o.commandLine("repair")
}

// commandLine is another command on the same data and server. Paths and URLs are
// quoted where a shell would read them otherwise; credentials in a URL are left out.
func (o *serveOptions) commandLine(command string) string {
	server := ""
	if o.nats.server != "" {
		server = natsconn.Redact(o.nats.server)
	}
	args := []string{"skald", command, "--data", quoted(o.data)}
	for _, f := range []struct{ name, value string }{
		{"server", server}, {"prefix", o.nats.prefix}, {"nats-config", o.natsConfig}, {"creds", o.nats.creds}, {"nkey", o.nats.nkey},
	} {
		if f.value != "" {
			args = append(args, "--"+f.name, quoted(f.value))
		}
	}
	return strings.Join(args, " ")
}

func quoted(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@+,", r)
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// offline are the flags of commands that work on a data directory and its streams.
type offline struct {
	serveOptions
}

func (o *offline) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.data, "data", target.DefaultData, "data `directory`")
	f.StringVar(&o.natsConfig, "nats-config", "", "configuration `file` that serve gives the embedded NATS server")
	o.nats.add(f)
	o.listen, o.patience, o.replicas = "127.0.0.1:0", startTimeout, 1
}

// check completes the options. NATS_URL counts as with serve.
func (o *offline) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case o.data == "":
		return usage("--data: must not be empty")
	case changed("server") && o.nats.server == "":
		return usage("--server: must not be empty")
	case changed("server") && changed("nats-config"):
		return usage("--nats-config is for the embedded NATS server, --server for one outside")
	case o.nats.server == "" && !changed("nats-config"):
		o.nats.server = os.Getenv("NATS_URL")
	}
	if _, err := bus.NewSubjects(o.nats.prefix); err != nil {
		return usage("--%w", err)
	}
	return nil
}

// workbench is what such a command works with, until close.
type workbench struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	subjects bus.Subjects
	close    func() error
}

// open reaches the streams: on the outside server, or by starting the embedded one on
// a free local port. The data directory must be locked in the second case. With look
// nothing is made there: a server whose directory is gone gets a temporary one.
func (o *offline) open(ctx context.Context, e env, look bool) (*workbench, error) {
	subjects, err := bus.NewSubjects(o.nats.prefix)
	if err != nil {
		return nil, err
	}
	log := newLogger(e, slog.LevelWarn)
	w := &workbench{subjects: subjects}
	var server *natsd.Server
	scratch := ""
	if o.nats.server == "" {
		so := o.embedded(log)
		if _, err := os.Stat(so.Dir); errors.Is(err, fs.ErrNotExist) {
			e.note("skald: there is no %s: it begins empty; if serve uses an outside server, name it with --server", so.Dir)
			if look {
				if scratch, err = os.MkdirTemp("", "skald-"); err != nil {
					return nil, fmt.Errorf("make a temporary directory: %w", err)
				}
				so.Dir = scratch
			}
		}
		if server, err = natsd.Start(ctx, so); err != nil {
			return nil, errors.Join(err, removeScratch(scratch))
		}
	}
	stop := func() error {
		if server != nil {
			server.Shutdown()
		}
		return removeScratch(scratch)
	}
	if w.conn, err = connect(ctx, o.serveOptions, server, log); err != nil {
		return nil, errors.Join(err, stop())
	}
	w.close = func() error {
		closeConn(w.conn, log)
		return stop()
	}
	if w.js, err = jetstream.New(w.conn); err != nil {
		return nil, errors.Join(fmt.Errorf("use JetStream: %w", err), w.close())
	}
	return w, nil
}

// removeScratch removes a temporary directory, if there is one.
func removeScratch(dir string) error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// lock locks the data directory, which must hold a store.
func (o *offline) lock() (*dirlock.Lock, error) {
	path := filepath.Join(o.data, target.StoreFile)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("no store here: %w", err)
	}
	return dirlock.Acquire(o.data)
}

// progressEvery is how often something that takes long says how far it is.
const progressEvery = 2 * time.Second

// progress returns a function that says on stderr how far a long task is.
func progress(e env) func(doing string, at, end uint64) {
	last := time.Now()
	return func(doing string, at, end uint64) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		e.note("skald: %s: %d of %d", doing, at, end)
	}
}
