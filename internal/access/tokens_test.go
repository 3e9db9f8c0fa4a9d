package access_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/skaldtest"
)

func TestMain(m *testing.M) { skaldtest.VerifyLeaks(m) }

// A token that was made is known by its line, which does not hold it.
func TestNew(t *testing.T) {
	token, line, err := access.New("ci", []string{"b", "a", "a"})
	require.NoError(t, err)
	require.Regexp(t, `^skald_[A-Za-z0-9_-]{43}$`, token)
	sum := sha256.Sum256([]byte(token))
	require.Equal(t, `{"name":"ci","sha256":"`+hex.EncodeToString(sum[:])+`","workspaces":["b","a","a"]}`, string(line))
	path := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(path, line, 0o600))
	tokens, err := access.Open(path, nil)
	require.NoError(t, err)
	g := tokens.Find(token)
	require.Equal(t, []string{"a", "b"}, g.Workspaces)
	require.False(t, g.All())
	require.Nil(t, tokens.Find(token+"x"))
	require.Nil(t, tokens.Find(""))
	require.Nil(t, tokens.Find(strings.Repeat("x", 1000)))
	other, _, err := access.New("ci", nil)
	require.NoError(t, err)
	require.NotEqual(t, token, other)

	var invalid *bus.InvalidError
	_, _, err = access.New("", nil)
	require.ErrorAs(t, err, &invalid)
	_, _, err = access.New("x", []string{""})
	require.ErrorAs(t, err, &invalid)
}

// A file that breaks a rule is refused with the line and the rule.
func TestCheck(t *testing.T) {
	sum := strings.Repeat("a", 64)
	require.NoError(t, access.Check(nil))
	require.NoError(t, access.Check([]byte("# c\n\n {\"name\":\"x\",\"sha256\":\""+sum+"\",\"all\":true} \r\n")))
	for text, rule := range map[string]string{
		`{`:                                   "line 1",
		`[]`:                                  "line 1",
		"#\n" + `{"name":"x"}`:                "line 2: sha256: must be 64 hexadecimal digits",
		`{"sha256":"` + sum + `"}`:            "name: must be 1 to 64 printable",
		`{"name":"x","sha256":"zz"}`:          "sha256",
		`{"name":"x","sha256":"` + sum + `"}`: "workspaces: must list the workspaces",
		`{"name":"x","sha256":"` + sum + `","workspaces":[]}`:                                                                          "workspaces: must list the workspaces",
		`{"name":"x","sha256":"` + sum + `","workspaces":["a"],"all":true}`:                                                            "can not be listed beside all",
		`{"name":"x","sha256":"` + sum + `","workspaces":["a\n"]}`:                                                                     "control characters",
		`{"name":"x","sha256":"` + sum + `","workspace":"a"}`:                                                                          "unknown field",
		`{"name":"x","sha256":"` + sum + `","all":true} {}`:                                                                            "must be one JSON object",
		`{"name":"x","sha256":"` + sum + `","all":true}` + "\n" + `{"name":"y","sha256":"` + sum + `","all":true}`:                     "a second time",
		`{"name":"x","sha256":"` + sum + `","all":true}` + "\n" + `{"name":"x","sha256":"` + strings.Repeat("b", 64) + `","all":true}`: "a second time",
	} {
		err := access.Check([]byte(text))
		require.ErrorIs(t, err, access.ErrFile, text)
		require.ErrorContains(t, err, rule, text)
	}
	_, err := access.Open(filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, access.ErrFile)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Changes are put in force; a grant ends when its token is gone or has another scope,
// and stays when only other lines change.
func TestTokens_Run(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	a, lineA, err := access.New("a", nil)
	require.NoError(t, err)
	b, lineB, err := access.New("b", []string{"w"})
	require.NoError(t, err)
	write := func(lines ...string) {
		skaldtest.ReplaceFile(t, path, []byte(strings.Join(lines, "\n")))
	}
	write(string(lineA))
	tokens, err := access.Open(path, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- tokens.Run(ctx) }()
	first := tokens.Find(a)
	write(string(lineA), string(lineB)) // noticed without being told
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return tokens.Find(b) != nil })
	require.Same(t, first, tokens.Find(a))
	second := tokens.Find(b)
	write(string(lineA), strings.Replace(string(lineB), `["w"]`, `["w","v"]`, 1))
	tokens.Check()
	<-second.Revoked()
	require.Equal(t, []string{"v", "w"}, tokens.Find(b).Workspaces)
	require.NoError(t, os.Remove(path))
	tokens.Check()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return tokens.Problem() != nil })
	require.Same(t, first, tokens.Find(a), "a file that is gone changes nothing")
	write()
	<-first.Revoked()
	require.Nil(t, tokens.Find(a))
	cancel()
	require.NoError(t, <-ended)
}
