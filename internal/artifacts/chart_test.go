package artifacts_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

type (
	// chart is what the NATS chart takes, as far as the values use it: the chart's own
	// default values were read, the chart itself can not be had here. It ignores what it
	// does not know, so a typing error would be silent.
	chart struct {
		Config struct {
			Cluster struct {
				Enabled  bool
				Replicas int
				TLS      chartTLS
				Merge    map[string]any
			}
			NATS      struct{ TLS chartTLS }
			JetStream struct {
				Enabled     bool
				MemoryStore struct {
					Enabled bool
					MaxSize string
				}
				FileStore struct {
					Enabled      bool
					Dir, MaxSize string
					PVC          struct {
						Enabled bool
						Size    string
					}
				}
				Merge map[string]any
			}
			Monitor struct {
				Enabled bool
				Port    int
			}
			Merge map[string]any
		}
		Container struct {
			Image struct{ Repository, Tag string }
			Env   map[string]any
			Merge corev1.Container
			Patch []patch[corev1.VolumeMount]
		}
		Reloader struct {
			Enabled bool
			Merge   corev1.Container
		}
		PodTemplate struct {
			TopologySpreadConstraints map[string]corev1.TopologySpreadConstraint
			Merge                     corev1.PodTemplateSpec
			Patch                     []patch[corev1.Volume]
		}
		HeadlessService              struct{ Name string }
		Service, PodDisruptionBudget struct{ Enabled bool }
		NATSBox                      struct{ Enabled bool } `json:"natsBox"`
	}
	chartTLS struct {
		Enabled                    bool
		SecretName, Dir, Cert, Key string
		Merge                      map[string]any
	}
	patch[T any] struct {
		Op, Path string
		Value    T
	}
)

func (c chartTLS) section() map[string]any {
	tls := map[string]any{"cert_file": c.Dir + "/" + c.Cert, "key_file": c.Dir + "/" + c.Key}
	maps.Copy(tls, c.Merge)
	return tls
}

var (
	bare     = regexp.MustCompile(`"<< (.*?) >>"`)
	included = regexp.MustCompile(`"[^"]*\$include":"(.*)",?`)
)

// conf is the configuration that the chart makes of the values: its own members with
// config.merge laid over them as JSON, in which "<< x >>" loses its quotes and a key that
// ends in $include becomes a directive.
func (c chart) conf(t *testing.T) string {
	cluster := map[string]any{"port": 6222, "no_advertise": true, "tls": c.Config.Cluster.TLS.section()}
	maps.Copy(cluster, c.Config.Cluster.Merge)
	js := map[string]any{
		"store_dir": c.Config.JetStream.FileStore.Dir, "max_file_store": "<< " + c.Config.JetStream.FileStore.MaxSize + " >>",
		"max_memory_store": "<< " + c.Config.JetStream.MemoryStore.MaxSize + " >>",
	}
	maps.Copy(js, c.Config.JetStream.Merge)
	all := map[string]any{"server_name": "<< $POD_NAME >>", "port": 4222, "http_port": c.Config.Monitor.Port, "tls": c.Config.NATS.TLS.section(), "cluster": cluster, "jetstream": js}
	maps.Copy(all, c.Config.Merge)
	// One member a line, as the chart writes it.
	var out string
	for k, v := range all {
		var member strings.Builder
		enc := json.NewEncoder(&member)
		enc.SetEscapeHTML(false)
		require.NoError(t, enc.Encode(map[string]any{k: v}))
		out += strings.TrimSuffix(strings.TrimPrefix(member.String(), "{"), "}\n") + "\n"
	}
	out = included.ReplaceAllString(out, "include '$1'")
	return bare.ReplaceAllString(out, "$1")
}

// certificates makes those of a node, and returns their folder.
func certificates(t *testing.T, dir string) string {
	out := filepath.Join(dir, "certs")
	said, err := exec.Command(filepath.Join(deploy, "nats", "certs.sh"), out, "node").CombinedOutput()
	require.NoError(t, err, "%s", said)
	return out
}

