package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/target"
)

// connectTimeout is how long a client command waits for a server, of all that it may
// try. It is longer than natsconn.DefaultTimeout, which bounds one address and the
// greeting there, so that the error tells what that one lacks.
const connectTimeout = 8 * time.Second

// errNoServer is the cause when connectTimeout has passed.
var errNoServer = fmt.Errorf("no NATS server has answered within %s", connectTimeout)

// once is a flag's text that may be given one time: of two cursors, one would be
// ignored.
type once struct {
	value string
	given bool
}

func (o *once) String() string { return o.value }
func (o *once) Type() string   { return "string" }

func (o *once) Set(v string) error {
	if o.given {
		return errors.New("it is given twice")
	}
	o.value, o.given = v, true
	return nil
}

// onceFlag adds such a flag.
func onceFlag(f *pflag.FlagSet, name, usage string) *once {
	o := &once{}
	f.Var(o, name, usage)
	return o
}

// put adds the flag to a query if it was given, empty too: the query says what
// an empty one means.
func (o *once) put(p api.Params, name string) {
	if o.given {
		p[name] = []string{o.value}
	}
}

// natsFlags say how to reach a NATS server.
type natsFlags struct {
	server, creds, nkey    string
	tlsCert, tlsKey, tlsCA string
	prefix                 string
}

func (n *natsFlags) add(f *pflag.FlagSet) {
	f.StringVar(&n.server, "server", "", "NATS server's `URL` (environment: NATS_URL)")
	f.StringVar(&n.creds, "creds", "", "credentials `file` for NATS")
	f.StringVar(&n.nkey, "nkey", "", "nkey seed `file` for NATS")
	f.StringVar(&n.tlsCert, "tlscert", "", "client certificate `file` for NATS")
	f.StringVar(&n.tlsKey, "tlskey", "", "client key `file` for NATS")
	f.StringVar(&n.tlsCA, "tlsca", "", "certificate authority `file` for NATS")
	f.StringVar(&n.prefix, "prefix", "", "first `token` of the bus's subjects (default skald)")
}

func (n *natsFlags) options(url string) natsconn.Options {
	return natsconn.Options{
		URL: url, Creds: n.creds, NKey: n.nkey, Cert: n.tlsCert, Key: n.tlsKey, CA: n.tlsCA,
	}
}

// open connects to the NATS server that is meant.
func (n *natsFlags) open(ctx context.Context) (*target.NATS, error) {
	server := n.server
	if server == "" {
		server = os.Getenv("NATS_URL")
	}
	if server == "" {
		server = target.DefaultServer
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoServer)
	defer cancel()
	return target.OpenNATS(ctx, target.Options{Server: server, Prefix: n.prefix, NATS: n.options(server)})
}

// targetFlags say where a table is read.
type targetFlags struct {
	natsFlags
	data, url string
	file      bool // set by open: the target is a store file
}

func (t *targetFlags) add(f *pflag.FlagSet) {
	f.StringVar(&t.data, "data", "", "read the store in this `directory` (default ./"+target.DefaultData+" if a store is there)")
	f.StringVar(&t.url, "url", "", "ask the gateway at this `URL` (default "+target.DefaultURL+")")
	t.natsFlags.add(f)
}

// open reaches the target that the command line means, and says which one that is
// if no flag does.
func (t *targetFlags) open(e env, cmd *cobra.Command) (target.Target, error) {
	named := false
	for _, name := range []string{"data", "url", "server"} {
		f := cmd.Flags().Lookup(name)
		if f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return nil, usage("--%s: must not be empty", name)
		}
		named = named || f.Changed
	}
	o := target.Options{Data: t.data, URL: t.url, Server: t.server, Prefix: t.prefix}.Resolve(os.Getenv("NATS_URL"))
	o.NATS = t.options(o.Server)
	t.file = o.Data != ""
	if !named {
		e.note("skald: %s", unnamed(o))
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), connectTimeout, errNoServer)
	defer cancel()
	opened, err := target.Open(ctx, o)
	if errors.Is(err, target.ErrNotNATS) || errors.Is(err, natsconn.ErrURL) && isHTTP(o.Server) {
		err = fmt.Errorf("%w; the address of a gateway (HTTP) goes with --url", err)
	}
	return opened, err
}

// unnamed says where an answer comes from that no flag names, and what would.
func unnamed(o target.Options) string {
	switch {
	case o.Data != "":
		return "reading " + fileName(o.Data) + " (file); --url or --server asks a running bus"
	case o.URL != "":
		return "asking " + o.URL + " (HTTP); --data reads a file, --server asks over NATS"
	}
	return "asking " + natsconn.Redact(o.Server) + " (NATS, from NATS_URL); --data reads a file, --url asks over HTTP"
}

// fileName shows a directory that a name alone would not show to be one.
func fileName(dir string) string {
	if filepath.IsAbs(dir) || strings.ContainsRune(dir, filepath.Separator) {
		return dir
	}
	return "." + string(filepath.Separator) + dir
}

// isHTTP reports whether an address of a NATS server is one of HTTP.
func isHTTP(server string) bool {
	return strings.HasPrefix(server, "http://") || strings.HasPrefix(server, "https://")
}
