package gateway

import (
	"net/http"

	"github.com/skaldbus/skald/bus"
)

// Check is one line of /readyz.
type Check struct {
	Name   string
	OK     bool
	Detail string // what is wrong, or worth knowing
}

// readiness returns the status and the body of /readyz,
// {"ready":…,"checks":[{"name","ok","detail"?},…]}. Details may name numbers and
// addresses, which are not for everyone; probes bring no token.
func (g *Gateway) readiness(details bool) (int, []byte) {
	ready := true
	var list []byte
	for _, c := range g.o.Health() {
		if list != nil {
			list = append(list, ',')
		}
		list = append(list, `{"name":`...)
		list = bus.AppendQuoted(list, c.Name)
		list = append(list, `,"ok":`...)
		list = appendBool(list, c.OK)
		if c.Detail != "" && details {
			list = append(list, `,"detail":`...)
			list = bus.AppendQuoted(list, c.Detail)
		}
		list = append(list, '}')
		ready = ready && c.OK
	}
	body := appendBool([]byte(`{"ready":`), ready)
	body = append(body, `,"checks":[`...)
	body = append(body, list...)
	body = append(body, ']', '}')
	if !ready {
		return http.StatusServiceUnavailable, body
	}
	return http.StatusOK, body
}

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}
