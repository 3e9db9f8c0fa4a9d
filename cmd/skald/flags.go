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
	again bool // for completions, which parse the flags twice
}

func (o *once) String() string { return o.value }
func (o *once) Type() string   { return "string" }

func (o *once) Set(v string) error {
	if o.given && !o.again {
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

// targetFlags say where a table is read.
type targetFlags struct {
	natsFlags
	data, url string
	tokenFile string
	file      bool // set by open: the target is a store file
}

func (t *targetFlags) add(f *pflag.FlagSet) {
	f.StringVar(&t.data, "data", "", "read the store in this `directory` (default ./"+target.DefaultData+" if a store is there)")
	f.StringVar(&t.url, "url", "", "ask the gateway at this `URL` (default "+target.DefaultURL+")")
	f.StringVar(&t.tokenFile, "token-file", "", "`file` that holds the token for --url (environment: SKALD_TOKEN)")
	t.natsFlags.add(f)
}

// open reaches the target that the command line means, and says which one that is
// if no flag does.
func (t *targetFlags) open(e env, cmd *cobra.Command) (target.Target, error) {
	named := false
	for _, name := range []string{"data", "url", "server", "context"} {
		f := cmd.Flags().Lookup(name)
		if f.Changed && strings.TrimSpace(f.Value.String()) == "" {
			return nil, usage("--%s: must not be empty", name)
		}
		named = named || f.Changed
	}
	o := target.Options{Data: t.data, URL: t.url, Prefix: t.prefix}
	var from string
	var err error
	if o.Data == "" && o.URL == "" {
		if from, err = t.complete(); err != nil {
			return nil, err
		}
		if from == byFlag {
			o.Server = t.server
		}
		o = o.Resolve(t.server)
		o.NATS = t.options(o.Server)
	}
	if o.Token, err = t.token(o.URL); err != nil {
		return nil, err
	}
	t.file = o.Data != ""
	if !named {
		e.note("skald: %s", unnamed(o, from))
	}
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), connectTimeout, errNoServer)
	defer cancel()
	opened, err := target.Open(ctx, o)
	if errors.Is(err, target.ErrNotNATS) || errors.Is(err, natsconn.ErrURL) && isHTTP(o.Server) {
		err = fmt.Errorf("%w; the address of a gateway (HTTP) goes with --url", err)
	}
	return opened, err
}

// token returns the token for a gateway. It stands in a file or in the environment,
// since everyone on the machine can read command lines.
func (t *targetFlags) token(url string) (string, error) {
	switch {
	case t.tokenFile == "":
		return os.Getenv("SKALD_TOKEN"), nil
	case url == "":
		return "", usage("--token-file is for a gateway, which --url names")
	}
	text, err := os.ReadFile(t.tokenFile)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// unnamed says where an answer comes from that no flag names, and what would.
func unnamed(o target.Options, from string) string {
	switch {
	case o.Data != "":
		return "reading " + fileName(o.Data) + " (file); --url or --server asks a running bus"
	case o.URL != "":
		return "asking " + o.URL + " (HTTP); --data reads a file, --server asks over NATS"
	}
	return "asking " + natsconn.Redact(o.Server) + " (NATS, from " + from + "); --data reads a file, --url asks over HTTP"
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
