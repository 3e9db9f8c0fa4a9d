package artifacts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// Laid over the cluster's compose file, each materializer has a Litestream of its own
// that sees its volume, and no two copies go to one place.
func TestLitestream_Compose(t *testing.T) {
	dir := filepath.Join(deploy, "docker")
	abs, err := filepath.Abs(dir)
	require.NoError(t, err)
	var files []types.ConfigFile
	for _, f := range []string{filepath.Join(dir, "compose.yaml"), filepath.Join(deploy, "litestream", "compose.yaml")} {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		files = append(files, types.ConfigFile{Filename: f, Content: text})
	}
	p, err := loader.LoadWithContext(t.Context(), types.ConfigDetails{WorkingDir: abs, ConfigFiles: files, Environment: types.Mapping{}})
	require.NoError(t, err)
	require.Len(t, p.Services, 10)
	seen := map[string]bool{}
	for _, n := range []string{"1", "2"} {
		s, m := p.Services["litestream"+n], p.Services["materializer"+n]
		require.Equal(t, m.User, s.User)
		require.True(t, s.ReadOnly)
		require.Contains(t, s.DependsOn, m.Name)
		data := func(s types.ServiceConfig) string {
			for _, v := range s.Volumes {
				if v.Target == "/data" {
					return v.Source
				}
			}
			return ""
		}
		require.NotEmpty(t, data(s))
		require.Equal(t, data(m), data(s), "the materializer's volume")
		replica := *s.Environment["REPLICA_URL"]
		require.False(t, seen[replica], replica)
		seen[replica] = true
		for _, v := range s.Volumes {
			if v.Type == "bind" {
				require.FileExists(t, v.Source)
			}
		}
	}
}

// What is merged into the base's StatefulSet and NetworkPolicy is of their kinds, names
// what the base has, and takes nothing away that the base lets out.
func TestLitestream_Kubernetes(t *testing.T) {
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join(deploy, path))
		require.NoError(t, err)
		return text
	}
	var k struct {
		APIVersion, Kind string
		Resources        []string
		Patches          []struct{ Path string }
	}
	require.NoError(t, yaml.UnmarshalStrict(read("litestream/kustomization.yaml"), &k))
	require.Equal(t, []string{"../kubernetes"}, k.Resources)
	require.Equal(t, []struct{ Path string }{{"sidecar.yaml"}, {"egress.yaml"}}, k.Patches)

	obj, err := decode(string(read("litestream/sidecar.yaml")))
	require.NoError(t, err)
	set := obj.(*appsv1.StatefulSet)
	base := string(read("kubernetes/materializer.yaml"))
	require.Contains(t, base, "kind: StatefulSet\nmetadata:\n  name: "+set.Name+"\n")
	pod := set.Spec.Template.Spec
	volumes := map[string]bool{"data": strings.Contains(base, "- metadata: { name: data }")}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		require.NotContains(t, base, "- name: "+c.Name+"\n", "it is another container")
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.NotZero(t, c.Resources.Limits.Memory().Value())
		for _, m := range c.VolumeMounts {
			require.True(t, volumes[m.Name], m.Name)
		}
		told := map[string]bool{}
		for _, e := range c.Env {
			told[e.Name] = true
		}
		for _, m := range []string{"SKALD_DATA", "REPLICA_URL"} {
			require.Contains(t, string(read("litestream/litestream.yml")), "${"+m+"}")
			require.True(t, told[m], m)
		}
	}

	obj, err = decode(string(read("litestream/egress.yaml")))
	require.NoError(t, err)
	patch := obj.(*networkingv1.NetworkPolicy)
	for _, doc := range strings.Split(string(read("kubernetes/policies.yaml")), "\n---\n") {
		obj, err := decode(doc)
		require.NoError(t, err)
		if p, ok := obj.(*networkingv1.NetworkPolicy); ok && p.Name == patch.Name {
			require.Subset(t, patch.Spec.Egress, p.Spec.Egress)
			require.Len(t, patch.Spec.Egress, len(p.Spec.Egress)+1)
			return
		}
	}
	t.Fatal("the base has no policy of that name")
}
