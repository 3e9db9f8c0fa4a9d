package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the module's, seen from this folder.
const root = "../.."

// The module keeps its own rules.
func TestModule(t *testing.T) {
	files, err := read(root)
	require.NoError(t, err)
	folders := map[string]bool{}
	for _, f := range files {
		folders[f.folder] = true
	}
	require.True(t, folders["bus"] && folders["internal/archtest"], "read the wrong folder: %v", folders)
	require.False(t, folders["internal/conformance"], "is a module of its own")
	for _, broken := range check(files) {
		t.Error(broken)
	}
}

// Each rule is broken by a file that breaks it, and by no other.
func TestCheck(t *testing.T) {
	const own = `"` + module + `/`
	for name, tc := range map[string]struct {
		path, src string
		broken    string // empty: nothing
	}{
		"bus imports a library":         {"bus/x.go", `import "github.com/nats-io/nats.go"`, ""},
		"bus imports ours":              {"bus/x.go", `import ` + own + `internal/natsd"`, "bus may import"},
		"bus imports publisher":         {"bus/x.go", `import ` + own + `publisher"`, "bus may import"},
		"publisher imports bus":         {"publisher/x.go", `import ` + own + `bus"`, ""},
		"publisher imports its own":     {"publisher/x.go", `import ` + own + `publisher/outbox"`, ""},
		"publisher imports consumer":    {"publisher/x.go", `import ` + own + `consumer"`, "publisher may import"},
		"below publisher":               {"publisher/x/x.go", `import ` + own + `materializer"`, "publisher may import"},
		"outbox imports upward":         {"publisher/outbox/x.go", `import ` + own + `publisher"`, "publisher/outbox may import"},
		"publisher imports internal":    {"publisher/x.go", `import ` + own + `internal/natsconn"`, "publisher may import"},
		"consumer imports materializer": {"consumer/x.go", `import ` + own + `materializer/store"`, "consumer may import"},
		"materializer goes downward":    {"materializer/x.go", "import (\n" + own + "bus\"\n" + own + "materializer/store\"\n" + own + "materializer/projection\"\n)", ""},
		"materializer imports gateway":  {"materializer/x.go", `import ` + own + `internal/gateway"`, "materializer may import"},
		"store imports projection":      {"materializer/store/x.go", `import ` + own + `materializer/projection"`, ""},
		"store imports upward":          {"materializer/store/x.go", `import ` + own + `materializer"`, "materializer/store may import"},
		"projection imports bus":        {"materializer/projection/x.go", "import (\n\"strings\"\n" + own + "bus\"\n)", ""},
		"projection imports store":      {"materializer/projection/x.go", `import ` + own + `materializer/store"`, "materializer/projection may import"},
		"projection imports time":       {"materializer/projection/x.go", `import "time"`, "must not depend on it"},
		"projection imports slog":       {"materializer/projection/x.go", `import "log/slog"`, "must not depend on it"},
		"projection imports sql":        {"materializer/projection/x.go", `import "database/sql"`, "must not depend on it"},
		"projection imports http":       {"materializer/projection/x.go", `import "net/http"`, "must not depend on it"},
		"projection imports os":         {"materializer/projection/x.go", `import "os"`, "must not depend on it"},
		"projection imports chance":     {"materializer/projection/x.go", `import "math/rand/v2"`, "must not depend on it"},
		"projection imports NATS":       {"materializer/projection/x.go", `import "github.com/nats-io/nats.go/jetstream"`, "must not depend on it"},
		"projection imports SQLite":     {"materializer/projection/x.go", `import _ "modernc.org/sqlite"`, "must not depend on it"},
		"projection's tests may":        {"materializer/projection/x_test.go", `import "time"`, ""},
		"projection imports math":       {"materializer/projection/x.go", `import "math"`, ""},
		"internal imports public":       {"internal/gateway/x.go", `import ` + own + `materializer/store"`, ""},
		"internal imports cmd":          {"internal/gateway/x.go", `import ` + own + `cmd/skald"`, "nothing imports a command"},
		"internal's tests import cmd":   {"internal/gateway/x_test.go", `import ` + own + `cmd/skald"`, ""},
		"bus imports cmd":               {"bus/x.go", `import ` + own + `cmd/skald/flags"`, "nothing imports a command"},
		"cmd imports all":               {"cmd/skald/x.go", "import (\n" + own + "internal/gateway\"\n" + own + "publisher\"\n)", ""},
		"cmd imports helpers":           {"cmd/skald/x.go", `import ` + own + `internal/skaldtest"`, "only tests"},
		"natsd imports bus":             {"internal/natsd/x.go", `import ` + own + `bus"`, "internal/natsd may import"},
		"natsd imports a library":       {"internal/natsd/x.go", `import "github.com/nats-io/nats-server/v2/server"`, ""},
		"natsd's tests import bus":      {"internal/natsd/x_test.go", `import ` + own + `bus"`, ""},
		"dirlock imports bus":           {"internal/dirlock/x.go", `import ` + own + `bus"`, "internal/dirlock may import"},
		"natsconn imports bus":          {"internal/natsconn/x.go", `import ` + own + `bus"`, ""},
		"natsconn imports natsd":        {"internal/natsconn/x.go", `import ` + own + `internal/natsd"`, "internal/natsconn may import"},
		"service imports target":        {"internal/service/x.go", `import ` + own + `internal/target"`, ""},
		"target imports cmd":            {"internal/target/x.go", `import ` + own + `cmd/skald"`, "nothing imports a command"},
		"internal imports helpers":      {"internal/service/x.go", `import ` + own + `internal/skaldtest"`, "only tests"},
		"helpers import natsd":          {"internal/skaldtest/x.go", `import ` + own + `internal/natsd"`, ""},
		"tests import helpers":          {"cmd/skald/x_test.go", `import ` + own + `internal/skaldtest"`, ""},
		"materializer and Prometheus":   {"materializer/x.go", `import "github.com/prometheus/client_golang/prometheus"`, "only internal/metrics"},
		"cmd and Prometheus":            {"cmd/skald/x.go", `import "github.com/prometheus/client_golang/prometheus"`, "only internal/metrics"},
		"metrics and Prometheus":        {"internal/metrics/x.go", `import "github.com/prometheus/client_golang/prometheus"`, ""},
		"publisher and OpenTelemetry":   {"publisher/x.go", `import "go.opentelemetry.io/otel/trace"`, ""},
		"publisher and its SDK":         {"publisher/x.go", `import "go.opentelemetry.io/otel/sdk/trace"`, "only internal/tracing"},
		"tracing and an exporter":       {"internal/tracing/x.go", `import "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"`, ""},
		"a test and Prometheus":         {"cmd/skald/x_test.go", `import "github.com/prometheus/client_golang/prometheus"`, ""},
		"a name that begins alike":      {"materializer/projections/x.go", `import "time"`, ""},
		"init":                          {"internal/x/x.go", "func init() {}", "func init"},
		"init of a test":                {"internal/x/x_test.go", "func init() {}", ""},
		"a method init":                 {"internal/x/x.go", "type t struct{}\n\nfunc (t) init() {}", ""},
		"400 lines":                     {"internal/x/x.go", strings.Repeat("\n", 397) + "var a int", ""},
		"401 lines":                     {"internal/x/x.go", strings.Repeat("\n", 398) + "var a int", "401 lines"},
		"401 lines of a test":           {"internal/x/x_test.go", strings.Repeat("\n", 398) + "var a int", "401 lines"},
		"401 lines with a reason":       {"internal/x/x.go", "// Long because: one table\n" + strings.Repeat("\n", 398), ""},
		"401 lines without a reason":    {"internal/x/x.go", "// Long because: \n" + strings.Repeat("\n", 398), "lines"},
		"the reason too far down":       {"internal/x/x.go", strings.Repeat("\n", 20) + "// Long because: one table\n" + strings.Repeat("\n", 398), "lines"},
		"a module of its own":           {"internal/conformance/x.go", `import ` + own + `cmd/skald"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "internal/conformance/go.mod", "module conformance\n")
			write(t, dir, filepath.Join(filepath.Dir(tc.path), "doc.go"), "package x\n")
			write(t, dir, tc.path, "package x\n\n"+tc.src+"\n")
			files, err := read(dir)
			require.NoError(t, err)
			broken := check(files)
			if tc.broken == "" {
				require.Empty(t, broken)
				return
			}
			require.Len(t, broken, 1)
			require.Contains(t, broken[0], tc.path)
			require.Contains(t, broken[0], tc.broken)
		})
	}
}

// A package without a doc.go is named, also one of tests only.
func TestCheck_Doc(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bus/doc.go", "package bus\n")
	write(t, dir, "consumer/consumer.go", "package consumer\n")
	write(t, dir, "internal/e2e/x_test.go", "package e2e\n")
	write(t, dir, "deploy/testdata/x.go", "package ignored\n")
	write(t, dir, ".hidden/x.go", "package ignored\n")
	files, err := read(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"consumer: has no doc.go", "internal/e2e: has no doc.go"}, check(files))
}

// A file that can not be read as Go is an error, not a file without imports.
func TestRead_NotGo(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "bus/x.go", "import\n")
	_, err := read(dir)
	require.Error(t, err)
}

func write(t *testing.T, dir, path, text string) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(path))
	require.NoError(t, os.MkdirAll(filepath.Dir(p), 0o700))
	require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
}
