//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// Where there are tokens the page asks for one, shows what it reaches and nothing else,
// keeps it where no script can read it, and lets go of it.
func TestPage_Login(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	acme := skald(t, "", "token", "new", "--name", "ci", "--workspace", "acme", "--file", file).ok(t)[0]
	s := serve(t, filepath.Join(dir, "data"), "--tokens", file)
	w := s.worker(t)
	w.put(ingestSubject("acme", "ours", "error"), nil, failed("1"))
	w.put(ingestSubject("other", "theirs", "error"), nil, failed("2"))
	p := browse(t, s.http, 800, 600)
	p.until(`document.activeElement.id === "token"`)
	require.False(t, p.is(`document.getElementById("fleet").offsetParent`))
	p.keys("skald_wrong", kb.Enter)
	p.until(`document.getElementById("login-error").innerText.includes("not known")`)
	p.keys(acme, kb.Enter)
	p.until(`document.querySelectorAll("#sessions li").length === 1`)
	require.Equal(t, []string{"failed ours"}, p.rows())
	p.live()
	hidden := `document.cookie === "" && !location.href.includes("skald_") && localStorage.length + sessionStorage.length === 0 && document.getElementById("token").value === ""`
	require.True(t, p.is(hidden))
	p.open(s.http + "/?in=acme&session=ours")
	p.until(`document.querySelectorAll("#facts li").length === 1`)
	p.open(s.http + "/?in=other&session=theirs")
	p.until(`document.getElementById("one").innerText.includes("There is no such session")`)
	p.click("#back")
	p.click("#logout")
	p.until(`document.activeElement.id === "token" && document.querySelectorAll("#sessions li, #facts li").length === 0`)
	p.open(s.http)
	p.until(`document.activeElement.id === "token"`)

	// A token that is revoked is out, without anyone doing anything on the page.
	p.keys(acme, kb.Enter)
	p.until(`document.querySelectorAll("#sessions li").length === 1`)
	p.live()
	skald(t, "", "token", "new", "--name", "ops", "--all", "--file", file+"2").ok(t)
	require.NoError(t, os.Rename(file+"2", file))
	s.signal(t, syscall.SIGHUP)
	p.until(`document.activeElement.id === "token" && document.querySelectorAll("#sessions li").length === 0`)
}
