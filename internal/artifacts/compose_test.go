package artifacts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const deploy = "../../deploy"

// variables are those that nats.conf takes from the environment.
func variables(t *testing.T) []string {
	text, err := os.ReadFile(filepath.Join(deploy, "nats", "nats.conf"))
	require.NoError(t, err)
	var out []string
	for _, m := range regexp.MustCompile(`\$(NODE_[A-Z0-9_]+)`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	out = slices.Compact(out)
	require.Greater(t, len(out), 10)
	return out
}

func load(t *testing.T, path string, text []byte) (*types.Project, error) {
	abs, err := filepath.Abs(filepath.Dir(path))
	require.NoError(t, err)
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir: abs, ConfigFiles: []types.ConfigFile{{Filename: path, Content: text}}, Environment: types.Mapping{},
	})
}

// The compose file is one: names of members, references between services, volumes. What
// the nodes' configuration wants to know, each of them is told, and each service gets
// the files that it names.
func TestCompose(t *testing.T) {
	path := filepath.Join(deploy, "docker", "compose.yaml")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	p, err := load(t, path, text)
	require.NoError(t, err)
	require.Len(t, p.Services, 7)
	for name, s := range p.Services {
		targets := []string{}
		for _, v := range s.Volumes {
			targets = append(targets, v.Target)
		}
		if strings.HasPrefix(name, "node") {
			for _, v := range variables(t) {
				require.Contains(t, s.Environment, v, name)
			}
			require.NotNil(t, s.HealthCheck, name)
			for _, want := range []string{"/etc/nats/nats.conf", "/etc/nats/accounts.conf", "/certs/ca.pem", "/certs/node.pem", "/certs/node-key.pem", "/data"} {
				require.Contains(t, targets, want, name)
			}
			continue
		}
		require.Equal(t, "65532:65532", s.User, name)
		require.True(t, s.ReadOnly, name)
		require.Len(t, s.DependsOn, 3, name)
		for _, arg := range s.Command {
			if strings.HasPrefix(arg, "/") {
				require.Contains(t, targets, arg, name)
			}
		}
		require.NotNil(t, s.Build)
		require.FileExists(t, filepath.Join(s.Build.Context, s.Build.Dockerfile))
	}
	_, err = load(t, path, []byte(strings.Replace(string(text), "    command: *edge", "    comand: *edge", 1)))
	require.Error(t, err, "a typing error is found")
}
