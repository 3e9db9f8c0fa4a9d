package main

import (
	"context"
	"os"

	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/target"
)

// natsFlags say how to reach a NATS server, as those of the nats tool do.
type natsFlags struct {
	server, context        string
	creds, nkey            string
	user, password         string
	tlsCert, tlsKey, tlsCA string
	prefix                 string
}

func (n *natsFlags) add(f *pflag.FlagSet) {
	f.StringVar(&n.server, "server", "", "NATS server's `URL` (environment: NATS_URL)")
	f.StringVar(&n.context, "context", "", "`name` of a context of the nats tool, or its file if it ends in .json (NATS_CONTEXT)")
	f.StringVar(&n.creds, "creds", "", "credentials `file` for NATS (NATS_CREDS)")
	f.StringVar(&n.nkey, "nkey", "", "nkey seed `file` for NATS (NATS_NKEY)")
	f.StringVar(&n.user, "user", "", "user `name` for NATS, or a token if there is no password (NATS_USER)")
	f.StringVar(&n.password, "password", "", "`password` for NATS (NATS_PASSWORD, which other users of the machine do not see)")
	f.StringVar(&n.tlsCert, "tlscert", "", "client certificate `file` for NATS (NATS_CERT)")
	f.StringVar(&n.tlsKey, "tlskey", "", "client key `file` for NATS (NATS_KEY)")
	f.StringVar(&n.tlsCA, "tlsca", "", "certificate authority `file` for NATS (NATS_CA)")
	f.StringVar(&n.prefix, "prefix", "", "first `token` of the bus's subjects (default skald)")
}

// natsVariables are the variables of the nats tool that stand for flags.
var natsVariables = map[string]string{
	"server": "NATS_URL", "context": "NATS_CONTEXT", "creds": "NATS_CREDS", "nkey": "NATS_NKEY", "user": "NATS_USER",
	"password": "NATS_PASSWORD", "tlscert": "NATS_CERT", "tlskey": "NATS_KEY", "tlsca": "NATS_CA",
}

// byFlag is what complete returns if a flag names the server. Anything else that it
// returns is the variable that does.
const byFlag = "a flag"

// complete fills in from the environment what no flag says, and the server from the
// context that is named. It returns what named the server, "" if nothing did: then
// the server is still empty.
func (n *natsFlags) complete() (from string, err error) {
	if n.server != "" || n.context != "" {
		from = byFlag
	}
	orEnv := func(to *string, flag string) bool {
		if *to == "" {
			*to = os.Getenv(natsVariables[flag])
			return *to != ""
		}
		return false
	}
	orEnv(&n.tlsCA, "tlsca")
	if n.tlsCert == "" && n.tlsKey == "" {
		orEnv(&n.tlsCert, "tlscert")
		orEnv(&n.tlsKey, "tlskey")
	}
	if from == "" && orEnv(&n.server, "server") {
		from = natsVariables["server"]
	}
	if n.context == "" && orEnv(&n.context, "context") && from == "" {
		from = natsVariables["context"]
	}
	// Who connects is said at one place: by flags, by variables, or by the context.
	switch {
	case n.creds != "" || n.nkey != "" || n.user != "":
		if n.user != "" {
			orEnv(&n.password, "password")
		}
	case orEnv(&n.creds, "creds"), orEnv(&n.nkey, "nkey"):
	case orEnv(&n.user, "user"):
		orEnv(&n.password, "password")
	}
	if n.server == "" && n.context != "" {
		n.server, err = natsconn.ContextURL(n.context)
	}
	return from, err
}

// options returns what the flags say, of the server at url.
func (n *natsFlags) options(url string) natsconn.Options {
	o := natsconn.Options{
		URL: url, Context: n.context, Creds: n.creds, NKey: n.nkey, User: n.user, Password: n.password,
		Cert: n.tlsCert, Key: n.tlsKey, CA: n.tlsCA,
	}
	if o.User != "" && o.Password == "" {
		o.User, o.Token = "", o.User
	}
	return o
}

// open connects to the NATS server that is meant.
func (n *natsFlags) open(ctx context.Context) (*target.NATS, error) { return n.reach(ctx, false) }

// reach is open; with retry it is no error if the server does not answer yet.
func (n *natsFlags) reach(ctx context.Context, retry bool) (*target.NATS, error) {
	if _, err := n.complete(); err != nil {
		return nil, err
	}
	server := n.server
	if server == "" {
		server = target.DefaultServer
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, errNoServer)
	defer cancel()
	o := n.options(server)
	o.Retry = retry
	return target.OpenNATS(ctx, target.Options{Server: server, Prefix: n.prefix, NATS: o})
}
