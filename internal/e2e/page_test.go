//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// activities of each kind, as workers of coding agents say them.
const (
	busy    = `{"activity":{"state":"running","details":{"kind":"step","label":"go test"},"is_idle":false,"waiting_for_input":false}}`
	waiting = `{"activity":{"state":"running","details":null,"is_idle":false,"waiting_for_input":true}}`
	resting = `{"activity":{"state":"idle","details":null,"is_idle":true,"waiting_for_input":false}}`
)

// Whoever watches sees who needs them first, and sees it change without doing anything.
// What a worker sent is text, whatever it looks like.
func TestPage_LiveList(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	p := browse(t, s.http, 1400, 900)
	p.live()
	p.until(`document.getElementById("empty").innerText.includes("skald publish --session demo")`)
	for id, body := range map[string]string{"rests": resting, "works": busy, "asks": waiting} {
		w.put(ingestSubject("w", id, "activity"), nil, body)
	}
	w.put(ingestSubject("w", "fails", "error"), nil, failed("the disk is full"))
	want := []string{"waiting asks", "failed fails", "working works", "idle rests"}
	skaldtest.Eventually(t, patience, func() bool { return slices.Equal(want, p.rows()) }, "%v", want)
	require.Contains(t, p.text("#sessions"), "the disk is full")
	require.Contains(t, p.text("#sessions"), "Running: go test")
	require.False(t, p.is(`document.getElementById("empty").offsetParent`))
	p.until(`document.title === "(2) Skald"`)
	// The same from the records, for who comes later.
	p.open(s.http)
	skaldtest.Eventually(t, patience, func() bool { return slices.Equal(want, p.rows()) }, "%v", want)

	hostile := `<img src=x onerror="window.hit=1">`
	w.put(ingestSubject("w", "works", "session"), nil, `{"op":"save","title":`+quoted(hostile)+`}`)
	w.put(ingestSubject("w", "works", "error"), nil, failed(hostile))
	w.put(ingestSubject("w", "works", "activity"), nil, waiting)
	p.until(`document.querySelectorAll("#sessions li[data-state=waiting]").length === 2`)
	p.open(s.http + "/?" + url.Values{"in": {"w"}, "session": {"works"}}.Encode())
	p.until(`document.querySelectorAll("#facts li").length === 3`)
	require.Contains(t, p.text("#one-title"), hostile)
	require.Contains(t, p.text("#facts"), hostile)
	require.True(t, p.is(`window.hit === undefined && document.images.length === 0`))
	p.until(`document.getElementById("lag").innerText.includes("lag 0") && document.getElementById("lag").innerText.includes("4 sessions")`)
}

// A timeline says each fact in a sentence, has its JSON as the worker sent it, and goes
// on through a kill of the server: every number of the table is there, and once. A fact
// of type error is not taken for a lost connection.
func TestPage_KilledServer(t *testing.T) {
	t.Parallel()
	dir, at, web := t.TempDir(), skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	s := serveAt(t, dir, at, web)
	s.load(t, "w", 200, 0, 10)
	s.worker(t).put(ingestSubject("w", "s1", "activity"), nil, `{"activity":{"n":12345678901234567890,"x":1.0}}`)
	s.settle(t)
	p := browse(t, s.http+"/?in=w&session=s1", 1400, 900)
	p.live()
	p.until(`document.querySelectorAll("#facts li").length === 41`)
	require.Contains(t, p.text("#facts li:nth-child(2) .kind"), "Error")
	p.click("#facts li:first-child .raw")
	require.Contains(t, p.text("#facts li:first-child pre"), `"n": 12345678901234567890,`)
	require.Contains(t, p.text("#facts li:first-child pre"), `"x": 1.0`)
	for round := range 2 {
		kill(s.process)
		p.until(`document.getElementById("link-text").innerText === "Reconnecting, nothing lost"`)
		s = serveAt(t, dir, at, web)
		s.load(t, "w", 50, 0, 10)
		p.until(fmt.Sprintf(`document.querySelectorAll("#facts li").length === %d`, 41+10*(round+1)))
		p.live()
	}
	var want []uint64
	for _, line := range s.same(t, "w") {
		if strings.Contains(line, `"session_id":"s1"`) {
			want = append(want, lineSeq(line))
		}
	}
	require.Equal(t, want, p.seqs())
	var links []string
	p.evaluate("noted.links", &links)
	require.Equal(t, []string{"loading", "live", "lost", "live", "lost", "live"}, links)
	require.Equal(t, 5, strings.Count(strings.Join(p.rows(), "\n"), "failed"))
}

