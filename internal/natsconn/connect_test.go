package natsconn_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// server starts one with the configuration, which may be empty.
func server(t *testing.T, listen, config string) *natsd.Server {
	t.Helper()
	o := natsd.Options{Dir: t.TempDir(), Listen: listen, SyncInterval: time.Minute}
	if config != "" {
		o.ConfigFile = write(t, "nats.conf", []byte(config))
	}
	s, err := natsd.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	return s
}

func write(t *testing.T, name string, b []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, b, 0o600))
	return file
}

func connect(t *testing.T, o natsconn.Options) *nats.Conn {
	t.Helper()
	nc, err := natsconn.Connect(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// logs collects log lines.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

const patience = skaldtest.Timeout

// lines is how often an error may be logged that is repeated for so long: once in ten
// seconds.
func lines(repeated time.Duration) int { return 1 + int(repeated/(10*time.Second)) }

func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, patience, 10*time.Millisecond)
}

// Every way to say who one is lets one in, and the server sees the name.
func TestConnect_Credentials(t *testing.T) {
	t.Parallel()
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public, err := user.PublicKey()
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)

	s := server(t, "127.0.0.1:0", `authorization { users: [ {user: u, password: "pa/55"}, {nkey: `+public+`} ] }`)
	host := s.Addr().String()
	for name, o := range map[string]natsconn.Options{
		"user":        {URL: s.ClientURL(), User: "u", Password: "pa/55"},
		"in the URL":  {URL: "nats://u:pa%2F55@" + host},
		"nkey":        {URL: host, NKey: write(t, "user.nk", seed)},
		"two servers": {URL: "nats://127.0.0.1:1," + s.ClientURL(), User: "u", Password: "pa/55"},
	} {
		nc := connect(t, o)
		require.Equal(t, nats.CONNECTED, nc.Status(), name)
		require.Equal(t, "skald", nc.Opts.Name, name)
	}

	token := server(t, "127.0.0.1:0", `authorization { token: t0ken }`)
	connect(t, natsconn.Options{URL: token.ClientURL(), Token: "t0ken"})
}

// A creds file, or the JWT and the seed in it, works with a server that trusts
// an operator.
func TestConnect_Creds(t *testing.T) {
	t.Parallel()
	operator, err := nkeys.CreateOperator()
	require.NoError(t, err)
	account, err := nkeys.CreateAccount()
	require.NoError(t, err)
	user, err := nkeys.CreateUser()
	require.NoError(t, err)
	public := func(k nkeys.KeyPair) string {
		p, err := k.PublicKey()
		require.NoError(t, err)
		return p
	}
	operatorJWT, err := jwt.NewOperatorClaims(public(operator)).Encode(operator)
	require.NoError(t, err)
	accountJWT, err := jwt.NewAccountClaims(public(account)).Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(public(user)).Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)

	system, err := nkeys.CreateAccount()
	require.NoError(t, err)
	systemJWT, err := jwt.NewAccountClaims(public(system)).Encode(operator)
	require.NoError(t, err)

	s := server(t, "127.0.0.1:0", fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: { %s: %s, %s: %s }",
		operatorJWT, public(system), public(system), systemJWT, public(account), accountJWT))
	connect(t, natsconn.Options{URL: s.ClientURL(), Creds: write(t, "user.creds", creds)})
	connect(t, natsconn.Options{URL: s.ClientURL(), JWT: userJWT, Seed: string(seed)})
	_, err = natsconn.Connect(t.Context(), natsconn.Options{URL: s.ClientURL()})
	require.ErrorIs(t, err, natsconn.ErrRefused)
}

