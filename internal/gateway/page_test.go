package gateway_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/gateway"
)

// browser is what a browser sends with a navigation.
const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// Browsers get the page, everyone else the list of what there is.
func TestPage_ForBrowsers(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for accept, html := range map[string]bool{
		browser: true, "text/html": true, "TEXT/HTML;q=0.1": true, "text/plain, text/html": true,
		"": false, "*/*": false, "text/html;q=0": false, "application/json": false, "text/htmlx": false,
	} {
		a := do(t, http.MethodGet, g.URL()+"/", "Accept", accept)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, "Accept", a.Header.Get("Vary"))
		require.Equal(t, html, strings.HasPrefix(a.body, "<!doctype html>"), accept)
		require.Equal(t, html, strings.HasPrefix(a.Header.Get("Content-Type"), "text/html"), accept)
	}
}

// Everything that the page names is served with its type, and nothing in it runs, styles
// or loads from anywhere but its own files.
func TestPage_Whole(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml; charset=utf-8"}
	seen := map[string]bool{}
	var walk func(path string)
	walk = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		a := do(t, http.MethodGet, g.URL()+path, "Accept", browser)
		require.Equal(t, http.StatusOK, a.StatusCode, path)
		policy := a.Header.Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self';")
		require.NotContains(t, policy, "unsafe")
		if path != "/" {
			require.Equal(t, kinds[path[strings.LastIndexByte(path, '.'):]], a.Header.Get("Content-Type"), path)
		}
		require.NotRegexp(t, `https?://(?:[^w]|w[^w])`, a.body, path) // but the name of SVG
		require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function`, a.body, path)
		for _, m := range regexp.MustCompile(`(?:src|href)="(/page/[^"]+)"|from "\./([^"]+)"`).FindAllStringSubmatch(a.body, -1) {
			if m[2] != "" {
				m[1] = "/page/" + m[2]
			}
			walk(m[1])
		}
	}
	walk("/")
	require.Greater(t, len(seen), 10)
	html := do(t, http.MethodGet, g.URL()+"/", "Accept", browser).body
	require.NotRegexp(t, `<style|style=|\son\w+=|<script>|javascript:`, html)
	for _, path := range []string{"/page/", "/page", "/page/index.html", "/page/none.js", "/page/../page.go", "/page/%2e%2e/page.go"} {
		require.Equal(t, http.StatusNotFound, do(t, http.MethodGet, g.URL()+path).StatusCode, path)
	}
}

// A browser keeps the files, asks each time whether they are still good, and is told so
// without a body.
func TestPage_Cached(t *testing.T) {
	g, _ := start(t, gateway.Options{}, api.Options{})
	for _, path := range []string{"/", "/page/main.js"} {
		a := do(t, http.MethodGet, g.URL()+path, "Accept", browser)
		tag := a.Header.Get("ETag")
		require.Regexp(t, `^"[0-9a-f]{24}"$`, tag)
		require.Equal(t, "no-cache", a.Header.Get("Cache-Control"))
		for _, have := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
			same := do(t, http.MethodGet, g.URL()+path, "Accept", browser, "If-None-Match", have)
			require.Equal(t, http.StatusNotModified, same.StatusCode, have)
			require.Equal(t, tag, same.Header.Get("ETag"))
			require.Empty(t, same.body)
		}
		require.Equal(t, http.StatusOK, do(t, http.MethodGet, g.URL()+path, "Accept", browser, "If-None-Match", `"x"`).StatusCode)
		head := do(t, http.MethodHead, g.URL()+path, "Accept", browser)
		require.Equal(t, a.Header.Get("Content-Length"), head.Header.Get("Content-Length"))
		require.Equal(t, http.StatusMethodNotAllowed, do(t, http.MethodPost, g.URL()+path).StatusCode)
	}
}

// The page is for anyone, since it shows nothing; with tokens it says so, and is another
// version of it.
func TestPage_Tokens(t *testing.T) {
	open, _ := start(t, gateway.Options{}, api.Options{})
	guarded := startGuarded(t)
	a, b := do(t, http.MethodGet, open.URL()+"/", "Accept", browser), do(t, http.MethodGet, guarded.url("/"), "Accept", browser)
	require.Contains(t, a.body, `data-access="open"`)
	require.Contains(t, b.body, `data-access="tokens"`)
	require.NotEqual(t, a.Header.Get("ETag"), b.Header.Get("ETag"))
	require.Equal(t, http.StatusOK, do(t, http.MethodGet, guarded.url("/page/main.js")).StatusCode)
	foreign, err := http.NewRequest(http.MethodGet, open.URL()+"/page/main.js", nil)
	require.NoError(t, err)
	foreign.Host = "elsewhere.example"
	resp, err := http.DefaultClient.Do(foreign)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
}
