//go:build tools

// What `go build` takes nats-server from, pinned by go.mod and go.sum.
package main

import _ "github.com/nats-io/nats-server/v2"