// What is wrong is told apart and named, and no text has a password in it (B43).
func TestConnect_Errors(t *testing.T) {
	t.Parallel()
	s := server(t, "127.0.0.1:0", `authorization { user: user, password: right }`)
	host := s.Addr().String()

	talker, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer talker.Close()
	go func() {
		for {
			c, err := talker.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "220 mail.example ESMTP\r\n")
			c.Close()
		}
	}()

	for name, tc := range map[string]struct {
		o     natsconn.Options
		err   error
		names string // the text must hold it
	}{
		"nobody listens":  {natsconn.Options{URL: "nats://user:pa55@127.0.0.1:1"}, bus.ErrUnavailable, "nats://127.0.0.1:1"},
		"no such host":    {natsconn.Options{URL: "nats://user:pa55@no-such-host.invalid"}, bus.ErrUnavailable, "no-such-host.invalid"},
		"wrong password":  {natsconn.Options{URL: "nats://user:pa55@" + host}, natsconn.ErrRefused, "nats://" + host},
		"no password":     {natsconn.Options{URL: "nats://" + host}, natsconn.ErrRefused, "check user"},
		"unescaped":       {natsconn.Options{URL: "nats://user:pa55/word@" + host}, natsconn.ErrURL, "percent-encoded"},
		"space":           {natsconn.Options{URL: "nats://user:pa55 word@" + host}, natsconn.ErrURL, "percent-encoded"},
		"scheme":          {natsconn.Options{URL: "http://user:pa55@" + host}, natsconn.ErrURL, "http://" + host},
		"not NATS":        {natsconn.Options{URL: "nats://user:pa55@" + talker.Addr().String()}, nil, "check that it is a NATS server"},
		"two ways":        {natsconn.Options{URL: host, User: "user", Password: "pa55", Token: "t0ken"}, natsconn.ErrOptions, "only one"},
		"half of a pair":  {natsconn.Options{URL: host, Cert: "cert.pem"}, natsconn.ErrOptions, "belong together"},
		"JWT alone":       {natsconn.Options{URL: host, JWT: "j"}, natsconn.ErrOptions, "belong together"},
		"password alone":  {natsconn.Options{URL: host, Password: "pa55"}, natsconn.ErrOptions, "needs a user"},
		"no nkey file":    {natsconn.Options{URL: host, NKey: "/none/user.nk"}, natsconn.ErrOptions, "/none/user.nk"},
		"no creds file":   {natsconn.Options{URL: host, Creds: "/none/user.creds"}, os.ErrNotExist, "/none/user.creds"},
		"no authorities":  {natsconn.Options{URL: "tls://user:pa55@" + host, CA: "/none/ca.pem"}, os.ErrNotExist, "/none/ca.pem"},
		"TLS but no need": {natsconn.Options{URL: "tls://user:pa55@" + host}, natsconn.ErrTLS, "check the URL's scheme"},
	} {
		nc, err := natsconn.Connect(t.Context(), tc.o)
		require.Error(t, err, name)
		require.Nil(t, nc, name)
		if tc.err != nil {
			require.ErrorIs(t, err, tc.err, name)
		}
		require.ErrorContains(t, err, tc.names, name)
		require.NotContains(t, err.Error(), "pa55", name)
		require.NotContains(t, err.Error(), "t0ken", name)
	}
}

// A server that never speaks is left after the time-out, and at once when the
// context ends.
func TestConnect_SilentServer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	url := func(l net.Listener) string { return "nats://user:pa55@" + l.Addr().String() }

	_, err = natsconn.Connect(t.Context(), natsconn.Options{URL: url(silent), Timeout: 50 * time.Millisecond})
	require.ErrorIs(t, err, bus.ErrUnavailable)

	stops, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer stops.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped")
	go func() {
		for {
			c, err := stops.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			cancel(cause)
		}
	}()
	_, err = natsconn.Connect(ctx, natsconn.Options{URL: url(stops), Timeout: time.Hour})
	require.ErrorIs(t, err, cause)
	require.NotContains(t, err.Error(), "pa55")

	_, err = natsconn.Connect(ctx, natsconn.Options{URL: url(stops), Timeout: time.Hour}) // ended before
	require.ErrorIs(t, err, cause)
}

// A connection outlives its server, says so, and shows no password.
func TestConnect_Reconnects(t *testing.T) {
	t.Parallel()
	const right, wrong = `authorization { user: user, password: pa55 }`, `authorization { user: user, password: other }`
	s := server(t, skaldtest.FreeAddress(t), right)
	addr := s.Addr().String()
	var l logs
	nc := connect(t, natsconn.Options{URL: "nats://user:pa55@" + addr, Logger: l.logger()})
	s.Shutdown()
	eventually(t, func() bool { return l.count("NATS connection lost") > 0 })

	// A server that refuses the password for a while does not end it.
	began := time.Now()
	var refusals logs
	s, err := natsd.Start(t.Context(), natsd.Options{
		Dir: t.TempDir(), Listen: addr, ConfigFile: write(t, "nats.conf", []byte(wrong)), Logger: refusals.logger(),
	})
	require.NoError(t, err)
	t.Cleanup(s.Shutdown)
	eventually(t, func() bool { return refusals.count("level=ERROR") >= 3 }) // one line a second
	refused := func() int { return l.count("Authorization Violation") + l.count("authorization violation") }
	eventually(t, func() bool { return refused() > 0 })
	s.Shutdown()
	require.LessOrEqual(t, refused(), lines(time.Since(began)))
	server(t, addr, right)
	eventually(t, func() bool { return nc.Status() == nats.CONNECTED && l.count("NATS connection is back") == 1 })
	require.Zero(t, l.count("pa55"))
	require.NotZero(t, l.count("server=nats://"+addr))
}

// TLS works with the authority's file, and without it says what to check.
func TestConnect_TLS(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	s := server(t, "127.0.0.1:0", fmt.Sprintf("tls { cert_file: %q, key_file: %q }", cert, key))
	require.Contains(t, s.ClientURL(), "tls://")
	nc := connect(t, natsconn.Options{URL: s.ClientURL(), CA: cert})
	require.Equal(t, nats.CONNECTED, nc.Status())

	_, err := natsconn.Connect(t.Context(), natsconn.Options{URL: s.ClientURL()})
	require.ErrorIs(t, err, natsconn.ErrTLS)
	require.ErrorContains(t, err, s.Addr().String())
}

// certificate makes one for 127.0.0.1 that is its own authority.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotAfter:              time.Now().Add(time.Hour),
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return write(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}
