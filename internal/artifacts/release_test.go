package artifacts_test

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func releaseConfig(t *testing.T) config.Project {
	t.Helper()
	p, err := config.Load(filepath.Join(root, ".goreleaser.yaml"))
	require.NoError(t, err)
	return p
}

// The release's configuration is one in the eyes of goreleaser's own loader, which
// refuses unknown members; a release is built as the image is.
func TestRelease_Config(t *testing.T) {
	p := releaseConfig(t)
	require.Len(t, p.Builds, 1)
	b := p.Builds[0]
	require.DirExists(t, filepath.Join(root, b.Main))
	dockerfile, err := os.ReadFile(filepath.Join(deploy, "docker", "Dockerfile"))
	require.NoError(t, err)
	line := strings.Join(b.Env, " ") + " go build " + b.Flags[0] + ` -ldflags "` + strings.Join(b.Ldflags, " ") + `" `
	require.Contains(t, string(dockerfile), "RUN "+line)
	require.Equal(t, []string{"linux", "darwin", "windows"}, b.Goos)
	require.True(t, p.Release.Draft)
	for _, f := range p.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join(root, strings.ReplaceAll(f.Source, "**/", "*/")))
		require.NoError(t, err)
		require.NotEmpty(t, found, f.Source)
	}

	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	require.NoError(t, err)
	_, err = config.LoadReader(strings.NewReader(strings.Replace(string(text), "mod_timestamp", "mod_timestmp", 1)))
	require.Error(t, err, "a typing error is found")
}

// The release's command makes a list of what is in a program, and it is whole: each
// module that the program says it is built of, with its version, and no other.
func TestRelease_SBOM(t *testing.T) {
	p := releaseConfig(t)
	require.Len(t, p.SBOMs, 1)
	dir := t.TempDir()
	program, document := filepath.Join(dir, "skald"), filepath.Join(dir, "sbom.json")
	b := p.Builds[0]
	// Without version control's word: a checkout may have none that Go knows.
	build := exec.Command("go", "build", "-buildvcs=false", b.Flags[0], "-ldflags", strings.Join(b.Ldflags, " "), "-o", program, b.Main)
	build.Dir, build.Env = root, append(os.Environ(), b.Env...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	var args []string
	for _, a := range p.SBOMs[0].Args {
		args = append(args, strings.NewReplacer("$document", document, "$artifact", program).Replace(a))
	}
	tool := exec.Command(p.SBOMs[0].Cmd, args...)
	tool.Dir = dir
	out, err = tool.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := os.Open(document)
	require.NoError(t, err)
	defer f.Close()
	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom))

	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	want, got := map[string]string{"std": info.GoVersion}, map[string]string{}
	for _, d := range info.Deps {
		want[d.Path] = d.Version
	}
	require.Equal(t, info.Main.Path, bom.Metadata.Component.Name)
	require.NotNil(t, bom.Components)
	for _, c := range *bom.Components {
		got[c.Name] = c.Version
	}
	require.Equal(t, want, got)
	require.Contains(t, got, "github.com/nats-io/nats-server/v2")
}
