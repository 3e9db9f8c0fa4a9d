// Package artifacts checks the files of deploy, and of a release, with the libraries of the
// tools that they are for: compose-go for the compose files, the types of Kubernetes for
// the manifests, nats-server for the values of its chart, goreleaser's loader for the
// release's configuration, CycloneDX's for the list of what is in a program. It is a module
// of its own, so that Skald depends on none of them.
//
// vulndb, below it, is a tool of the release: see docs/release.md.
package artifacts
