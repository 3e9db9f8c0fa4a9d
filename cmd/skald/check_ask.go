package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/skaldbus/skald/internal/metrics"
)

// maxCheckAnswer bounds an answer that check reads.
const maxCheckAnswer = 8 << 20

// errNotAllowed: the token is missing, unknown or not for all workspaces, so that
// nothing was found out.
var errNotAllowed = errors.New("serve wants a token for all workspaces: --token-file or SKALD_TOKEN")

// statusError is an error with an exit status of its own.
type statusError struct {
	error
	status int
}

func (s *statusError) Unwrap() error { return s.error }

// unknownIf gives an error the status that says that nothing was found out.
func unknownIf(err error) error {
	if err == nil {
		return nil
	}
	return &statusError{err, int(stateUnknown)}
}

// stateOf is what an error of asking means: a serve that does not answer is no
// question but the trouble.
func stateOf(err error) state {
	if errors.Is(err, errNotAllowed) {
		return stateUnknown
	}
	return stateCritical
}

// asker asks one gateway.
type asker struct {
	base  *url.URL
	token string
}

func (o *checkOptions) asker() (*asker, error) {
	u, err := url.Parse(o.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, usage("--url: must be http://host:port or https://host, perhaps with a path")
	}
	if o.timeout <= 0 {
		return nil, usage("--timeout: must be above 0")
	}
	for _, t := range o.thresholds {
		if t.warning >= 0 && t.critical >= 0 && t.warning > t.critical {
			return nil, usage("--%s-warning: must not be above --%s-critical", t.name, t.name)
		}
	}
	a := &asker{base: u, token: os.Getenv("SKALD_TOKEN")}
	if o.tokenFile != "" {
		text, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("read token: %w", err)
		}
		a.token = strings.TrimSpace(string(text))
	}
	return a, nil
}

// all returns the checks of readiness and the figures. With an error, what was found
// out before it.
func (a *asker) all(ctx context.Context) ([]finding, map[string]float64, error) {
	body, err := a.get(ctx, "/readyz", http.StatusOK, http.StatusServiceUnavailable)
	if err != nil {
		return nil, nil, err
	}
	var ready struct {
		Checks []struct {
			Name   string
			OK     bool
			Detail string
		}
	}
	if err := json.Unmarshal(body, &ready); err != nil || len(ready.Checks) == 0 {
		return nil, nil, fmt.Errorf("ask %s: that is no answer of skald's", a.base.Redacted())
	}
	var findings []finding
	for _, c := range ready.Checks {
		f := finding{Name: "ready." + c.Name}
		if !c.OK {
			f.State, f.Detail = stateCritical, c.Detail
			if f.Detail == "" {
				f.Detail = "fails; details need a token for all workspaces"
			}
		}
		findings = append(findings, f)
	}
	if body, err = a.get(ctx, "/metrics", http.StatusOK); err != nil {
		return findings, nil, err
	}
	figures, err := metrics.Read(bytes.NewReader(body))
	if err != nil {
		return findings, nil, fmt.Errorf("ask %s: %w", a.base.Redacted(), err)
	}
	return findings, figures, nil
}

func (a *asker) get(ctx context.Context, path string, wanted ...int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base.JoinPath(path).String(), nil)
	if err != nil {
		return nil, fmt.Errorf("ask: %w", err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		defer resp.Body.Close()
		var body []byte
		if body, err = io.ReadAll(io.LimitReader(resp.Body, maxCheckAnswer)); err == nil {
			for _, status := range wanted {
				if resp.StatusCode == status {
					return body, nil
				}
			}
			if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
				return nil, errNotAllowed
			}
			return nil, fmt.Errorf("ask %s: %s", req.URL.Redacted(), resp.Status)
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	var failed *url.Error
	if errors.As(err, &failed) { // it names the URL, perhaps with a password
		err = failed.Err
	}
	return nil, fmt.Errorf("ask %s: %w", req.URL.Redacted(), err)
}
