package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

func subjects(t testing.TB, prefix string) bus.Subjects {
	t.Helper()
	s, err := bus.NewSubjects(prefix)
	require.NoError(t, err)
	return s
}

func TestNewSubjects(t *testing.T) {
	s := subjects(t, "")
	require.Equal(t, "skald", s.Prefix())
	require.Equal(t, "SKALD_INGEST", s.IngestStream())
	require.Equal(t, "SKALD_EVENTS", s.EventsStream())
	require.Equal(t, "SKALD_STATE", s.StateBucket())
	require.Equal(t, "skald.in.*.*.*", s.IngestFilter())
	require.Equal(t, "skald.ev.*.*.*", s.EventsFilter())
	require.Equal(t, "skald.in.=.=.control", s.IngestAdmin())
	require.Equal(t, "skald.ev.=.=.void", s.Void())
	require.Equal(t, "TEAM-1_X_INGEST", subjects(t, "team-1_x").IngestStream())
	subjects(t, strings.Repeat("a", 32))

	for _, prefix := range []string{"Skald", "a.b", "a b", "*", ">", "é", "a=2E", strings.Repeat("a", 33)} {
		_, err := bus.NewSubjects(prefix)
		requireInvalid(t, err, "", "prefix", prefix)
	}
}

// Subjects are read as they are written, for ids of any kind.
func TestSubjects_RoundTrip(t *testing.T) {
	s := subjects(t, "team")
	for _, k := range []bus.Key{
		{Workspace: "default", Session: "session-1"},
		{Workspace: "a.b", Session: "a_b"},
		{Workspace: "*", Session: ">"},
		{Workspace: "=", Session: "="},
		{Workspace: strings.Repeat(".", bus.MaxID), Session: strings.Repeat("é", bus.MaxID/2)},
	} {
		for _, class := range []bus.Class{bus.ClassSession, bus.ClassActivity, bus.ClassError, bus.ClassProjection, bus.ClassControl} {
			require.True(t, class.Known())
			got, gotClass, admin, err := s.ParseIngest(s.Ingest(k, class))
			require.NoError(t, err)
			require.Equal(t, k, got)
			require.Equal(t, class, gotClass)
			require.False(t, admin)
		}
		got, typ, err := s.ParseEvent(s.Event(k, bus.TypeTurnStarted))
		require.NoError(t, err)
		require.Equal(t, k, got)
		require.Equal(t, bus.TypeTurnStarted, typ)
		require.Equal(t, 4, strings.Count(s.Ingest(k, bus.ClassError), "."))
		require.Equal(t, 3, strings.Count(s.Done(k), "."))
		// The server closes a connection whose control line is longer than this.
		require.Less(t, len(s.Ingest(k, bus.ClassProjection)), 4096)
	}
}

// Ids that some program might take for one another keep subjects of their own.
func TestSubjects_Apart(t *testing.T) {
	s := subjects(t, "")
	seen := map[string]bus.Key{}
	ids := []string{"a.b", "a_b", "a*b", "a=2Eb", "Foo", "foo", "a", "b", "a b", "a%20b"}
	for _, w := range ids {
		for _, id := range ids {
			k := bus.Key{Workspace: w, Session: id}
			subject := s.Ingest(k, bus.ClassError)
			other, taken := seen[subject]
			require.False(t, taken, "%v and %v", k, other)
			seen[subject] = k
		}
	}
}

// An unknown class leaves the session known, so that the reject can name it.
func TestParseIngest_UnknownClass(t *testing.T) {
	k, class, admin, err := subjects(t, "").ParseIngest("skald.in.w.s.news")
	require.NoError(t, err)
	require.Equal(t, bus.Key{Workspace: "w", Session: "s"}, k)
	require.Equal(t, bus.Class("news"), class)
	require.False(t, class.Known())
	require.False(t, admin)
}

// The subject without a session is for control messages alone.
func TestParseIngest_Admin(t *testing.T) {
	s := subjects(t, "")
	k, class, admin, err := s.ParseIngest(s.IngestAdmin())
	require.NoError(t, err)
	require.Zero(t, k)
	require.Equal(t, bus.ClassControl, class)
	require.True(t, admin)

	for _, subject := range []string{"skald.in.=.=.session", "skald.in.=.=.news"} {
		_, _, admin, err := s.ParseIngest(subject)
		requireInvalid(t, err, bus.ReasonSubject, "subject", subject)
		require.False(t, admin)
	}
}

func TestParse_BadSubjects(t *testing.T) {
	s := subjects(t, "")
	for subject, field := range map[string]string{
		"":                         "subject",
		"skald.in":                 "subject",
		"skald.in.w.s":             "subject",
		"skald.in.w.s.":            "subject",
		"skald.in.w..error":        "subject",
		"skald.in..s.error":        "subject",
		"skald.in.w.s.error.x":     "subject",
		"skald.ev.w.s.error":       "subject",
		"other.in.w.s.error":       "subject",
		"skald.in.=.s.error":       "workspace",
		"skald.in.w.=.error":       "session",
		"skald.in.a%20b.s.error":   "workspace",
		"skald.in.w.a=2eb.error":   "session",
		"skald.in.w.=41.error":     "session",
		"skald.in.w.=0D=0A.error":  "session",
		"skald.in.w.*.error":       "session",
		"skald.in.w.=FF.control":   "session",
		"skald.in.w.é.projection":  "session",
		"skald.in.=00.s.activity":  "workspace",
		"skald.in.w.a=2Eb=.weird":  "session",
		"skald.in.w.a=2Eb=2.weird": "session",
	} {
		_, _, _, err := s.ParseIngest(subject)
		requireInvalid(t, err, bus.ReasonSubject, field, subject)
	}
	for subject, field := range map[string]string{
		"skald.ev.w.s":       "subject",
		"skald.in.w.s.error": "subject",
		s.Void():             "workspace",
		"skald.ev.w.=.error": "session",
	} {
		_, _, err := s.ParseEvent(subject)
		requireInvalid(t, err, bus.ReasonSubject, field, subject)
	}
}
