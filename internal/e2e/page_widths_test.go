//go:build unix

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The page fits every width from that of a small phone on: nothing of it has to be
// scrolled sideways, whatever workers say. With SKALD_TEST_SHOTS, a directory, it leaves
// a picture there of each view at each width, light and dark, for somebody to look at.
func TestPage_Widths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	skald(t, "", "demo", "--data", dir, "--for", "2s", "--rate", "100", "--seed", "3").ok(t)
	s := serve(t, dir)
	w := s.worker(t)
	long := strings.Repeat("withoutanyspace", 40)
	w.put(ingestSubject("a-workspace-with-a-long-name-"+long[:60], long[:200], "session"), nil, `{"op":"save","title":`+quoted(long)+`,"last_error":`+quoted(long)+`}`)
	w.put(ingestSubject("w", "asks", "activity"), nil, waiting)
	w.put(ingestSubject("w", "works", "activity"), nil, busy)
	s.settle(t)
	p := browse(t, s.http, 1400, 900)
	p.live()
	p.until(`document.querySelectorAll("#sessions li").length > 3`)
	var open string
	p.evaluate(`document.querySelector("#sessions li[data-state=idle] a, #sessions li a").getAttribute("href")`, &open)
	var failing string
	p.evaluate(`[...document.querySelectorAll("#sessions li a")].map((a) => a.getAttribute("href")).find((h) => h.includes("withoutanyspace"))`, &failing)
	widths := []int64{1400, 700, 320}
	if os.Getenv("SKALD_TEST_SHOTS") != "" {
		widths = append(widths, 1000, 390)
	}
	for name, address := range map[string]string{"list": "/", "session": open, "long": failing} {
		for _, width := range widths {
			_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
				Width: width, Height: 844, DeviceScaleFactor: 1, Mobile: width < 600,
			})
			require.NoError(t, err)
			p.open(s.http + address)
			p.live()
			p.until(`document.querySelectorAll("#sessions li").length > 3`)
			if name != "list" {
				p.until(`document.querySelectorAll("#facts li").length > 0`)
			}
			for _, dark := range []bool{false, true} {
				p.dark(dark)
				p.shot(fmt.Sprintf("%s-%d-dark-%v.png", name, width, dark))
			}
			for _, box := range []string{"document.documentElement", `document.getElementById("scroll")`, `document.getElementById("one")`} {
				require.True(t, p.is(box+".scrollWidth <= "+box+".clientWidth"), "%s at %d: %s has to be scrolled sideways", name, width, box)
			}
		}
	}
}

// shot leaves a picture of what is seen, where somebody wants it.
func (p *tab) shot(name string) {
	p.t.Helper()
	dir := os.Getenv("SKALD_TEST_SHOTS")
	if dir == "" {
		return
	}
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name), picture, 0o600))
}
