package gateway

import (
	"encoding/json"
	"errors"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/api"
)

const (
	// cookieName is the cookie that stands for a token in a browser, which can not
	// send a header with an EventSource. Its value is the token: so it needs no memory
	// of logins, survives a restart, and ends with the token.
	cookieName = "skald_token"
	// cookieSeconds is how long a browser keeps it: 30 days.
	cookieSeconds = 30 * 24 * 3600
	// maxLoginBytes bounds the body of a login.
	maxLoginBytes = 4 << 10
)

// What is said to those who may not.
var (
	errToken = &api.Failure{
		Status: http.StatusUnauthorized, Code: api.CodeUnauthorized,
		Message: "a known token is needed: Authorization: Bearer TOKEN, or a login (skald: --token-file or SKALD_TOKEN)",
	}
	errScope = &api.Failure{
		Status: http.StatusForbidden, Code: api.CodeForbidden, Message: "this needs a token for all workspaces",
	}
	errHost = &api.Failure{
		Status: http.StatusForbidden, Code: api.CodeForbidden,
		Message: "without tokens this gateway answers to localhost, 127.0.0.1 and [::1] only, and the request is for another host",
	}
	errCross = &api.Failure{
		Status: http.StatusForbidden, Code: api.CodeForbidden, Message: "logins from pages of other origins are refused",
	}
)

// everything is what everyone may read where there are no tokens.
var everything = &access.Grant{}

// secure sets the headers that every answer carries.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// admit returns what the request's token allows, nil if it has none. A token that is
// not known is an error, except where a browser sends an old cookie along.
//
// Without tokens, a page of another site could have its name resolved to this machine
// and read as the same origin. Its requests then name that site as their host.
func (g *Gateway) admit(r *http.Request) (*access.Grant, error) {
	if g.o.Tokens == nil {
		if !loopbackHost(r.Host) {
			return nil, errHost
		}
		return everything, nil
	}
	if header := r.Header.Get("Authorization"); header != "" {
		scheme, token, _ := strings.Cut(header, " ")
		if strings.EqualFold(scheme, "Bearer") {
			return g.o.Tokens.Find(strings.TrimSpace(token)), nil
		}
		return nil, nil
	}
	if c, err := r.Cookie(cookieName); err == nil {
		return g.o.Tokens.Find(c.Value), nil
	}
	return nil, nil
}

// loopbackHost reports whether a request's host, with or without a port, names this
// machine to itself. HTTP/1.0 needs no host, and browsers always send one.
func loopbackHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// login gives a browser a cookie for a token, which is in the body so that no URL and
// no log holds it, and answers what it allows: {"name":…,"workspaces":[…]|null}.
func (g *Gateway) login(w http.ResponseWriter, r *http.Request, _ *access.Grant) {
	if err := g.cross.Check(r); err != nil {
		g.fail(w, r, errCross)
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	// A form of another site can not send this type without being asked first.
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		g.fail(w, r, &api.ParameterError{Parameter: "Content-Type", Rule: "must be application/json"})
		return
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLoginBytes)).Decode(&body)
	if err != nil || body.Token == "" {
		g.fail(w, r, &api.ParameterError{Parameter: "token", Rule: `must be a string in a JSON object, {"token":"…"}`})
		return
	}
	grant := g.o.Tokens.Find(body.Token)
	if grant == nil {
		g.fail(w, r, errToken)
		return
	}
	http.SetCookie(w, cookie(r, body.Token, cookieSeconds))
	write(w, http.StatusOK, appendGrant(nil, grant))
}

// logout takes the cookie back.
func (g *Gateway) logout(w http.ResponseWriter, r *http.Request, _ *access.Grant) {
	if err := g.cross.Check(r); err != nil {
		g.fail(w, r, errCross)
		return
	}
	http.SetCookie(w, cookie(r, "", -1))
	write(w, http.StatusOK, []byte(`{"status":"ok"}`))
}

func cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{
		Name: cookieName, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		// Behind a proxy that speaks TLS the browser must not send it in the clear.
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}

func appendGrant(b []byte, grant *access.Grant) []byte {
	b = bus.AppendQuoted(append(b, `{"name":`...), grant.Name)
	if grant.All() {
		return append(b, `,"workspaces":null}`...)
	}
	b = append(b, `,"workspaces":[`...)
	for i, w := range grant.Workspaces {
		if i > 0 {
			b = append(b, ',')
		}
		b = bus.AppendQuoted(b, w)
	}
	return append(b, "]}"...)
}

// errRevoked ends the streams of a token that holds no more.
var errRevoked = errors.New("the token was revoked")
