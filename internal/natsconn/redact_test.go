package natsconn_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/natsconn"
)

// Only scheme, host and port are shown.
func TestRedact(t *testing.T) {
	for _, tc := range []struct{ url, shown string }{
		{"nats://127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{"nats://user:pa55@host", "nats://host"},
		{"nats://user:pa55@host:4222", "nats://host:4222"},
		{"tls://token@host:4222", "tls://host:4222"},
		{"user:pa55@host:4222", "nats://host:4222"},
		{"host", "nats://host"},
		{"nats://u:p@a:1, nats://u:p@b:2", "nats://a:1,nats://b:2"},
		{"a:1,b:2", "nats://a:1,nats://b:2"},
		{"nats://user:pa%2F55@[::1]:4222", "nats://[::1]:4222"},
		{"wss://u:p@host/path/bot123:TEST?token=abc#frag", "wss://host"},
		{"nats://user:p@ss@host", "nats://host"},
		// What follows can be read in two ways, or in none.
		{"nats://user:pa/55@host", "(URL not shown)"},
		{"nats://user:12/34@host", "(URL not shown)"},
		{"nats://user:12?34@host", "(URL not shown)"},
		{"nats://user:12#34@host", "(URL not shown)"},
		{"nats://user:12,34@host", "(URL not shown)"},
		{"nats://user:pa 55@host", "(URL not shown)"},
		{"nats://user:pa%zz@host", "(URL not shown)"},
		{"nats://host:pa55", "(URL not shown)"},
		{"nats://", "(URL not shown)"},
		{"", "(URL not shown)"},
		{"nats:user:pa55", "(URL not shown)"},
	} {
		require.Equal(t, tc.shown, natsconn.Redact(tc.url), tc.url)
	}
}

// Whatever a password consists of, escaped or not, none of it is shown.
func TestRedact_AnyPassword(t *testing.T) {
	seed := [2]uint64{rand.Uint64(), rand.Uint64()}
	t.Logf("seed %v", seed)
	r := rand.New(rand.NewPCG(seed[0], seed[1]))
	const alphabet = `0123456789abc:/?#[]@!$&'()*+,;=%\ "<>-._~é` + "\n"
	letters := []rune(alphabet)
	for range 50_000 {
		password := []rune("Q") // occurs nowhere else, so that any part of it is found
		for range r.IntN(12) {
			password = append(password, letters[r.IntN(len(letters))], 'Q')
		}
		if strings.Contains(string(password), "://") {
			continue // reads like a list of servers, and is one
		}
		url := "nats://user:" + string(password) + "@host:4222"
		shown := natsconn.Redact(url)
		require.NotContains(t, shown, "Q", "%q", url)
		require.NotContains(t, shown, "user", "%q", url)
	}
}
