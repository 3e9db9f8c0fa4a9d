//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// nginx starts the distribution's nginx in front of a gateway, with its default
// buffering and with gzip for everything, and returns its URL.
func nginx(t *testing.T, gateway string) string {
	t.Helper()
	path := skaldtest.NeedProgram(t, "nginx")
	dir, at := t.TempDir(), skaldtest.FreeAddress(t)
	config := fmt.Sprintf(`
daemon off;
master_process off; # one process, which ends with the test
worker_processes 1;
pid %[1]s/pid;
error_log %[1]s/error.log;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	gzip on; gzip_types *; gzip_proxied any; gzip_min_length 1; gzip_comp_level 6;
	server {
		listen %[2]s;
		location / { proxy_pass %[3]s; }
	}
}`, dir, at, gateway)
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := command(t)
	cmd.Path, cmd.Args = path, []string{"nginx", "-p", dir, "-c", file}
	p := background(t, cmd)
	skaldtest.Eventually(t, patience, func() bool {
		resp, err := client.Get("http://" + at + "/healthz")
		if err != nil {
			return !p.running()
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	require.True(t, p.running(), p.text())
	return "http://" + at
}

// A compressor or a proxy waited for a full buffer. Here each fact comes by itself, with
// nothing behind it that would push it out, directly and through a stock nginx that
// compresses everything: within a second on a machine that has time, and in any case
// before the next comment.
func TestB35_Proxy(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	proxied := nginx(t, s.http)
	for name, base := range map[string]string{"direct": s.http, "nginx": proxied} {
		for _, encoding := range []string{"", "gzip", "gzip, br"} {
			headers := []string{}
			if encoding == "" {
				// Go's client asks for gzip, and undoes it, unless it is told.
				headers = append(headers, "Accept-Encoding", "identity")
			} else if encoding != "gzip" {
				headers = append(headers, "Accept-Encoding", "br")
			}
			at := url.Values{"workspace_id": {name + encoding}}
			one, err := follow(base, at, "", headers...)
			require.NoError(t, err)
			plain, err := follow(s.http, at, "", "Accept-Encoding", "identity")
			require.NoError(t, err)
			require.Contains(t, one.resp.Header.Get("Cache-Control"), "no-transform")
			for i := range scaled(3, 10) {
				s.worker(t).put(ingestSubject(name+encoding, "s", "error"), nil, failed(strings.Repeat("x", 100)))
				plain.need(t, i+1) // it has been sent, however busy the machine is
				require.NoError(t, one.read(i+1, 10*time.Second), "%s %s", name, encoding)
				require.Len(t, one.facts, i+1, "%s, %q: fact %d is kept back", name, encoding, i+1)
			}
			one.close()
			plain.close()
		}
	}
}
