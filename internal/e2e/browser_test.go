//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// noted runs before the page: it keeps what the policy forbade, what the connection was
// shown as, and how long the page was busy at a time.
const noted = `
window.noted = {violations: [], links: [], longest: 0};
addEventListener("securitypolicyviolation", (e) => noted.violations.push(e.violatedDirective + " " + e.blockedURI));
new PerformanceObserver((l) => { for (const e of l.getEntries()) noted.longest = Math.max(noted.longest, e.duration); }).observe({type: "longtask", buffered: true});
document.addEventListener("DOMContentLoaded", () => {
  const link = document.getElementById("link");
  if (link === null) return;
  const note = () => { if (noted.links.at(-1) !== link.dataset.link) noted.links.push(link.dataset.link); };
  new MutationObserver(note).observe(link, {attributes: true});
  note();
});`

// tab is a page in a Chromium of the test's own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // what the page threw, and what the policy kept it from
}

// browse opens the address in a window of that size.
func browse(t *testing.T, address string, width, height int64) *tab {
	t.Helper()
	path := skaldtest.NeedProgram(t, "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
	)
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	p := &tab{t: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, p.hear))
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		_, err := chromedp.Call(ctx, enable, cdp.Empty{})
		require.NoError(t, err)
	}
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: noted})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the page shows:\n%s", p.text("body"))
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		require.Empty(t, p.faults, "nothing is thrown, and nothing tries what the policy forbids")
	})
	p.open(address)
	return p
}

// hear keeps what a page must not do.
func (p *tab) hear(ev any) {
	fault := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		fault = ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			fault += " " + e.Description
		}
	case *log.EventEntryAdded:
		if ev.Entry.Source == log.EntrySourceSecurity {
			fault = ev.Entry.Text
		}
	}
	if fault == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fault)
}

func (p *tab) open(address string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, chromedp.Navigate(address)))
}

// keys types into whatever has the focus. As from a keyboard, the browser itself makes
// the character of a key, unless the page has taken the key.
func (p *tab) keys(keys ...string) {
	p.t.Helper()
	for _, r := range strings.Join(keys, "") {
		var down, up *input.DispatchKeyEventParams
		text := ""
		for _, e := range kb.Encode(r) {
			switch e.Type {
			case input.DispatchKeyEventTypeChar:
				text = e.Text
			case input.DispatchKeyEventTypeKeyUp:
				up = e
			default:
				down = e
			}
		}
		if down.Text = text; text != "" {
			down.Type = input.DispatchKeyEventTypeKeyDown
		}
		for _, e := range []*input.DispatchKeyEventParams{down, up} {
			_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, *e)
			require.NoError(p.t, err)
		}
	}
}

func (p *tab) click(selector string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p.t, chromedp.Do(ctx, chromedp.Click(selector)), "%s", selector)
}

// evaluate runs an expression in the page, waits if it is a promise, and decodes it.
func (p *tab) evaluate(expression string, into any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		"(async () => JSON.stringify(await ("+expression+")) ?? 'null')()", chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, "%s", expression)
	require.NoError(p.t, json.Unmarshal([]byte(text), into), "%s: %s", expression, text)
}

// is reports what the expression comes to.
func (p *tab) is(expression string) bool {
	p.t.Helper()
	var yes bool
	p.evaluate("!!("+expression+")", &yes)
	return yes
}

// until waits until the expression holds.
func (p *tab) until(expression string) {
	p.t.Helper()
	skaldtest.Eventually(p.t, patience, func() bool { return p.is(expression) }, "%s", expression)
}

// text returns what the elements say, one a line.
func (p *tab) text(selector string) string {
	p.t.Helper()
	var text string
	p.evaluate(fmt.Sprintf("[...document.querySelectorAll(%s)].map((e) => e.innerText).join('\\n')", quoted(selector)), &text)
	return text
}

// rows returns the list's rows as "state name".
func (p *tab) rows() []string {
	p.t.Helper()
	var rows []string
	p.evaluate(`[...document.querySelectorAll("#sessions li")].map((li) => li.dataset.state + " " + li.querySelector(".name").textContent)`, &rows)
	return rows
}

// seqs returns the numbers of the facts that the timeline shows, ascending.
func (p *tab) seqs() []uint64 {
	p.t.Helper()
	var seqs []uint64
	p.evaluate(`[...document.querySelectorAll("#facts li")].map((li) => Number(li.dataset.seq)).reverse()`, &seqs)
	return seqs
}

// live waits until the page follows.
func (p *tab) live() {
	p.t.Helper()
	p.until(`document.getElementById("link").dataset.link === "live"`)
}

// dark has the page prefer dark colours, or light ones.
func (p *tab) dark(dark bool) {
	p.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(p.t, err)
}

// longest is for how long at most the page was busy without a pause.
func (p *tab) longest() time.Duration {
	p.t.Helper()
	var ms float64
	p.evaluate("noted.longest", &ms)
	return time.Duration(ms * float64(time.Millisecond))
}
