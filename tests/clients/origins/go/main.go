// Go's HTTP server.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	answer := func(response http.ResponseWriter, request *http.Request) {
		bytes, err := io.Copy(io.Discard, request.Body)
		if err != nil {
			return
		}
		line := fmt.Sprintf("%s %s %s %d", request.Method, request.RequestURI, request.Host, bytes)
		fmt.Println(line)
		response.Header().Set("Cache-Control", "no-store")
		if request.RequestURI == "/stored" {
			response.Header().Set("Cache-Control", "max-age=600")
		}
		response.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(response, line)
	}
	panic(http.Serve(listener, http.HandlerFunc(answer)))
}
