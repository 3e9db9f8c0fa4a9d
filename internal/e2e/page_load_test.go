//go:build unix

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// Five thousand sessions are a screen of rows, and a key is answered while facts rain.
func TestPage_Thousands(t *testing.T) {
	t.Parallel()
	const sessions = 5000
	s := serve(t, t.TempDir())
	js := s.js(t)
	rain := func(from, to int, body func(i int) string) {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("s%04d", i%sessions)
			_, err := js.PublishAsync(ingestSubject(fmt.Sprint("w", i%50), id, "activity"), []byte(body(i)), jetstream.WithStallWait(patience))
			require.NoError(t, err)
		}
	}
	rain(0, sessions, func(int) string { return busy })
	<-js.PublishAsyncComplete()
	s.settle(t)
	p := browse(t, s.http, 1400, 900)
	count := `Number(document.querySelector("[data-state=working].chip .count").textContent.replace(",", ""))`
	p.until(count + fmt.Sprintf(" === %d", sessions))
	p.live()
	few := `document.querySelectorAll("#sessions li").length < 80 && document.querySelectorAll("*").length < 1500`
	require.True(t, p.is(few), "only what is seen is in the document")
	p.keys("/", "s4999")
	p.until(`document.querySelectorAll("#sessions li").length === 1 && document.querySelector("#sessions .name").textContent === "s4999"`)
	p.keys(kb.Escape, kb.Escape)
	p.until(`document.querySelectorAll("#sessions li").length > 10`)
	t.Logf("busy without a pause for %s at most while loading", p.longest())

	const more = 10_000
	rain(0, more, func(i int) string { return fmt.Sprintf(`{"activity":{"is_idle":false,"state":"running","n":%d}}`, i) })
	name := `document.activeElement.querySelector(".name")?.textContent`
	var moved int
	last := ""
	done := fmt.Sprintf(`Number(document.getElementById("lag").dataset.seq) >= %d`, sessions+more)
	for at := ""; !p.is(done) || moved < 3; last = at {
		p.keys("j")
		p.evaluate(name+` ?? ""`, &at)
		if at != last {
			moved++
		}
		require.True(t, p.is(few))
	}
	require.Greater(t, moved, 3, "keys are answered while facts come")
	t.Logf("busy without a pause for %s at most, %d keys answered in the rain", p.longest(), moved)
	<-js.PublishAsyncComplete()
	s.settle(t)
	p.keys(kb.End)
	p.until(`(r => r !== undefined && r.top >= 0 && r.bottom <= innerHeight + 1)(document.activeElement.closest("li")?.getBoundingClientRect())`)
	require.True(t, p.is(`document.activeElement.closest("li").ariaPosInSet === "5000"`))
	p.until(count + fmt.Sprintf(" === %d", sessions))
	require.True(t, p.is(few))
}
