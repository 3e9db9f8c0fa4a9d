package bus_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// requireInvalid demands an InvalidError of the reason that names the field.
func requireInvalid(t *testing.T, err error, reason bus.Reason, field string, msgAndArgs ...any) {
	t.Helper()
	var invalid *bus.InvalidError
	require.ErrorAs(t, err, &invalid, msgAndArgs...)
	require.Equal(t, reason, invalid.Reason, msgAndArgs...)
	require.Equal(t, field, invalid.Field, msgAndArgs...)
	require.NotEmpty(t, invalid.Rule, msgAndArgs...)
}

// Ids that brokers do not like (B36) are accepted and come back as given, or are
// refused with the rule; none of them can leave its token.
func TestEscape_AwkwardIDs(t *testing.T) {
	for _, tc := range []struct{ id, token string }{
		{"a b", "a=20b"},
		{"a.b", "a=2Eb"},
		{"a..b", "a=2E=2Eb"},
		{".a", "=2Ea"},
		{"a.", "a=2E"},
		{"*", "=2A"},
		{">", "=3E"},
		{"=", "=3D"},
		{"=20", "=3D20"},
		{"a/b", "a=2Fb"},
		{"a%2Fb", "a=252Fb"},
		{"é", "=C3=A9"},
		{"日本", "=E6=97=A5=E6=9C=AC"},
		{"NUL", "NUL"},
		{"a:b", "a=3Ab"},
		{"a_b", "a_b"},
		{"a-b", "a-b"},
		{"Foo", "Foo"},
		{"foo", "foo"},
		{"\u2028", "=E2=80=A8"},
		{strings.Repeat("x", 200), strings.Repeat("x", 200)},
		{strings.Repeat(".", bus.MaxID), strings.Repeat("=2E", bus.MaxID)},
	} {
		require.NoError(t, bus.CheckID("session", tc.id), tc.id)
		require.Equal(t, tc.token, bus.Escape(tc.id))
		id, err := bus.Unescape("session", tc.token)
		require.NoError(t, err, tc.token)
		require.Equal(t, tc.id, id)
	}
	for _, id := range []string{
		"", "a\r\nPUB x 0", "\x00", "a\tb", "\x7f", "\u0085", "\xff", "a\xc3",
		strings.Repeat("x", 257), strings.Repeat("x", 300), strings.Repeat("x", 5000), strings.Repeat("é", 129),
	} {
		requireInvalid(t, bus.CheckID("session", id), bus.ReasonSubject, "session", "%q", id)
		_, err := bus.Unescape("session", bus.Escape(id))
		requireInvalid(t, err, bus.ReasonSubject, "session", "%q", id)
	}
}

// Of the many ways to write an id only the canonical one is a token.
func TestUnescape_CanonicalOnly(t *testing.T) {
	for _, token := range []string{
		"=", "==", "a=", "a=2", "a=2e", "a=g0", "a=G0", "=41", "=61", "=30", "=5F", "=2D", // escapes of plain bytes, too
		"a b", "a.b", "*", ">", "é", "a%20b", "=C3", "=FF", "=00", "=0A", "=7F", "=C2=85", "",
	} {
		_, err := bus.Unescape("workspace", token)
		requireInvalid(t, err, bus.ReasonSubject, "workspace", "%q", token)
	}
}

func TestKey_Check(t *testing.T) {
	require.NoError(t, bus.Key{Workspace: "w", Session: "s"}.Check())
	requireInvalid(t, bus.Key{Session: "s"}.Check(), bus.ReasonSubject, "workspace")
	requireInvalid(t, bus.Key{Workspace: "w"}.Check(), bus.ReasonSubject, "session")
}

// Every id is one token of its own, and the token gives the id back.
func FuzzEscape(f *testing.F) {
	for _, id := range []string{"a.b", "*", ">", "=", "=2E", "é", "a b", "\x00", "\xff"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		token := bus.Escape(id)
		for _, c := range []byte(token) {
			require.True(t, c == '=' || c == '_' || c == '-' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z', "%q", token)
		}
		back, err := bus.Unescape("session", token)
		if bus.CheckID("session", id) == nil {
			require.NoError(t, err)
			require.Equal(t, id, back)
			return
		}
		require.Error(t, err)
	})
}

// A token that is read is the canonical one of the id that is read.
func FuzzUnescape(f *testing.F) {
	for _, token := range []string{"a=2Eb", "a=2eb", "=", "=41", "a.b", "=C3=A9", "=C3"} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := bus.Unescape("session", token)
		if err != nil {
			var invalid *bus.InvalidError
			require.True(t, errors.As(err, &invalid))
			require.Empty(t, id)
			return
		}
		require.NoError(t, bus.CheckID("session", id))
		require.Equal(t, token, bus.Escape(id))
	})
}
