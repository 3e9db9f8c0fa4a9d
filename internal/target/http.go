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

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

const (
	// httpTimeout bounds one request; the gateway itself gives up earlier.
	httpTimeout = 40 * time.Second
	// maxAnswer bounds an answer: pages hold 4 MiB, or one row of any size.
	maxAnswer = 64 << 20
	// eventsPath is where pages and streams are.
	eventsPath = "/api/v1/events"
)

// gateway asks a gateway over HTTP.
type gateway struct {
	base   *url.URL
	client *http.Client
	token  string // "" if the gateway needs none
}

func openHTTP(address, token string) (*gateway, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: url must be http://host:port or https://host, perhaps with a path", ErrUsage)
	}
	return &gateway{base: u, client: &http.Client{Timeout: httpTimeout, Transport: listening()}, token: token}, nil
}

func (g *gateway) Events(ctx context.Context, p api.Params) ([]byte, error) {
	return g.get(ctx, eventsPath, p)
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
	resp, err := g.ask(ctx, g.client, path, p, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return g.body(resp)
}

// ask sends a request and returns the answer, whose body the caller closes, if it is
// what was asked for.
func (g *gateway) ask(ctx context.Context, client *http.Client, path string, p api.Params, header http.Header) (*http.Response, error) {
	u := strings.TrimRight(g.base.String(), "/") + path
	if len(p) > 0 {
		u += "?" + url.Values(p).Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", g, err)
	}
	req.Header = header
	if g.token != "" {
		req.Header.Set("Authorization", "Bearer "+g.token)
	}
	resp, err := client.Do(req)
	if errors.Is(err, ErrNotHTTP) {
		return nil, fmt.Errorf("ask %s: %w", g, ErrNotHTTP)
	}
	if err != nil {
		return nil, unreachable("ask "+g.String(), "is skald serve running there, and is its --http this address?", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := g.body(resp)
	if err != nil {
		return nil, err
	}
	if f, ok := api.ParseFailure(resp.StatusCode, body); ok {
		return nil, f
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		// Of a proxy whose gateway is not there.
		return nil, fmt.Errorf("ask %s: %w: something in between answers %s", g, bus.ErrUnavailable, resp.Status)
	}
	return nil, fmt.Errorf("ask %s: %s, which is no answer of skald's", g, resp.Status)
}

// body reads the answer.
func (g *gateway) body(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, unreachable("read the answer of "+g.String(), "try again", err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("ask %s: the answer is larger than %d bytes", g, maxAnswer)
	}
	return body, nil
}

// segment returns id as one segment of a path. "." and ".." are escaped too:
// clients and proxies would take them for a way up.
func segment(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}
