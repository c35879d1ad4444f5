//go:build tools

// What `go build` takes Pebble from, pinned by go.mod and go.sum.
package main

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
