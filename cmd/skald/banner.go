package main

import (
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
)

// banner says where serve listens, where its data is, and what to try next, as
// commands that work when pasted into another terminal.
func (e env) banner(o serveOptions, server *natsd.Server, gw *gateway.Gateway, streams bus.Streams) {
	data := o.data
	if abs, err := filepath.Abs(data); err == nil {
		data = abs
	}
	natsURL, kind := o.nats.server, "outside, from "+o.serverFrom
	if server != nil {
		natsURL, kind = server.ClientURL(), "embedded, syncs before it acknowledges"
		if o.sync > 0 {
			kind = "embedded, syncs every " + o.sync.String()
		}
	}
	e.note("skald %s, epoch %s", buildVersion().Version, streams.Epoch)
	e.note("  NATS  %s (%s)", natsconn.Redact(natsURL), kind)
	e.note("  HTTP  %s", gw.URL())
	e.note("  data  %s", data)
	e.note("Try, in another terminal:")
	executable, _ := os.Executable() // "" is no build's either
	self := program(os.Args[0], executable)
	if !secret(natsURL) && o.nats.user == "" {
		e.note("  %s publish%s --session demo --class error --body %s", self, e.connection(o, natsURL), quote(`{"message":"hello"}`))
	}
	if o.tokens == "" {
		e.note("  curl -s %s", quote(gw.URL()+"/api/v1/status"))
		e.note("  %s events --url %s --after-seq 0", self, gw.URL())
	} else {
		e.note("  %s events --url %s --after-seq 0 --token-file FILE", self, gw.URL())
	}
	e.note("or open %s/ in a browser.", gw.URL())
}

// connection returns the flags with which another command reaches the server.
func (e env) connection(o serveOptions, natsURL string) string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"server", natsURL}, {"context", o.nats.context}, {"creds", o.nats.creds}, {"nkey", o.nats.nkey}, {"tlscert", o.nats.tlsCert},
		{"tlskey", o.nats.tlsKey}, {"tlsca", o.nats.tlsCA}, {"prefix", o.nats.prefix},
	} {
		if f.value != "" {
			b.WriteString(" --" + f.name + " " + quote(f.value))
		}
	}
	return b.String()
}

// secret reports whether a URL holds credentials, which are not to be shown.
func secret(address string) bool {
	for part := range strings.SplitSeq(address, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err != nil || u.User != nil {
			return true
		}
	}
	return false
}

// program returns how this program can be called from the same directory, as words
// of a shell; called is what it was called as. What "go run" builds lies in a folder
// that is removed or unreadable to people, so that the source is named instead.
func program(called, executable string) string {
	if underGoRun(executable) {
		return "go run ./cmd/skald"
	}
	if called == "" {
		return "skald"
	}
	return quote(called)
}

// underGoRun reports whether an executable lies in a folder of the go command: its
// work folder, go-build and a number, or its cache, which is called go-build unless
// GOCACHE says otherwise, and keeps executables in folders named by hash and "-d".
func underGoRun(executable string) bool {
	dir := filepath.Dir(executable)
	for part := range strings.SplitSeq(filepath.ToSlash(dir), "/") {
		if strings.HasPrefix(part, "go-build") {
			return true
		}
	}
	hash, cached := strings.CutSuffix(filepath.Base(dir), "-d")
	_, err := hex.DecodeString(hash)
	return cached && err == nil && len(hash) == 64
}

// quote returns s as one word of a shell.
func quote(s string) string {
	plain := func(r rune) bool {
		return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
