package natsconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
)

const (
	// DefaultURL is the server unless one is named.
	DefaultURL = nats.DefaultURL
	// DefaultTimeout bounds one attempt to connect to one address.
	DefaultTimeout = 5 * time.Second
	// reconnectWait is the pause before the same server is tried again.
	reconnectWait = 500 * time.Millisecond
	// pingInterval and maxPings say when a server that takes bytes and answers
	// nothing, frozen or cut off, is given up: between 10 and 15 s. The client
	// library's own values make it five minutes.
	pingInterval = 5 * time.Second
	maxPings     = 2
)

// Options says where and as whom to connect. At most one way to say who (Creds,
// NKey, User, Token, JWT with Seed) may be used; none is needed if the URL says.
type Options struct {
	// URL is the server's, or several separated by commas. Defaults to DefaultURL.
	URL string

	// CA is a file with certificates of authorities. Defaults to the system's.
	CA string
	// Context is the name of a context of the nats tool, kept in its directory. What
	// it says holds where no field here says otherwise. Defaults to none.
	Context string
	// Cert and Key are files with the client's certificate and its key.
	Cert, Key string
	// Creds is a file with a JWT and its seed.
	Creds string
	// InboxPrefix is the prefix of the subjects on which answers come. Defaults
	// to _INBOX; a user with permissions of its own usually has one of its own.
	InboxPrefix string
	// JWT and Seed are a user's, as text.
	JWT, Seed string
	// Logger receives one line for each change of the connection and each thing
	// that the server refuses. Defaults to none.
	Logger *slog.Logger
	// NKey is a file with an nkey seed.
	NKey string
	// Name is what the server shows for the connection. Defaults to skald.
	Name string
	// Password is User's.
	Password string
	// Retry returns a connection also if no server answers, which then goes on
	// trying.
	Retry bool
	// Timeout bounds one attempt to connect to one address. Defaults to
	// DefaultTimeout.
	Timeout time.Duration
	// TLSFirst makes the handshake before the server has spoken.
	TLSFirst bool
	// Token is a user's without a name.
	Token string
	// User is a user's name.
	User string
}

// Connect tries each server of o.URL once and returns the connection, which then
// reconnects for ever; the caller closes it. ctx ends the attempt and has no
// meaning afterwards.
//
// Errors: [ErrURL] and [ErrOptions] for what can not be used, [ErrRefused],
// [ErrTLS], bus.ErrUnavailable if nothing answers, or the cause of ctx.
func Connect(ctx context.Context, o Options) (*nats.Conn, error) {
	o, base, err := o.withContext()
	if err != nil {
		return nil, err
	}
	if o.URL == "" {
		o.URL = DefaultURL
	}
	servers, ok := parse(o.URL)
	if !ok {
		return nil, fmt.Errorf("%w: it must be scheme://host:port, and special characters of a password must be percent-encoded", ErrURL)
	}
	for _, u := range servers {
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return nil, fmt.Errorf("%w: %s: the scheme must be nats, tls, ws or wss", ErrURL, Redact(o.URL))
		}
	}
	opts, err := o.build()
	if err != nil {
		return nil, err
	}
	d := &dialer{timeout: o.timeout()}
	end := d.first(ctx)
	nc, err := nats.Connect(o.URL, slices.Concat(base, opts, []nats.Option{nats.SetCustomDialer(d)})...)
	end()
	switch {
	case ctx.Err() != nil:
		if err == nil {
			nc.Close()
		}
		return nil, fmt.Errorf("connect to %s: %w", Redact(o.URL), context.Cause(ctx))
	case err != nil:
		return nil, connectError(Redact(o.URL), err)
	}
	return nc, nil
}

func (o Options) timeout() time.Duration {
	if o.Timeout <= 0 {
		return DefaultTimeout
	}
	return o.Timeout
}

// build returns the client's options.
func (o Options) build() ([]nats.Option, error) {
	switch {
	case o.ways() > 1:
		return nil, fmt.Errorf("%w: only one of creds, nkey, user, token and jwt may be given", ErrOptions)
	case (o.JWT == "") != (o.Seed == ""):
		return nil, fmt.Errorf("%w: jwt and seed belong together", ErrOptions)
	case (o.Cert == "") != (o.Key == ""):
		return nil, fmt.Errorf("%w: cert and key belong together", ErrOptions)
	case o.Password != "" && o.User == "":
		return nil, fmt.Errorf("%w: a password needs a user", ErrOptions)
	}
	name := o.Name
	if name == "" {
		name = "skald"
	}
	opts := []nats.Option{
		nats.Name(name),
		nats.Timeout(o.timeout()),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		// By default two refusals in a row close the connection for good, so a
		// mistake in the server's configuration would outlast its repair.
		nats.IgnoreAuthErrorAbort(),
		nats.SkipHostLookup(), // the dialer looks up, and stops when it is told to
		nats.RetryOnFailedConnect(o.Retry),
	}
	opts = append(opts, handlers(o.Logger)...)
	if o.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(o.InboxPrefix))
	}
	if o.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		opts = append(opts, nats.ClientCert(o.Cert, o.Key))
	}
	switch {
	case o.Creds != "":
		opts = append(opts, nats.UserCredentials(o.Creds))
	case o.NKey != "":
		opt, err := nats.NkeyOptionFromSeed(o.NKey)
		if err != nil {
			return nil, fmt.Errorf("%w: nkey file %s: %w", ErrOptions, o.NKey, err)
		}
		opts = append(opts, opt)
	case o.JWT != "":
		opts = append(opts, nats.UserJWTAndSeed(o.JWT, o.Seed))
	case o.User != "":
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	case o.Token != "":
		opts = append(opts, nats.Token(o.Token))
	}
	return opts, nil
}

// connectError says what to check. url has no credentials.
func connectError(url string, err error) error {
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		return fmt.Errorf("connect to %s: %w: %w: check user, password, token, creds or nkey, and the account they belong to", url, ErrRefused, err)
	case record, verify, unknown, errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		return fmt.Errorf("connect to %s: %w: %w: check the URL's scheme, the certificate authority and the host name in the certificate", url, ErrTLS, err)
	case errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), network:
		return fmt.Errorf("connect to %s: %w: %w: check that the server runs, the host and the port", url, bus.ErrUnavailable, err)
	default:
		return fmt.Errorf("connect to %s: %w: check that it is a NATS server that listens there", url, err)
	}
}
