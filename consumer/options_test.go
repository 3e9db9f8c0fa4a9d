package consumer_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// An option that breaks a rule is refused, and the error names it.
func TestNew_Refuses(t *testing.T) {
	for field, o := range map[string]consumer.Options{
		"subjects":  {},
		"session":   {Session: "s"},
		"workspace": {Workspace: strings.Repeat("w", 257)},
		"durable":   {Durable: "a\nb"},
		"from":      {From: from(bus.MaxSeq + 1)},
		"newest":    {From: from(1), Newest: true},
		"types":     {Types: []string{"error", "a.*"}},
	} {
		if field != "subjects" {
			o.Subjects = skaldtest.Subjects(t)
		}
		_, err := consumer.New(nil, o)
		var invalid *bus.InvalidError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	for _, types := range [][]string{{""}, {">"}, {strings.Repeat("t", 65)}, strings.Split(strings.Repeat("t ", 33)+"u", " ")} {
		o := consumer.Options{Subjects: skaldtest.Subjects(t), Types: types}
		for i := range types {
			if types[i] == "t" {
				types[i] += strings.Repeat("x", i) // 33 different ones
			}
		}
		_, err := consumer.New(nil, o)
		require.Error(t, err, "%q", types)
	}
}
