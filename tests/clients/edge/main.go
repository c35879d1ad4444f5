// Go's own HTTP client against a site at the edge, over TLS and HTTP/2.
//
// Arguments: the site's URL and the file of the certificate to trust. It asks for /page a hundred times at once, on one
// connection, sends a body to /echo and gets it back, and reads /events as they come. It ends with "ok".
package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
)

func main() {
	site, file := os.Args[1], os.Args[2]
	pem, err := os.ReadFile(file)
	must(err)
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		fail("no certificate in %s", file)
	}
	var connections atomic.Int64
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots},
	}}
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		if !got.Reused {
			connections.Add(1)
		}
	}}
	ask := func(method, path string, body []byte) (string, *http.Response) {
		request, err := http.NewRequest(method, site+path, bytes.NewReader(body))
		must(err)
		answer, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
		must(err)
		if answer.StatusCode != 200 || answer.Proto != "HTTP/2.0" {
			fail("%s %s: %s by %s", method, path, answer.Status, answer.Proto)
		}
		if path == "/events" {
			return "", answer
		}
		defer answer.Body.Close()
		content, err := io.ReadAll(answer.Body)
		must(err)
		return string(content), answer
	}

	ask("GET", "/page", nil)
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if content, _ := ask("GET", "/page", nil); content != "a page" {
				fail("/page is %q", content)
			}
		})
	}
	all.Wait()
	body := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	if content, _ := ask("POST", "/echo", body); content != string(body) {
		fail("/echo is of %d bytes", len(content))
	}
	_, answer := ask("GET", "/events", nil)
	lines := bufio.NewScanner(answer.Body)
	for number := 0; number < 3; {
		if !lines.Scan() {
			fail("the events end after %d", number)
		}
		if lines.Text() == fmt.Sprintf("data: %d", number) {
			number++
		}
	}
	answer.Body.Close()
	if connections.Load() != 1 {
		fail("%d connections", connections.Load())
	}
	fmt.Println("ok")
}

func must(err error) {
	if err != nil {
		fail("%v", err)
	}
}

func fail(words string, values ...any) {
	fmt.Printf(words+"\n", values...)
	os.Exit(1)
}
