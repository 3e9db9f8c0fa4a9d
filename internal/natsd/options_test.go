package natsd

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

// Without a configuration file the server syncs before it acknowledges, has no
// monitoring port, no signal handler, and no limit of consumers.
func TestBuild_Defaults(t *testing.T) {
	so, err := Options{Dir: t.TempDir()}.build()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", so.Host)
	require.Equal(t, 4222, so.Port)
	require.True(t, so.JetStream)
	require.True(t, so.SyncAlways)
	require.Zero(t, so.SyncInterval)
	require.EqualValues(t, 8<<20, so.MaxPayload)
	require.Equal(t, -1, so.JetStreamLimits.DefaultMaxConsumers)
	require.Equal(t, DefaultBatchMessages, so.JetStreamLimits.MaxBatchSize)
	require.True(t, so.NoSigs)
	require.Zero(t, so.HTTPPort)
	require.Zero(t, so.HTTPSPort)
	require.Zero(t, so.ProfPort)
}

// What a configuration file sets stays, what it leaves out is completed.
func TestBuild_ConfigFile(t *testing.T) {
	dir := t.TempDir()
	with := func(config string, o Options) (*server.Options, error) {
		o.Dir = dir
		o.ConfigFile = filepath.Join(t.TempDir(), "nats.conf")
		require.NoError(t, os.WriteFile(o.ConfigFile, []byte(config), 0o600))
		return o.build()
	}

	so, err := with(`listen: 0.0.0.0:4333, max_payload: 2MB, http: 127.0.0.1:8222
		jetstream { sync_interval: 10s, max_file_store: 1GB, limits { default_max_consumers: 7, batch { max_msgs: 700 } } }`,
		Options{MaxPayload: 1 << 20, SyncInterval: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0", so.Host)
	require.Equal(t, 4333, so.Port)
	require.EqualValues(t, 2<<20, so.MaxPayload)
	require.Equal(t, 10*time.Second, so.SyncInterval)
	require.False(t, so.SyncAlways)
	require.EqualValues(t, 1<<30, so.JetStreamMaxStore)
	require.Equal(t, 7, so.JetStreamLimits.DefaultMaxConsumers)
	require.Equal(t, 700, so.JetStreamLimits.MaxBatchSize)
	require.Equal(t, 8222, so.HTTPPort)
	require.Equal(t, dir, so.StoreDir)

	so, err = with(`server_name: one`, Options{})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", so.Host)
	require.Equal(t, 4222, so.Port)
	require.True(t, so.JetStream)
	require.True(t, so.SyncAlways)
	require.EqualValues(t, 8<<20, so.MaxPayload)
	require.Equal(t, -1, so.JetStreamLimits.DefaultMaxConsumers)
	require.Equal(t, DefaultBatchMessages, so.JetStreamLimits.MaxBatchSize)

	so, err = with(`jetstream { sync_interval: always }`, Options{SyncInterval: time.Minute})
	require.NoError(t, err)
	require.True(t, so.SyncAlways)

	so, err = with(`listen: 127.0.0.1:4333`, Options{Listen: "0.0.0.0:0"})
	require.NoError(t, err)
	require.Equal(t, "0.0.0.0", so.Host)
	require.Equal(t, server.RANDOM_PORT, so.Port)

	so, err = with(`jetstream { store_dir: "`+dir+`" }`, Options{})
	require.NoError(t, err)
	require.Equal(t, dir, so.StoreDir)

	_, err = with(`jetstream { store_dir: "/elsewhere" }`, Options{})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "/elsewhere")
	require.ErrorContains(t, err, dir)

	_, err = with(`listen: [`, Options{})
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, "nats.conf")

	_, err = Options{Dir: dir, ConfigFile: filepath.Join(dir, "none.conf")}.build()
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Without a configuration file nothing but loopback is listened on.
func TestBuild_Listen(t *testing.T) {
	for _, tc := range []struct {
		listen string
		port   int
		err    error
	}{
		{"127.0.0.1:4300", 4300, nil},
		{"127.8.8.8:4300", 4300, nil},
		{"[::1]:4300", 4300, nil},
		{"localhost:4300", 4300, nil},
		{"localhost:0", server.RANDOM_PORT, nil},
		{"localhost:-1", server.RANDOM_PORT, nil},
		{"0.0.0.0:4222", 0, ErrExposed},
		{"[::]:4222", 0, ErrExposed},
		{":4222", 0, ErrExposed},
		{"10.0.0.1:4222", 0, ErrExposed},
		{"localhost.example:4222", 0, ErrExposed},
		{"127.0.0.1", 0, ErrAddress},
		{"127.0.0.1:", 0, ErrAddress},
		{"127.0.0.1:nats", 0, ErrAddress},
		{"127.0.0.1:65536", 0, ErrAddress},
		{"127.0.0.1:-2", 0, ErrAddress},
		{"::1:4222", 0, ErrAddress},
	} {
		so, err := Options{Dir: t.TempDir(), Listen: tc.listen}.build()
		require.ErrorIs(t, err, tc.err, tc.listen)
		if tc.err == nil {
			require.Equal(t, tc.port, so.Port, tc.listen)
		} else {
			require.ErrorContains(t, err, tc.listen)
		}
	}
}

// Values that mean nothing are refused by name.
func TestBuild_Refuses(t *testing.T) {
	_, err := Options{}.build()
	require.ErrorIs(t, err, ErrStoreDir)
	_, err = Options{Dir: "d", MaxPayload: -1}.build()
	require.ErrorContains(t, err, "max payload -1")
	_, err = Options{Dir: "d", SyncInterval: -time.Second}.build()
	require.ErrorContains(t, err, "sync interval -1s")
}
