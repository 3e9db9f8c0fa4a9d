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
	rain := func(from, to int, body func(i int) string) error {
		for i := from; i < to; i++ {
			id := fmt.Sprintf("s%04d", i%sessions)
			if _, err := js.PublishAsync(ingestSubject(fmt.Sprint("w", i%50), id, "activity"), []byte(body(i)), jetstream.WithStallWait(patience)); err != nil {
				return err
			}
		}
		return nil
	}
	require.NoError(t, rain(0, sessions, func(int) string { return busy }))
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

	// It rains until keys have been answered, however busy the machine is.
	const shower = 1000
	more := 0
	answered, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := rain(more, more+shower, func(i int) string { return fmt.Sprintf(`{"activity":{"is_idle":false,"state":"running","n":%d}}`, i) })
			more += shower
			if err != nil || more >= 10*shower && closed(answered) {
				ended <- err
				return
			}
			<-js.PublishAsyncComplete()
		}
	}()
	name := `document.activeElement.querySelector(".name")?.textContent`
	seq := func() (n int) { p.evaluate(`Number(document.getElementById("lag").dataset.seq)`, &n); return n }
	last, begun := "", seq()
	for moved := 0; moved < 4; {
		p.keys("j")
		var at string
		p.evaluate(name+` ?? ""`, &at)
		if at != last && seq() > begun {
			moved++
		}
		last = at
		require.True(t, p.is(few))
	}
	close(answered)
	require.NoError(t, <-ended)
	t.Logf("busy without a pause for %s at most, keys answered while %d facts came", p.longest(), seq()-begun)
	p.until(fmt.Sprintf(`Number(document.getElementById("lag").dataset.seq) >= %d`, sessions+more))
	require.True(t, p.is(few))
	<-js.PublishAsyncComplete()
	s.settle(t)
	p.keys(kb.End)
	p.until(`(r => r !== undefined && r.top >= 0 && r.bottom <= innerHeight + 1)(document.activeElement.closest("li")?.getBoundingClientRect())`)
	require.True(t, p.is(`document.activeElement.closest("li").ariaPosInSet === "5000"`))
	p.until(count + fmt.Sprintf(" === %d", sessions))
	require.True(t, p.is(few))
}
