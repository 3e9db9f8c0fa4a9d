package main

import (
	"strconv"

	"github.com/skaldbus/skald/internal/gateway"
	"github.com/skaldbus/skald/internal/metrics"
)

// metricsBuild says for /metrics what is running.
func metricsBuild() metrics.Build {
	v := buildVersion()
	return metrics.Build{
		Version: v.Version, Commit: v.Commit, Go: v.Go, NATSServer: v.NATSServer, SQLite: v.SQLite, Contract: strconv.Itoa(v.Contract),
	}
}

// metricsChecks are the checks of readiness without their details, which are no labels.
func metricsChecks(health func() []gateway.Check) func() []metrics.Check {
	return func() []metrics.Check {
		var out []metrics.Check
		for _, c := range health() {
			out = append(out, metrics.Check{Name: c.Name, OK: c.OK})
		}
		return out
	}
}
