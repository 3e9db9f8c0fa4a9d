package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/skaldbus/skald/internal/api"
)

const (
	// httpTimeout bounds one request; the gateway itself gives up earlier.
	httpTimeout = 40 * time.Second
	// maxAnswer bounds an answer: pages hold 4 MiB, or one row of any size.
	maxAnswer = 64 << 20
)

// gateway asks a gateway over HTTP.
type gateway struct {
	base   *url.URL
	client *http.Client
}

func openHTTP(address string) (*gateway, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: url must be http://host:port or https://host, perhaps with a path", ErrUsage)
	}
	return &gateway{base: u, client: &http.Client{Timeout: httpTimeout, Transport: listening()}}, nil
}

func (g *gateway) Events(ctx context.Context, p api.Params) ([]byte, error) {
	return g.get(ctx, "/api/v1/events", p)
}

func (g *gateway) Sessions(ctx context.Context, p api.Params) ([]byte, error) {
	return g.get(ctx, "/api/v1/sessions", p)
}

func (g *gateway) Session(ctx context.Context, id string, p api.Params) ([]byte, error) {
	return g.get(ctx, "/api/v1/sessions/"+segment(id), p)
}

func (g *gateway) Status(ctx context.Context) ([]byte, error) {
	return g.get(ctx, "/api/v1/status", nil)
}

func (g *gateway) String() string { return g.base.Redacted() }

func (g *gateway) Close() error {
	g.client.CloseIdleConnections()
	return nil
}

func (g *gateway) get(ctx context.Context, path string, p api.Params) ([]byte, error) {
	u := strings.TrimRight(g.base.String(), "/") + path
	if len(p) > 0 {
		u += "?" + url.Values(p).Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", g, err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := g.client.Do(req)
	if errors.Is(err, ErrNotHTTP) {
		return nil, fmt.Errorf("ask %s: %w", g, ErrNotHTTP)
	}
	if err != nil {
		return nil, unreachable("ask "+g.String(), "is skald serve running there, and is its --http this address?", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unreachable("read the answer of "+g.String(), "try again", err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("ask %s: the answer is larger than %d bytes", g, maxAnswer)
	case resp.StatusCode == http.StatusOK:
		return body, nil
	}
	if f, ok := api.ParseFailure(resp.StatusCode, body); ok {
		return nil, f
	}
	return nil, fmt.Errorf("ask %s: %s, which is no answer of skald's", g, resp.Status)
}

// segment returns id as one segment of a path. "." and ".." are escaped too:
// clients and proxies would take them for a way up.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}
