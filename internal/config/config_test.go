package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/config"
)

// values are the flags of the tests.
type values struct {
	name string
	n    int64
	wait time.Duration
	on   bool
	set  *pflag.FlagSet
}

func flags(t *testing.T, args ...string) *values {
	t.Helper()
	v := &values{set: pflag.NewFlagSet("x", pflag.ContinueOnError)}
	v.set.StringVar(&v.name, "name", "none", "")
	v.set.Int64Var(&v.n, "number-of", 1, "")
	v.set.DurationVar(&v.wait, "wait", time.Second, "")
	v.set.BoolVar(&v.on, "on", false, "")
	v.set.String(config.FileFlag, "", "")
	require.NoError(t, v.set.Parse(args))
	return v
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// The command line comes before a variable, that before the file, that before the
// default; each says where it came from.
func TestApply_Order(t *testing.T) {
	path := file(t, "# all of them\nname: file\nnumber-of: 2\nwait: 2s\n")
	t.Setenv("SKALD_CONFIG", path)
	t.Setenv("SKALD_NUMBER_OF", "3")
	t.Setenv("SKALD_WAIT", "3s")
	t.Setenv("SKALD_ON", "") // says nothing
	t.Setenv("SKALD_SERVICE_HOST", "10.0.0.1")
	v := flags(t, "--wait", "4s")
	from, err := config.Apply(v.set)
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"name": path + ":2", "number-of": "SKALD_NUMBER_OF", "wait": config.FromFlag, "on": config.FromDefault, "config": "SKALD_CONFIG",
	}, from)
	require.Equal(t, "file", v.name)
	require.Equal(t, int64(3), v.n)
	require.Equal(t, 4*time.Second, v.wait)
	require.True(t, v.set.Changed("name"), "as if the command line had said it")
	require.False(t, v.set.Changed("on"))

	v = flags(t, "--config", file(t, "on: true\n"))
	_, err = config.Apply(v.set)
	require.NoError(t, err)
	require.True(t, v.on)
	require.Equal(t, int64(3), v.n)
}

// Values are what is written, whatever YAML would make of them.
func TestApply_AsWritten(t *testing.T) {
	for text, want := range map[string]string{
		"name: 0123":                       "0123",
		"name: 1e3":                        "1e3",
		"name: yes":                        "yes",
		"name: true":                       "true",
		"name: 'it''s'":                    "it's",
		`name: "a\tb"`:                     "a\tb",
		"name: a # comment":                "a",
		"name: |\n  block":                 "block",
		"name: nats://a:1,nats://b:2":      "nats://a:1,nats://b:2",
		"---\nname: one\n":                 "one",
		"name: 123456789012345678901":      "123456789012345678901",
		"\"name\": quoted key":             "quoted key",
		"on: false\nname: after\nwait: 1s": "after",
	} {
		v := flags(t, "--config", file(t, text))
		_, err := config.Apply(v.set)
		require.NoError(t, err, text)
		require.Equal(t, want, v.name, text)
	}
	for _, text := range []string{"", "\n", "# only a comment\n"} {
		v := flags(t, "--config", file(t, text))
		_, err := config.Apply(v.set)
		require.NoError(t, err, text)
		require.Equal(t, "none", v.name)
	}
}

// What can not be used is refused with its place and name, and never with a value,
// which may be a secret under a wrong name.
func TestApply_Refused(t *testing.T) {
	const secret = "pa55word"
	for text, says := range map[string]string{
		"nam: " + secret:                    `c.yaml:1: there is no key "nam"`,
		"name: a\nNAME: " + secret:          `c.yaml:2: there is no key "NAME"`,
		"config: " + secret:                 `c.yaml:1: there is no key "config"`,
		"wait: " + secret:                   "c.yaml:1: wait: must be a duration",
		"number-of: " + secret:              "c.yaml:1: number-of: must be a whole number",
		"number-of: 1.5":                    "c.yaml:1: number-of: must be a whole number",
		"on: " + secret:                     "c.yaml:1: on: must be a truth value",
		"name: [" + secret + "]":            "c.yaml:1: name: must be a single value",
		"name:\n  a: " + secret:             "c.yaml:1: name: must be a single value",
		"name:":                             "c.yaml:1: name: must be a single value",
		"name: &a " + secret:                "c.yaml:1: name: must be a single value",
		"name: a\nname: " + secret:          "c.yaml: must be YAML, keys with values, no key twice",
		"- " + secret:                       "c.yaml: must be keys with values",
		secret:                              "c.yaml: must be keys with values",
		"name: {" + secret:                  "c.yaml: must be YAML",
		"name: a\n---\nname: " + secret:     "c.yaml: must be one document, not 2",
		"name: " + strings.Repeat("x", 2e6): "larger than",
	} {
		v := flags(t, "--config", file(t, text))
		_, err := config.Apply(v.set)
		require.ErrorIs(t, err, config.ErrConfig, text)
		require.ErrorContains(t, err, says, text)
		require.NotContains(t, err.Error(), secret)
	}
	v := flags(t, "--config", "/nonexistent/c.yaml")
	_, err := config.Apply(v.set)
	require.ErrorIs(t, err, config.ErrConfig)
	require.ErrorIs(t, err, os.ErrNotExist)

	t.Setenv("SKALD_WAIT", secret)
	v = flags(t)
	_, err = config.Apply(v.set)
	require.ErrorIs(t, err, config.ErrConfig)
	require.EqualError(t, err, "SKALD_WAIT: wait: must be a duration like 90s or 1h30m")
}
