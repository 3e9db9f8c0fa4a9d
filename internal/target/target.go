package target

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsconn"
)

const (
	// DefaultData is the data directory unless one is named.
	DefaultData = "skald-data"
	// DefaultURL is where the gateway of a local serve is.
	DefaultURL = "http://127.0.0.1:7525"
	// DefaultServer is where the NATS server of a local serve is.
	DefaultServer = "nats://127.0.0.1:4222"
	// StoreFile is the store's name in a data directory.
	StoreFile = "skald.db"
)

// ErrUsage: an option has a value that can not mean anything.
var ErrUsage = errors.New("wrong option")

// Target answers queries. Its methods return the JSON texts of package api and,
// where the other side refuses, its *api.Failure or an error that
// api.FailureOf knows. Safe for concurrent use.
type Target interface {
	// Events returns a page of events.
	Events(ctx context.Context, p api.Params) ([]byte, error)
	// Sessions returns a list of sessions.
	Sessions(ctx context.Context, p api.Params) ([]byte, error)
	// Session returns one session.
	Session(ctx context.Context, id string, p api.Params) ([]byte, error)
	// Status returns positions, lags and counters.
	Status(ctx context.Context) ([]byte, error)
	// String says where it is, without credentials.
	String() string
	// Close lets go of the file or the connection.
	Close() error
}

// Options name a target. The first of Data, URL and Server that is not empty
// counts.
type Options struct {
	Data   string           // a data directory
	NATS   natsconn.Options // how to connect; its URL is set from Server
	Prefix string           // of the bus's subjects, "" is bus.DefaultPrefix
	Server string           // a NATS server's URL
	Token  string           // for the gateway, "" if it needs none
	URL    string           // a gateway's URL
}

// Resolve fills in what is meant if nothing is named. natsURL is the value of
// NATS_URL, "" if it is not set.
func (o Options) Resolve(natsURL string) Options {
	if o.Data != "" || o.URL != "" || o.Server != "" {
		return o
	}
	if natsURL != "" {
		o.Server = natsURL
		return o
	}
	if _, err := os.Stat(filepath.Join(DefaultData, StoreFile)); err == nil {
		o.Data = DefaultData
		return o
	}
	o.URL = DefaultURL
	return o
}

// Open reaches the target that o names. An option that can not be meant is
// ErrUsage; errors of the store, of HTTP and of NATS name the place.
func Open(ctx context.Context, o Options) (Target, error) {
	switch {
	case o.Data != "":
		return openFile(o.Data)
	case o.URL != "":
		return openHTTP(o.URL, o.Token)
	case o.Server != "":
		return OpenNATS(ctx, o)
	}
	return nil, fmt.Errorf("%w: no target is named", ErrUsage)
}

// unreachable says that a place does not answer, in a way that errors.Is finds.
func unreachable(place, check string, err error) error {
	return fmt.Errorf("%s: %w: %w; %s", place, bus.ErrUnavailable, err, check)
}
