// gRPC's interoperability tests, the project's own, on both sides of an accelerator:
//
//	grpc server [CERTIFICATE KEY]   serves on a free port of 127.0.0.1, prints the port, and ends with its input
//	grpc client ADDRESS [CA]        runs each case, prints its name when it has passed, and `ok` at the end
//
// With a certificate and a CA over TLS, for the name localhost; without in the clear (h2c).
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(files []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	var options []grpc.ServerOption
	if len(files) == 2 {
		secured, err := credentials.NewServerTLSFromFile(files[0], files[1])
		must(err)
		options = append(options, grpc.Creds(secured))
	}
	server := grpc.NewServer(options...)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	must(server.Serve(listener))
}

func ask(address string, authorities []string) {
	transport := insecure.NewCredentials()
	if len(authorities) == 1 {
		secured, err := credentials.NewClientTLSFromFile(authorities[0], "localhost")
		must(err)
		transport = secured
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	must(err)
	defer connection.Close()
	client := testgrpc.NewTestServiceClient(connection)
	cases := []struct {
		name string
		run  func(context.Context)
	}{
		{"empty_unary", func(ctx context.Context) { interop.DoEmptyUnaryCall(ctx, client) }},
		{"large_unary", func(ctx context.Context) { interop.DoLargeUnaryCall(ctx, client) }},
		{"client_streaming", func(ctx context.Context) { interop.DoClientStreaming(ctx, client) }},
		{"server_streaming", func(ctx context.Context) { interop.DoServerStreaming(ctx, client) }},
		{"ping_pong", func(ctx context.Context) { interop.DoPingPong(ctx, client) }},
		{"empty_stream", func(ctx context.Context) { interop.DoEmptyStream(ctx, client) }},
		{"timeout_on_sleeping_server", func(ctx context.Context) { interop.DoTimeoutOnSleepingServer(ctx, client) }},
		{"cancel_after_begin", func(ctx context.Context) { interop.DoCancelAfterBegin(ctx, client) }},
		{"cancel_after_first_response", func(ctx context.Context) { interop.DoCancelAfterFirstResponse(ctx, client) }},
		{"status_code_and_message", func(ctx context.Context) { interop.DoStatusCodeAndMessage(ctx, client) }},
		{"special_status_message", func(ctx context.Context) { interop.DoSpecialStatusMessage(ctx, client) }},
		{"custom_metadata", func(ctx context.Context) { interop.DoCustomMetadata(ctx, client) }},
		{"unimplemented_method", func(ctx context.Context) { interop.DoUnimplementedMethod(ctx, connection) }},
		{"unimplemented_service", func(ctx context.Context) {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(connection))
		}},
	}
	for _, one := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		one.run(ctx)
		cancel()
		fmt.Println(one.name)
	}
	fmt.Println("ok")
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		serve(os.Args[2:])
	} else {
		ask(os.Args[2], os.Args[3:])
	}
}
