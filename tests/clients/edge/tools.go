//go:build tools

// What `go build` takes h2spec from, pinned by go.mod and go.sum.
package main

import _ "github.com/summerwind/h2spec/cmd/h2spec"
