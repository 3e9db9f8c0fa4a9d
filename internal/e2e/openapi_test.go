//go:build unix

package e2e_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// What serve answers about a fleet that has worked for a while is as the served
// description has it, in the members of members too.
func TestOpenAPI_Fleet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	skald(t, "", "demo", "--data", dir, "--for", "3s", "--rate", "200", "--seed", "1").ok(t)
	s := serve(t, dir)
	d := described(t, s)
	facts, sessions := 0, 0
	for path := "/api/v1/events?after_seq=0&limit=1000"; ; {
		d.check(t, "Page", path)
		p, _ := s.get(t, path)
		facts += len(p.Events)
		if p.Next >= p.Latest {
			break
		}
		path = fmt.Sprintf("/api/v1/events?limit=1000&after_seq=%d", p.Next)
	}
	list := d.check(t, "Sessions", "/api/v1/sessions?limit=1000")
	for _, one := range list["sessions"].([]any) {
		one := one.(map[string]any)
		path := "/api/v1/sessions/" + url.PathEscape(one["session_id"].(string)) + "?workspace_id=" + url.QueryEscape(one["workspace_id"].(string))
		require.Equal(t, one, d.check(t, "Session", path))
		sessions++
	}
	d.check(t, "Status", "/api/v1/status")
	d.check(t, "Ready", "/readyz")
	t.Logf("%d facts of %d sessions", facts, sessions)
	require.Greater(t, facts, 100)
	require.Greater(t, sessions, 5)
	for _, name := range []string{"Session.activity", "Session.runtime", "Session.title", "Session.last_turn_outcome", "Session.frontier.digest", "Page.events.data"} {
		require.True(t, d.met[name], "%s was never there: %v", name, d.met)
	}
}

// openAPI is what the server says about its answers.
type openAPI struct {
	s   *server
	doc map[string]any
	c   *jsonschema.Compiler
	met map[string]bool // members that were there and not null
}

func described(t *testing.T, s *server) *openAPI {
	t.Helper()
	_, _, body := s.fetch(t, "/api/v1/openapi.json")
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("openapi.json", doc))
	return &openAPI{s, doc.(map[string]any), c, map[string]bool{}}
}

// check fetches a path, whose answer is of the schema and has no member that is not
// described.
func (d *openAPI) check(t *testing.T, schema, path string) map[string]any {
	t.Helper()
	status, _, body := d.s.fetch(t, path)
	require.Equal(t, 200, status, "%s: %s", path, body)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	require.NoError(t, err)
	compiled, err := d.c.Compile("openapi.json#/components/schemas/" + schema)
	require.NoError(t, err)
	require.NoError(t, compiled.Validate(v), "%s: %s", path, body)
	d.known(t, schema, map[string]any{"$ref": "#/components/schemas/" + schema}, v)
	return v.(map[string]any)
}

// known fails the test at a member that the schema does not have. An object of which it
// names no members may have any.
func (d *openAPI) known(t *testing.T, at string, schema map[string]any, v any) {
	t.Helper()
	schema = d.resolve(schema)
	switch v := v.(type) {
	case map[string]any:
		members := d.members(schema)
		for name, one := range v {
			if one != nil {
				d.met[at+"."+name] = true
			}
			if len(members) > 0 {
				require.Contains(t, members, name, at)
				d.known(t, at+"."+name, members[name].(map[string]any), one)
			}
		}
	case []any:
		items, _ := schema["items"].(map[string]any)
		for _, one := range v {
			d.known(t, at, items, one)
		}
	}
}

// members are those that the schema or one of its alternatives names.
func (d *openAPI) members(schema map[string]any) map[string]any {
	out := map[string]any{}
	if m, ok := schema["properties"].(map[string]any); ok {
		maps.Copy(out, m)
	}
	for _, list := range []string{"oneOf", "anyOf", "allOf"} {
		all, _ := schema[list].([]any)
		for _, one := range all {
			maps.Copy(out, d.members(d.resolve(one.(map[string]any))))
		}
	}
	return out
}

func (d *openAPI) resolve(schema map[string]any) map[string]any {
	ref, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	var v any = d.doc
	for _, key := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
		v = v.(map[string]any)[key]
	}
	return d.resolve(v.(map[string]any))
}