// The values for the official NATS chart are made of members that it has, and lead to
// the same server as deploy/nats/nats.conf, in pods as closed as those of nats.yaml.
func TestChart(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy, "kubernetes", "nats-values.yaml"))
	require.NoError(t, err)
	var c chart
	require.NoError(t, yaml.UnmarshalStrict(text, &c))
	typo := strings.Replace(string(text), "  topologySpreadConstraints:", "  topologySpreadConstraint:", 1)
	require.Error(t, yaml.UnmarshalStrict([]byte(typo), &chart{}), "a typing error is found")

	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	shipped, err := os.ReadFile(filepath.Join(deploy, "nats", "nats.conf"))
	require.NoError(t, err)
	out := certificates(t, dir)
	// What differs between a machine and the chart: addresses, routes, paths.
	for name, value := range map[string]string{
		"NODE_NAME": "n", "NODE_ZONE": `"zone:n"`, "NODE_CLIENT": `"0.0.0.0:4222"`, "NODE_MONITOR": `"0.0.0.0:8222"`, "NODE_CLUSTER": `"0.0.0.0:6222"`,
		"NODE_ROUTE_1": `"nats-route://a:6222"`, "NODE_ROUTE_2": `"nats-route://b:6222"`, "NODE_ROUTE_3": `"nats-route://c:6222"`,
		"NODE_STORE": `"/data"`, "NODE_MAX_FILE_STORE": c.Config.JetStream.FileStore.MaxSize,
		"NODE_CERT": `"` + out + `/node.pem"`, "NODE_KEY": `"` + out + `/node-key.pem"`, "NODE_CA": `"` + out + `/ca.pem"`, "POD_NAME": "n",
	} {
		t.Setenv(name, value)
	}
	write("accounts.conf", "accounts { BUS { jetstream: enabled } }\n")
	write("accounts/accounts.conf", "accounts { BUS { jetstream: enabled } }\n")
	want, err := server.ProcessConfigFile(write("nats.conf", string(shipped)))
	require.NoError(t, err)
	made := regexp.MustCompile(`/certs/(cluster|client)`).ReplaceAllString(c.conf(t), out)
	got, err := server.ProcessConfigFile(write("chart.conf", made))
	require.NoError(t, err, made)
	for name, of := range map[string]func(o *server.Options) any{
		"name": func(o *server.Options) any { return o.ServerName }, "tags": func(o *server.Options) any { return o.Tags },
		"max_payload": func(o *server.Options) any { return o.MaxPayload }, "max_pending": func(o *server.Options) any { return o.MaxPending },
		"write_deadline": func(o *server.Options) any { return o.WriteDeadline }, "ping_interval": func(o *server.Options) any { return o.PingInterval },
		"ping_max": func(o *server.Options) any { return o.MaxPingsOut }, "lame_duck_duration": func(o *server.Options) any { return o.LameDuckDuration },
		"lame_duck_grace": func(o *server.Options) any { return o.LameDuckGracePeriod }, "sync_always": func(o *server.Options) any { return o.SyncAlways },
		"unique_tag": func(o *server.Options) any { return o.JetStreamUniqueTag }, "max_file_store": func(o *server.Options) any { return o.JetStreamMaxStore },
		"max_memory_store": func(o *server.Options) any { return o.JetStreamMaxMemory }, "cluster name": func(o *server.Options) any { return o.Cluster.Name },
		"cluster ping": func(o *server.Options) any { return o.Cluster.PingInterval }, "client TLS timeout": func(o *server.Options) any { return o.TLSTimeout },
		"route verify": func(o *server.Options) any { return o.Cluster.TLSConfig.ClientAuth }, "client verify": func(o *server.Options) any { return o.TLSConfig.ClientAuth },
		"ports":    func(o *server.Options) any { return []int{o.Port, o.HTTPPort, o.Cluster.Port} },
		"accounts": func(o *server.Options) any { return len(o.Accounts) },
	} {
		require.Equal(t, of(want), of(got), name)
	}
	require.True(t, got.SyncAlways)

	pod := c.PodTemplate.Merge.Spec
	require.Equal(t, "nats", c.PodTemplate.Merge.Labels["app"], "what policies.yaml selects")
	require.EqualValues(t, 65532, *pod.SecurityContext.RunAsUser)
	for _, k := range []corev1.Container{c.Container.Merge, c.Reloader.Merge} {
		require.True(t, *k.SecurityContext.ReadOnlyRootFilesystem)
		require.Equal(t, []corev1.Capability{"ALL"}, k.SecurityContext.Capabilities.Drop)
	}
	require.Equal(t, corev1.DoNotSchedule, c.PodTemplate.TopologySpreadConstraints["kubernetes.io/hostname"].WhenUnsatisfiable)
	require.Equal(t, c.PodTemplate.Patch[0].Value.Name, c.Container.Patch[0].Value.Name)
	nats, err := os.ReadFile(filepath.Join(deploy, "kubernetes", "nats.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(nats), "image: "+c.Container.Image.Repository+":"+c.Container.Image.Tag)
	require.Contains(t, string(nats), "value: "+c.Config.JetStream.FileStore.MaxSize)
	require.Contains(t, string(nats), "storage: "+c.Config.JetStream.FileStore.PVC.Size)
}
