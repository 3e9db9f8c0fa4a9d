package natsconn

import (
	"net/url"
	"strings"
)

// notShown stands for a URL in which credentials can not be told from the rest.
const notShown = "(URL not shown)"

// Redact returns urls, one server's or several separated by commas, with nothing
// but scheme, host and port: no user, password, token, path or query. A text
// that could be read in two ways (an unescaped /, ?, # or comma in a password) or
// that is no URL is replaced as a whole.
func Redact(urls string) string {
	servers, ok := parse(urls)
	if !ok {
		return notShown
	}
	var b strings.Builder
	for i, u := range servers {
		if i > 0 {
			b.WriteByte(',')
		}
		shown := url.URL{Scheme: u.Scheme, Host: u.Host}
		b.WriteString(shown.String())
	}
	return b.String()
}

// parse reads the servers of urls; ok is false if one is no URL with a host, or
// if it is not certain where its credentials end.
func parse(urls string) (servers []*url.URL, ok bool) {
	for i, s := range strings.Split(urls, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			// The comma before may be one in a password.
			if i > 0 && strings.Contains(s, "@") {
				return nil, false
			}
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" {
			return nil, false
		}
		// An @ behind the host means that the host is the start of a password.
		if strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
			return nil, false
		}
		servers = append(servers, u)
	}
	return servers, true
}
