// Go's own HTTP server as an origin: over TLS, where it speaks HTTP/2 with who offers it, and in the clear, where it speaks
// HTTP/2 with who begins with that.
//
// Arguments: the files of a certificate and its key, and of the certificate that it is to be shown. It prints where it
// listens, over TLS and in the clear, and serves until its input ends.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	own, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	must(err)
	pem, err := os.ReadFile(os.Args[3])
	must(err)
	shown := x509.NewCertPool()
	if !shown.AppendCertsFromPEM(pem) {
		panic("no certificate in " + os.Args[3])
	}
	http.HandleFunc("/page", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		fmt.Fprintf(w, "%s %s %s", r.Proto, r.Host, r.Header.Get("X-Forwarded-Proto"))
	})
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		must(err)
		w.Header().Set("Trailer", "X-Sum")
		// Else it would tell the length, and HTTP/1 has no trailers then.
		w.(http.Flusher).Flush()
		w.Write(body)
		w.Header().Set("X-Sum", fmt.Sprint(len(body), r.Trailer.Get("X-Asked")))
	})
	large := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	http.HandleFunc("/large", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "max-age=600")
		http.ServeContent(w, r, "", time.Unix(1700000000, 0), bytes.NewReader(large))
	})
	http.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		w.Write([]byte("hinted"))
	})
	http.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Cache-Control", "no-store")
		for number := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", number)
			w.(http.Flusher).Flush()
		}
		// They do not end, but where nobody listens any more.
		<-r.Context().Done()
	})
	http.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("the beginning"))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	http.HandleFunc("/early", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "not here", http.StatusForbidden)
	})
	secured := &http.Server{TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{own},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    shown,
	}}
	clear := &http.Server{Protocols: new(http.Protocols)}
	clear.Protocols.SetHTTP1(true)
	clear.Protocols.SetUnencryptedHTTP2(true)
	tlsListener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() { must(secured.ServeTLS(tlsListener, "", "")) }()
	go func() { must(clear.Serve(listener)) }()
	fmt.Println(tlsListener.Addr(), listener.Addr())
	io.Copy(io.Discard, os.Stdin)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
