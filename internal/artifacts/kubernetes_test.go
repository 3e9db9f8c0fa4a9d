package artifacts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// decode reads a document strictly: a member that its kind does not have is an error.
func decode(text string) (any, error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return nil, err
	}
	kinds := map[string]any{
		"v1 Service": &corev1.Service{}, "apps/v1 StatefulSet": &appsv1.StatefulSet{}, "apps/v1 Deployment": &appsv1.Deployment{},
		"policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": &networkingv1.NetworkPolicy{},
	}
	into, ok := kinds[head.APIVersion+" "+head.Kind]
	if !ok {
		return nil, &os.PathError{Op: "decode", Path: head.APIVersion + " " + head.Kind, Err: os.ErrInvalid}
	}
	return into, yaml.UnmarshalStrict([]byte(text), into)
}

// Each manifest is one of its kind, selectors select, pods run as nobody and with
// nothing to write but their volumes, and the kustomization lists all files.
func TestKubernetes(t *testing.T) {
	dir := filepath.Join(deploy, "kubernetes")
	text, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	require.NoError(t, err)
	var k struct {
		APIVersion, Kind string
		Resources        []string
		Images           []struct{ Name, NewName, NewTag string }
	}
	require.NoError(t, yaml.UnmarshalStrict(text, &k))
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	require.NoError(t, err)
	require.Len(t, k.Resources, len(files)-2, "all but itself and the values of the NATS chart")

	pods := map[string]corev1.PodTemplateSpec{} // by label app
	var selectors []map[string]string
	for _, name := range k.Resources {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, doc := range strings.Split(string(text), "\n---\n") {
			obj, err := decode(doc)
			require.NoError(t, err, "%s: %s", name, doc)
			switch o := obj.(type) {
			case *appsv1.StatefulSet:
				pods[o.Spec.Template.Labels["app"]] = o.Spec.Template
				selectors = append(selectors, o.Spec.Selector.MatchLabels)
				require.Len(t, o.Spec.VolumeClaimTemplates, 1, "%s has a volume", o.Name)
				for _, c := range o.Spec.Template.Spec.Containers {
					require.NotNil(t, c.ReadinessProbe, c.Name)
					require.NotNil(t, c.LivenessProbe, c.Name)
					require.NotNil(t, c.StartupProbe, c.Name)
				}
			case *appsv1.Deployment:
				pods[o.Spec.Template.Labels["app"]] = o.Spec.Template
				selectors = append(selectors, o.Spec.Selector.MatchLabels)
			case *corev1.Service:
				selectors = append(selectors, o.Spec.Selector)
			case *policyv1.PodDisruptionBudget:
				selectors = append(selectors, o.Spec.Selector.MatchLabels)
			}
			typo := strings.Replace(doc, "\nspec:", "\nspecs:", 1)
			_, err = decode(typo)
			require.Error(t, err, "a typing error is found")
		}
	}
	require.Len(t, pods, 3)
	for _, s := range selectors {
		require.Contains(t, pods, s["app"])
	}
	for app, p := range pods {
		sc := p.Spec.SecurityContext
		require.NotNil(t, sc, app)
		require.True(t, *sc.RunAsNonRoot, app)
		require.EqualValues(t, 65532, *sc.RunAsUser, app)
		volumes := map[string]bool{"data": true} // the claim's
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = true
		}
		for _, c := range p.Spec.Containers {
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, app)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, app)
			require.Equal(t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, app)
			require.NotZero(t, c.Resources.Limits.Memory().Value(), app)
			for _, m := range c.VolumeMounts {
				require.True(t, volumes[m.Name], "%s: %s", app, m.Name)
			}
			if app == "nats" {
				var names []string
				for _, e := range c.Env {
					names = append(names, e.Name)
				}
				require.Subset(t, names, variables(t), "what nats.conf wants to know")
			}
		}
	}
}
