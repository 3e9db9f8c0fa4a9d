package natsconn

import (
	"fmt"
	"strings"

	"github.com/nats-io/jsm.go/natscontext"
	"github.com/nats-io/nats.go"
)

// ContextURL returns the servers of a context of the nats tool. The error is
// ErrOptions.
func ContextURL(name string) (string, error) {
	c, err := loadContext(name)
	if err != nil {
		return "", err
	}
	return c.ServerURL(), nil
}

// loadContext reads a context, and refuses what it asks for that nothing here does:
// a connection that ignores it would be another one than the nats tool makes.
func loadContext(name string) (*natscontext.Context, error) {
	var c *natscontext.Context
	var err error
	switch {
	case strings.HasSuffix(name, ".json"): // a file, as for the nats tool
		c, err = natscontext.NewFromFile(name)
	case !natscontext.IsKnown(name):
		return nil, fmt.Errorf("%w: there is no NATS context %q, the nats tool lists them with: nats context ls", ErrOptions, name)
	default:
		c, err = natscontext.New(name, true)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read NATS context %q: %w", ErrOptions, name, err)
	}
	for what, value := range map[string]string{
		"a JetStream domain": c.JSDomain(), "a prefix of JetStream's API": c.JSAPIPrefix(),
		"a SOCKS proxy": c.SocksProxy(), "the Windows certificate store": c.WindowsCertStore(),
	} {
		if value != "" {
			return nil, fmt.Errorf("%w: NATS context %q names %s, which skald does not use", ErrOptions, name, what)
		}
	}
	return c, nil
}

// withContext completes o with what its context says where o says nothing. Who
// connects is said by one of the two alone.
func (o Options) withContext() (Options, []nats.Option, error) {
	if o.Context == "" {
		return o, nil, nil
	}
	c, err := loadContext(o.Context)
	if err != nil {
		return o, nil, err
	}
	if o.URL == "" {
		o.URL = c.ServerURL()
	}
	if o.CA == "" {
		o.CA = c.CA()
	}
	if o.Cert == "" && o.Key == "" {
		o.Cert, o.Key = c.Certificate(), c.Key()
	}
	if o.InboxPrefix == "" {
		o.InboxPrefix = c.InboxPrefix()
	}
	o.TLSFirst = o.TLSFirst || c.TLSHandshakeFirst()
	if o.ways() > 0 {
		return o, nil, nil
	}
	opts, err := c.NATSOptions() // reads the secrets that the context only refers to
	if err != nil {
		return o, nil, fmt.Errorf("%w: read NATS context %q: %w", ErrOptions, o.Context, err)
	}
	return o, opts, nil
}

// ways counts the ways in which o says who connects.
func (o Options) ways() int {
	n := 0
	for _, used := range []bool{o.Creds != "", o.NKey != "", o.User != "", o.Token != "", o.JWT != ""} {
		if used {
			n++
		}
	}
	return n
}
