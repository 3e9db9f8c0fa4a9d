package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/skaldbus/skald/bus"
)

// unreleased is the version of a build that no version control told one.
const unreleased = "0.0.0-dev"

// version is what a build says of itself.
type version struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Modified   bool   `json:"modified"`
	Go         string `json:"go"`
	Contract   int    `json:"contract"`
	NATSServer string `json:"nats_server"`
	MinServer  string `json:"min_nats_server"`
	SQLite     string `json:"sqlite"`
}

func buildVersion() version {
	v := version{
		Version: unreleased, Commit: "unknown", Go: runtime.Version(), Contract: bus.Contract,
		NATSServer: server.VERSION, MinServer: bus.MinServerVersion, SQLite: sqlite3.SQLITE_VERSION,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if s := strings.TrimPrefix(info.Main.Version, "v"); s != "" && s != "(devel)" {
		v.Version = s
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func versionCommand(e env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of skald and what it is built from",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.RunE = func(*cobra.Command, []string) error {
		v := buildVersion()
		if asJSON {
			b, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("encode version: %w", err)
			}
			return printLines(e.stdout, [][]byte{b})
		}
		commit := v.Commit
		if v.Modified {
			commit += ", modified"
		}
		return table(e.stdout, [][]string{
			{"skald", v.Version},
			{"commit", commit},
			{"contract", fmt.Sprint(v.Contract)},
			{"go", v.Go},
			{"nats-server", v.NATSServer + " (embedded; outside from " + v.MinServer + ")"},
			{"sqlite", v.SQLite},
		}, width(e.stdout))
	}
	return cmd
}
