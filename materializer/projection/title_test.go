package projection_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skaldbus/skald/bus"
	"github.com/stretchr/testify/require"
)

// prompt is a queued prompt of the given content blocks.
func prompt(id, blocks string) string {
	return fmt.Sprintf(`{"type":"command_queued","data":{"command_id":%q,"command":{"type":"prompt","data":{"prompt":%s}},"created_at_ms":1}}`, id, blocks)
}

func text(t string) string { return `[{"type":"text","text":"` + t + `"}]` }

func info(title string) string {
	return `{"type":"session_update","data":{"update":{"sessionUpdate":"session_info_update"` + title + `}}}`
}

// The title of a session: from the first prompt that has words, or as the harness
// says; the record's own comes before both.
func TestTitle(t *testing.T) {
	x63, x64 := strings.Repeat("x", 63), strings.Repeat("x", 64)
	rows := []struct {
		name         string
		observations []string
		want         string
	}{
		{"prompt", []string{prompt("p", text("Fix the build"))}, `"Fix the build"`},
		{"white space collapses", []string{prompt("p", text(`\n  Fix\t\u00a0the \n build  `))}, `"Fix the build"`},
		{"several blocks", []string{prompt("p", `[{"type":"text","text":"Fix"},{"type":"image","data":"…"},{"type":"text","text":"it"}]`)}, `"Fix it"`},
		{"reserved blocks", []string{prompt("p", text(` <hel-context a=\"1\">no</hel-context>\n<mj-note>no</mj-note><user_shell_command>ls</user_shell_command> Fix <b>it</b>`))}, `"Fix <b>it</b>"`},
		{"a reserved tag that does not end", []string{prompt("p", text(`<mj-note>x`))}, `"<mj-note>x"`},
		{"another tag", []string{prompt("p", text(`<b>x</b>`))}, `"<b>x</b>"`},
		{"64 code points", []string{prompt("p", text(x64))}, `"` + x64 + `"`},
		{"64 code points and white space", []string{prompt("p", text(x64+"  "))}, `"` + x64 + `"`},
		{"65 without white space", []string{prompt("p", text(x64+"y"))}, `"` + x63 + `…"`},
		{"65, cut at the last space", []string{prompt("p", text("ab "+x63))}, `"ab…"`},
		{"a space in 64th place is not among the 63", []string{prompt("p", text("ab "+x63[:60]+" c"))}, `"ab…"`},
		{"code points, not bytes", []string{prompt("p", text(strings.Repeat("日", 65)))}, `"` + strings.Repeat("日", 63) + `…"`},
		{"no words", []string{prompt("p", text("  "))}, `null`},
		{"the second prompt has words", []string{prompt("p", `[]`), prompt("q", text("two"))}, `"two"`},
		{"the first words stay", []string{prompt("p", text("one")), prompt("q", text("two"))}, `"one"`},
		{"what is no text gives none", []string{prompt("p", `{"a":1}`), prompt("q", `[7,{"type":"text"},{"type":"text","text":7}]`)}, `null`},
		{"settings give none", []string{setConfig("k")}, `null`},
		{"harness", []string{prompt("p", text("one")), info(`,"title":"Given"`)}, `"Given"`},
		{"harness, escaped kind", []string{`{"type":"session_update","data":{"update":{"sessionUpdate":"session_inf\u006f_update","title":"Given"}}}`}, `"Given"`},
		{"harness, another order", []string{`{"type":"session_update","data":{"x":1,"update":{"title":"Given","sessionUpdate":"session_info_update"}}}`}, `"Given"`},
		{"harness without a limit", []string{info(`,"title":" ` + x64 + ` ` + x64 + `"`)}, `"` + x64 + ` ` + x64 + `"`},
		{"harness says nothing of it", []string{info(`,"title":"Given"`), info(``)}, `"Given"`},
		{"harness clears", []string{info(`,"title":"Given"`), info(`,"title":null`)}, `null`},
		{"harness clears with white space", []string{info(`,"title":"Given"`), info(`,"title":" \n"`)}, `null`},
		{"a cleared title is asked for again", []string{info(`,"title":"Given"`), info(`,"title":null`), prompt("p", text("one"))}, `"one"`},
		{"titles of other updates", []string{`{"type":"session_update","data":{"update":{"sessionUpdate":"tool_call","title":"a","title":7}}}`}, `null`},
		{"half a surrogate", []string{prompt("p", text(`a\ud800b`))}, `"a` + strings.Repeat("\uFFFD", 3) + `b"`},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			j := &journal{}
			for _, o := range row.observations {
				j.add(o)
			}
			s := newSession(t)
			r := s.mustApply(bus.ClassProjection, j.page(1, j.at.Ordinal))
			require.Zero(t, r.Unprojected)
			require.Empty(t, r.Facts)
			require.Equal(t, row.want, string(s.view()["title"]))

			s.mustApply(bus.ClassSession, `{"op":"save","title":"of the \u0072ecord"}`)
			require.Equal(t, `"of the \u0072ecord"`, string(s.view()["title"]))
			s.mustApply(bus.ClassSession, `{"op":"save","title":null}`)
			require.Equal(t, row.want, string(s.view()["title"]))
		})
	}
}
