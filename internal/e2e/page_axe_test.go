//go:build unix

package e2e_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// axe is where the rules of accessibility are.
const axe = "testdata/axe"

// axeRules runs axe in the page and returns what breaks a rule, and where.
const axeRules = `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then((r) =>
  r.passes.length < 10 ? ["axe found next to nothing to look at"] :
  r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary)))`

// Everything that the page can show keeps the rules of WCAG 2.2 AA, light and dark.
func TestPage_Axe(t *testing.T) {
	t.Parallel()
	script := filepath.Join(axe, "node_modules", "axe-core", "axe.min.js")
	skaldtest.NeedPath(t, script, "npm ci in internal/e2e/"+axe)
	rules, err := os.ReadFile(script)
	require.NoError(t, err)
	dir := t.TempDir()
	s := serve(t, filepath.Join(dir, "open"))
	p := browse(t, s.http, 1400, 900)
	check := func(what string) {
		t.Helper()
		require.True(t, p.is(`(window.axe !== undefined)`) || p.is("("+`(0, eval)(`+quoted(string(rules))+`), true)`), what)
		for _, dark := range []bool{false, true} {
			p.dark(dark)
			var broken []string
			p.evaluate(axeRules, &broken)
			require.Empty(t, broken, "%s, dark: %v", what, dark)
		}
	}
	p.live()
	p.until(`!document.getElementById("empty").hidden`)
	check("nothing yet")
	w := s.worker(t)
	for id, body := range map[string]string{"rests": resting, "works": busy, "asks": waiting} {
		w.put(ingestSubject("w", id, "session"), nil, `{"op":"save","title":"The title of `+id+`","last_error":null}`)
		w.put(ingestSubject("w", id, "activity"), nil, body)
	}
	w.put(ingestSubject("w", "fails", "session"), nil, `{"op":"save","last_error":"the disk is full"}`)
	p.until(`document.querySelectorAll("#sessions li").length === 4`)
	check("the list")
	p.open(s.http + "/?in=w&session=fails")
	p.until(`document.querySelectorAll("#facts li").length === 1`)
	p.click("#facts .raw")
	p.until(`document.querySelector("#facts pre") !== null`)
	check("list and timeline")
	p.click("#help-open")
	p.until(`document.getElementById("help").open`)
	check("help")
	s.stop(t)
	p.open("about:blank")

	file := filepath.Join(dir, "tokens")
	skald(t, "", "token", "new", "--name", "ci", "--workspace", "acme", "--file", file).ok(t)
	s = serve(t, filepath.Join(dir, "guarded"), "--tokens", file)
	p.open(s.http)
	p.until(`!document.getElementById("door").hidden`)
	check("the door")
}
