package gateway

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/skaldbus/skald/internal/access"
)

// index is what GET / answers to those who do not ask for HTML.
const index = `skald

GET  /api/v1/events          after_seq, limit, session_id, workspace_id, type
GET  /api/v1/events          the same without limit, live, with Accept: text/event-stream
GET  /api/v1/sessions        workspace_id, session_id, after, limit
GET  /api/v1/sessions/{id}   workspace_id
GET  /api/v1/status
GET  /api/v1/openapi.json
POST /api/v1/login           {"token":"…"}, if serve has tokens
POST /api/v1/logout
GET  /healthz
GET  /readyz
GET  /metrics                 for Prometheus
GET  /                       the live page, to browsers
`

const (
	// pagePath is where the page's files are.
	pagePath = "/page/"
	// pagePolicy lets the page load from here alone, and nothing that stands in its
	// text run: what workers send can be shown and not be done.
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
		"frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

//go:embed page
var pageFiles embed.FS

// file is a file of the page as it is sent.
type file struct {
	body []byte
	kind string // its media type
	tag  string // changes with the body
}

// loadPage reads the page's files, by path. The page is told whether there are tokens,
// so that it knows whether there is something to log out of.
func loadPage(tokens bool) map[string]file {
	entries, err := pageFiles.ReadDir("page")
	if err != nil {
		panic("gateway: the page is not embedded: " + err.Error())
	}
	files := make(map[string]file, len(entries))
	for _, e := range entries {
		body, err := pageFiles.ReadFile("page/" + e.Name())
		if err != nil {
			panic("gateway: the page is not embedded: " + err.Error())
		}
		at := pagePath + e.Name()
		if e.Name() == "index.html" {
			at = "/"
			if tokens {
				body = bytes.Replace(body, []byte(`data-access="open"`), []byte(`data-access="tokens"`), 1)
			}
		}
		sum := sha256.Sum256(body)
		files[at] = file{body: body, kind: mediaType(e.Name()), tag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return files
}

// mediaType does not ask the machine, whose tables may say anything.
func mediaType(name string) string {
	kind := map[string]string{
		".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml",
	}[path.Ext(name)]
	return mime.FormatMediaType(kind, map[string]string{"charset": "utf-8"})
}

// page serves what people see at /: the live page to browsers, else a list of what
// there is. It shows no data of its own, so that anyone may have it; what it asks for
// needs a grant.
func (g *Gateway) page(w http.ResponseWriter, r *http.Request, _ *access.Grant) {
	w.Header().Set("Vary", "Accept")
	if acceptsHTML(r.Header) {
		g.files["/"].serve(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(index)) // a client that has left needs no answer
}

// acceptsHTML reports whether the client names HTML, as browsers do.
func acceptsHTML(h http.Header) bool {
	for _, line := range h.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			kind, params, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(kind), "text/html") && weight(params) > 0 {
				return true
			}
		}
	}
	return false
}

// serve sends the file, or says that the client's copy is still good. Copies are kept
// and asked about each time, so that a page is never put together of two versions.
func (f file) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("ETag", f.tag)
	if matches(r.Header, f.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(f.body)))
	_, _ = w.Write(f.body) // a client that has left needs no answer
}

// matches reports whether the client has the version. A proxy may have made the tag a
// weak one, which is as good here.
func matches(h http.Header, tag string) bool {
	for _, line := range h.Values("If-None-Match") {
		for part := range strings.SplitSeq(line, ",") {
			if part = strings.TrimSpace(part); part == "*" || strings.TrimPrefix(part, "W/") == tag {
				return true
			}
		}
	}
	return false
}