// A long timeline comes in parts, and the parts are the whole: what is read backwards
// from the table, what is read to its end, and what is live meet without a hole.
func TestPage_LongTimeline(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	for range 3 {
		s.load(t, "w", 2000, 0, 10)
		s.load(t, "others", 500, 0, 10)
	}
	s.settle(t)
	p := browse(t, s.http+"/?in=w&session=s1", 1400, 900)
	p.until(`document.querySelectorAll("#facts li").length > 100`)
	p.live()
	require.False(t, p.is(`document.querySelectorAll("#facts li").length > 600`), "not everything at once")
	s.load(t, "w", 50, 0, 10)
	const want = 6050 / 5
	parts := 0
	skaldtest.Eventually(t, patience, func() bool {
		// It goes away by itself while there is something to scroll to.
		if p.is(`(document.getElementById("one").scrollTop = 1e9, ((b) => b.offsetParent && (b.click(), true))(document.querySelector(".end button")))`) {
			parts++
		}
		return p.is(`document.querySelector(".foot").innerText === "This is where it began."`)
	})
	require.Greater(t, parts, 1)
	var all []uint64
	for _, line := range s.same(t, "w") {
		if strings.Contains(line, `"session_id":"s1"`) {
			all = append(all, lineSeq(line))
		}
	}
	require.Len(t, all, want)
	p.until(fmt.Sprintf(`document.querySelectorAll("#facts li").length === %d`, want))
	require.Equal(t, all, p.seqs())
}

// A page that nobody sees gives its connection back, and has missed nothing when it is
// seen again; unless what it missed was pruned meanwhile, which it says.
func TestPage_Hidden(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	s.load(t, "w", 20, 0, 10)
	s.settle(t)
	p := browse(t, s.http+"/?in=w&session=s1", 1400, 900)
	p.until(`document.querySelectorAll("#facts li").length === 4`)
	p.live()
	turn := func(hidden bool) {
		require.True(t, p.is(fmt.Sprintf(`(Object.defineProperty(document, "hidden", {configurable: true, get: () => %v}), document.dispatchEvent(new Event("visibilitychange")), true)`, hidden)))
	}
	require.True(t, p.is(`(window.setTimeout = ((later) => (f, ms) => later(f, ms === 60000 ? 1 : ms))(window.setTimeout), true)`), "a minute is soon over")
	turn(true)
	p.until(`document.getElementById("link").dataset.link === "paused"`)
	s.load(t, "w", 20, 0, 10)
	s.settle(t)
	require.True(t, p.is(`document.querySelectorAll("#facts li").length === 4`))
	turn(false)
	p.until(`document.querySelectorAll("#facts li").length === 8`)
	p.live()
	require.Equal(t, []uint64{2, 7, 12, 17, 22, 27, 32, 37}, p.seqs())

	turn(true)
	p.until(`document.getElementById("link").dataset.link === "paused"`)
	s.load(t, "w", 20, 0, 10)
	s.worker(t).put("skald.in.=.=.control", nil, `{"op":"prune","before_seq":55}`)
	s.settle(t)
	turn(false)
	p.until(`document.getElementById("notice-text").innerText.includes("pruned") && document.querySelectorAll("#facts li").length === 1`)
	p.live()
	require.Equal(t, []uint64{57}, p.seqs())
}

// A bus that began anew has other facts under the same numbers: the page says so and
// loads them, and shows nothing of the old ones.
func TestPage_BusBeganAnew(t *testing.T) {
	t.Parallel()
	at, web := skaldtest.FreeAddress(t), skaldtest.FreeAddress(t)
	s := serveAt(t, t.TempDir(), at, web)
	s.load(t, "old", 20, 0, 10)
	s.settle(t)
	p := browse(t, s.http, 1000, 700)
	p.until(`document.querySelectorAll("#sessions li").length === 5`)
	p.live()
	kill(s.process)
	s = serveAt(t, t.TempDir(), at, web)
	s.worker(t).put(ingestSubject("new", "n", "error"), nil, failed("x"))
	p.until(`!document.getElementById("notice").hidden && document.getElementById("notice-text").innerText.includes("began anew")`)
	skaldtest.Eventually(t, patience, func() bool { return slices.Equal([]string{"failed n"}, p.rows()) })
}

