package store_test

import (
	"database/sql"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

var update = flag.Bool("update", false, "write testdata/plans.txt anew")

// Every text has the plan that testdata/plans.txt shows, with and without statistics,
// and none of them reads a table from end to end or sorts it.
func TestPlans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "skald.db")
	fillForPlans(t, path)
	db := raw(t, path)
	const golden = "testdata/plans.txt"
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			_, err := db.Exec("ANALYZE")
			require.NoError(t, err)
			require.NotZero(t, number(t, db, "SELECT count(*) FROM sqlite_stat1"))
		}
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(store.Texts())) {
			text := store.Texts()[name]
			require.NotContains(t, text, "IS NULL OR", name)
			require.False(t, strings.HasSuffix(strings.TrimSpace(text), ";"), name)
			fmt.Fprintf(&b, "%s\n", name)
			for _, line := range plan(t, db, text) {
				fmt.Fprintf(&b, "    %s\n", line)
				checkPlan(t, name, line)
			}
		}
		if *update && !analyzed {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		require.Equal(t, string(want), b.String(), "statistics: %v", analyzed)
	}
}

// tables are those that grow.
var scans = regexp.MustCompile(`^SCAN (e|events|s|sessions|i|ids|rejects|held|marks)\b`)

// checkPlan refuses a plan's line that costs more the larger a table is.
func checkPlan(t *testing.T, name, line string) {
	t.Helper()
	switch {
	case scans.MatchString(line):
		// The lists that go through a whole table in its order stop at their limit.
		ordered := map[string]string{
			"sqlOldestPayload": "SCAN rejects USING INDEX rejects_kept", "sqlDropMarks": "SCAN marks",
			"sqlIrregular": "SCAN rejects USING INDEX rejects_irregular",
		}
		require.Equal(t, ordered[name], line, name)
	case strings.Contains(line, "TEMP B-TREE"):
		// The lowest numbers of several sessions.
		several := []string{
			"sqlPageOfID", "sqlTypedPageOfID", "sqlPageOfWorkspace", "sqlTypedPageOfWorkspace", "sqlEndOfID", "sqlEndOfWorkspace",
			"sqlPageOfScope", "sqlTypedPageOfScope", "sqlEndOfScope", "sqlPageOfIDInScope", "sqlTypedPageOfIDInScope", "sqlEndOfIDInScope",
			"sqlSessionsOfScope", "sqlRejectsOfWorkspace", "sqlRejectsOfID", "sqlRejectsOfSession",
		}
		require.Contains(t, several, name)
		require.Equal(t, "USE TEMP B-TREE FOR ORDER BY", strings.TrimSpace(line), name)
	}
	require.NotContains(t, line, "AUTOMATIC", name)
}

// plan returns the query plan, one line a step, deeper steps indented.
func plan(t *testing.T, db *sql.DB, text string) (lines []string) {
	t.Helper()
	if strings.HasPrefix(text, "PRAGMA") {
		return nil
	}
	args := make([]any, 19) // more than any text has
	for i := range args {
		args[i] = 1
	}
	rows, err := db.Query("EXPLAIN QUERY PLAN "+text, args...)
	require.NoError(t, err, text)
	defer rows.Close()
	depth := map[int]int{}
	for rows.Next() {
		var id, parent, unused int
		var detail string
		require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
		depth[id] = depth[parent] + 1
		lines = append(lines, strings.Repeat("  ", depth[id]-1)+detail)
	}
	require.NoError(t, rows.Err())
	return lines
}

// fillForPlans makes a store in which each table has rows, unevenly spread.
func fillForPlans(t *testing.T, path string) {
	t.Helper()
	s := openAt(t, path)
	seq := uint64(0)
	for n := range 20 {
		c := store.Commit{}
		for i := range 200 {
			seq++
			key := bus.Key{Workspace: fmt.Sprint("w", i%7%3), Session: fmt.Sprint("s", (n*31+i*i)%400)}
			c.Rows = append(c.Rows, row(seq, key, []string{"error", "turn_started", "turn_ended"}[i%3]))
			if i%10 == 0 {
				c.IDs = append(c.IDs, store.ID{Key: key, EventID: fmt.Sprint(seq)})
				c.Rejects = append(c.Rejects, reject(seq, &key, []byte("x"), bus.Identity{Publisher: "p", Count: seq, EventID: fmt.Sprint(seq)}))
				c.Held = append(c.Held, store.HeldWrite{Key: key, Page: &projection.HeldPage{HeldKey: projection.HeldKey{First: seq}, Body: []byte("{}")}})
			}
		}
		c.Position = at(seq*60, seq)
		commit(t, s, &c)
	}
	for i := range 5 {
		forget(t, s, bus.Key{Workspace: "w0", Session: fmt.Sprint("s", i*31)})
	}
	require.NoError(t, s.Close())
}

// A text that is not among those whose plans are asserted would go unnoticed.
func TestTexts_Complete(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	known := store.Texts()
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for _, id := range spec.Names {
				if strings.HasPrefix(id.Name, "sql") {
					require.Contains(t, known, id.Name)
					found++
				}
			}
			return true
		})
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if ok && lit.Kind == token.STRING && !strings.HasPrefix(name, "queries") {
				require.NotRegexp(t, `\b(SELECT .* FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM)\b`, lit.Value, "%s: a query outside queries.go", name)
			}
			return true
		})
	}
	require.Len(t, known, found)
}