// Filters and the open session stand in the address, so that it can be sent to somebody,
// and the way back is the browser's.
func TestPage_Address(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for _, id := range []string{"one", "two", ".", "a/b?c=d&e#f"} {
		for _, workspace := range []string{"acme", "über & co"} {
			w.put(ingestSubject(workspace, id, "error"), nil, failed("x"))
			w.put(ingestSubject(workspace, "calm "+id, "activity"), nil, resting)
		}
	}
	s.settle(t)
	q := url.Values{"workspace": {"über & co"}, "state": {"failed"}}
	p := browse(t, s.http+"/?"+q.Encode(), 1400, 900)
	p.until(`document.querySelectorAll("#sessions li").length === 4`)
	require.Equal(t, "über & co", func() (v string) { p.evaluate(`document.getElementById("workspace").value`, &v); return }())
	require.True(t, p.is(`document.querySelector("[data-state=failed].chip").ariaPressed === "true"`))
	p.click("[data-state=failed].chip")
	p.until(`document.querySelectorAll("#sessions li").length === 8 && !location.search.includes("state")`)
	p.click("#text")
	p.keys("calm o")
	p.until(`document.querySelectorAll("#sessions li").length === 1 && new URLSearchParams(location.search).get("text") === "calm o"`)
	p.keys("nothing")
	p.until(`document.getElementById("empty").innerText.includes("No session matches")`)
	p.click("#empty button")
	p.until(`document.querySelectorAll("#sessions li").length === 16 && location.search === ""`)

	for _, id := range []string{"one", ".", "a/b?c=d&e#f"} {
		p.open(s.http + "/?" + url.Values{"in": {"acme"}, "session": {id}}.Encode())
		p.until(`document.querySelectorAll("#facts li").length === 1`)
		require.Equal(t, id, p.text("#one-title"))
	}
	p.click("#back")
	p.until(`location.search === "" && document.getElementById("one").hidden`)
	require.True(t, p.is(`(history.back(), true)`))
	p.until(`document.querySelectorAll("#facts li").length === 1 && document.getElementById("one-title").innerText === "a/b?c=d&e#f"`)
	p.open(s.http + "/?in=acme&session=none")
	p.until(`document.getElementById("one").innerText.includes("There is no such session")`)
	w.put(ingestSubject("acme", "none", "error"), nil, failed("now"))
	p.until(`document.querySelectorAll("#facts li").length === 1`)
	skald(t, "", "forget", "none", "--server", s.nats, "--workspace", "acme").ok(t)
	p.open(s.http + "/?in=acme&session=none")
	p.until(`document.getElementById("one").innerText.includes("There is no such session")`)
}

// Everything can be done from the keyboard, and the focus is where one expects it.
func TestPage_Keyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	w := s.worker(t)
	for i := range 40 {
		w.put(ingestSubject("w", fmt.Sprintf("s%02d", i), "activity"), nil, busy)
	}
	w.put(ingestSubject("w", "bad", "error"), nil, failed("x"))
	s.settle(t)
	p := browse(t, s.http, 900, 500)
	p.until(`document.querySelectorAll("#sessions li").length > 5`)
	p.live()
	name := `document.activeElement.querySelector(".name")?.textContent`
	p.keys(kb.Tab)
	require.True(t, p.is(`document.activeElement.id === "skip"`), "the first stop is the way to the list")
	p.keys(kb.Enter)
	p.until(name + ` === "bad"`)
	p.keys("j", "j", kb.ArrowDown)
	p.until(name + ` === "s02"`)
	p.keys("k")
	p.until(name + ` === "s01"`)
	p.keys(kb.End)
	p.until(name + ` === "s39"`)
	require.True(t, p.is(`(r => r.bottom <= innerHeight + 1)(document.activeElement.getBoundingClientRect())`), "it is in sight")
	// Rows that move do not take the focus away.
	w.put(ingestSubject("w", "s39", "error"), nil, failed("x"))
	w.put(ingestSubject("w", "s39", "activity"), nil, waiting)
	p.until(`document.querySelector("#sessions li").dataset.state === "waiting"`)
	require.True(t, p.is(name+` === "s39"`))
	p.keys(kb.Enter)
	p.until(`document.activeElement.id === "one" && document.getElementById("one-title").innerText === "s39"`)
	require.True(t, p.is(`document.getElementById("fleet").offsetParent === null`), "where there is little room, one at a time")
	p.until(`document.querySelectorAll("#facts li").length === 3`)
	p.keys(kb.Tab, kb.Tab)
	require.True(t, p.is(`document.activeElement.matches(".raw")`), "behind the way back comes the first fact's JSON")
	p.keys(kb.Enter)
	p.until(`document.querySelector("#facts li:first-child pre").innerText.includes("waiting_for_input")`)
	p.keys(kb.Escape)
	p.until(name + ` === "s39"`)
	p.keys("2")
	p.until(`location.search === "?state=failed" && document.querySelectorAll("#sessions li").length === 1`)
	p.keys("0", "/", "s1")
	p.until(`document.activeElement.id === "text" && document.querySelectorAll("#sessions li").length === 10`)
	p.keys(kb.ArrowDown)
	p.until(name + ` === "s10"`)
	p.keys("?")
	p.until(`document.getElementById("help").open`)
	p.keys(kb.Escape)
	p.until(`!document.getElementById("help").open`)
	// Nothing holds the focus for good: Tab leads through the page and out of it.
	var stops []string
	require.True(t, p.is(`(document.activeElement.blur(), true)`))
	for range 30 {
		p.keys(kb.Tab)
		var at string
		p.evaluate(`document.activeElement.id || document.activeElement.className || document.activeElement.tagName`, &at)
		if len(stops) > 0 && at == stops[0] {
			break
		}
		stops = append(stops, at)
	}
	require.Less(t, len(stops), 20, "%v", stops)
	for _, want := range []string{"skip", "text", "workspace", "help-open"} {
		require.Contains(t, stops, want)
	}
}
