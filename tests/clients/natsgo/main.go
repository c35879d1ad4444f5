// Command tester gives nats.go's own test suite its servers, as the project's own tester service does, with a feed in
// front of each: the suite's clients connect to the feed, which has joined the server as a leaf node.
//
//	suite ── tester.create.server ──▶ tester ── behind.create.server ──▶ ntf: a nats-server with a port for leaf nodes
//	suite ◀── the feed's address ──── tester ── nighttrain feed --leaf ──▶ that port
//
// It prints the address that TESTER_NATS_URL is to name, and how many servers had a feed in front and how many had none:
// what a test configures of accounts, TLS or listeners is the server's own business, and its clients are sent there.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/ntf"
)

// Where the project's service listens, behind ours.
const behind = "behind"

// What a nats-server says of its port for leaf nodes, and who the feed is to it: whom clients are who say nothing.
const (
	listens = "leafnodes { listen: \"127.0.0.1:{{ .Ports.leafnode }}\" }"
	user    = "user1:password"
)

type tester struct {
	program string
	nc      *nats.Conn
	mu      sync.Mutex
	// By instance, the feeds in front of its servers.
	feeds         map[string][]*feed
	before, alone int
}

type feed struct {
	command *exec.Cmd
	port    int
}

func main() {
	program := flag.String("program", "nighttrain", "the program; empty: none is put in front, so that what fails is a hub's own doing")
	flag.Parse()
	service, err := ntf.New(context.Background(), ntf.Options{AdvertiseHost: "localhost", Group: behind})
	fatal(err)
	url := fmt.Sprintf("nats://localhost:%d", service.Port())
	nc, err := nats.Connect(url)
	fatal(err)
	t := &tester{program: *program, nc: nc, feeds: map[string][]*feed{}}
	_, err = nc.Subscribe("tester.>", func(request *nats.Msg) { go t.serve(request) })
	fatal(err)
	fatal(nc.Flush())
	fmt.Println(url)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	go func() {
		// Whoever started it is gone.
		io.Copy(io.Discard, os.Stdin)
		ended <- os.Interrupt
	}()
	<-ended
	t.mu.Lock()
	fmt.Printf("servers behind a feed: %d, alone: %d\n", t.before, t.alone)
	for _, feeds := range t.feeds {
		stop(feeds)
	}
	service.Close()
}

func (t *tester) serve(request *nats.Msg) {
	what := strings.TrimPrefix(request.Subject, "tester.")
	data := request.Data
	isCreated := strings.HasPrefix(what, "create.")
	hasFeed := false
	if isCreated {
		data, hasFeed = withLeafPort(data)
	}
	inner := nats.NewMsg(behind + "." + what)
	inner.Header, inner.Data = request.Header, data
	answer, err := t.nc.RequestMsg(inner, 60*time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tester:", what, err)
		return
	}
	if isCreated && answer.Header.Get("Nats-Service-Error") == "" {
		t.count(hasFeed, answer.Data)
		if hasFeed && t.program != "" {
			answer.Data = t.putInFront(answer.Data)
		}
	}
	if what == "destroy" {
		t.leave(request.Data)
	}
	reply := nats.NewMsg(request.Reply)
	reply.Header, reply.Data = answer.Header, answer.Data
	t.nc.PublishMsg(reply)
}

// Adds a port for leaf nodes to what a server is to be; false where the test says itself who may come in, and how.
func withLeafPort(data []byte) ([]byte, bool) {
	var request map[string]any
	if json.Unmarshal(data, &request) != nil || request["template"] != nil || request["tls"] != nil || request["trace"] == true {
		return data, false
	}
	snippets, _ := request["snippets"].(map[string]any)
	for key := range snippets {
		if key != "jetstream" && key != "top" {
			return data, false
		}
	}
	if snippets == nil {
		snippets = map[string]any{}
	}
	snippets["leafnode"] = listens
	request["snippets"] = snippets
	data, err := json.Marshal(request)
	fatal(err)
	return data, true
}

func (t *tester) count(hasFeed bool, data []byte) {
	var created struct{ Servers []any }
	fatal(json.Unmarshal(data, &created))
	t.mu.Lock()
	defer t.mu.Unlock()
	if hasFeed {
		t.before += len(created.Servers)
	} else {
		t.alone += len(created.Servers)
	}
}

// Starts a feed in front of each server, and has the answer name them.
func (t *tester) putInFront(data []byte) []byte {
	var created map[string]any
	fatal(json.Unmarshal(data, &created))
	servers, _ := created["servers"].([]any)
	var feeds []*feed
	for _, one := range servers {
		server := one.(map[string]any)
		ports := server["ports"].(map[string]any)
		feed := t.start(int(ports["leafnode"].(float64)))
		feeds = append(feeds, feed)
		server["port"] = feed.port
		server["url"] = fmt.Sprintf("nats://localhost:%d", feed.port)
	}
	t.mu.Lock()
	t.feeds[created["id"].(string)] = feeds
	t.mu.Unlock()
	data, err := json.Marshal(created)
	fatal(err)
	return data
}

// Starts a feed that joins the server with this port for leaf nodes; returns when it has.
func (t *tester) start(leaf int) *feed {
	port, monitor := freePort(), freePort()
	hub := fmt.Sprintf("nats-leaf://%s@127.0.0.1:%d", user, leaf)
	command := exec.Command(t.program, "feed",
		"--listen", fmt.Sprintf("127.0.0.1:%d", port),
		"--monitor", fmt.Sprintf("127.0.0.1:%d", monitor),
		"--admin", "127.0.0.1:0",
		"--max-payload", "8MiB",
		"--leaf", hub)
	command.Stderr = os.Stderr
	fatal(command.Start())
	for begun := time.Now(); !isJoined(monitor); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			fatal(fmt.Errorf("the feed has not joined port %d", leaf))
		}
	}
	return &feed{command, port}
}

// Whether a feed whose monitoring pages are at this port has joined its hub.
func isJoined(monitor int) bool {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/leafz", monitor))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	var page struct{ Leafnodes int }
	return json.NewDecoder(answer.Body).Decode(&page) == nil && page.Leafnodes > 0
}

// Ends the feeds of an instance that is taken away.
func (t *tester) leave(data []byte) {
	var request struct {
		ID string `json:"instance_id"`
	}
	fatal(json.Unmarshal(data, &request))
	t.mu.Lock()
	feeds := t.feeds[request.ID]
	delete(t.feeds, request.ID)
	t.mu.Unlock()
	stop(feeds)
}

func stop(feeds []*feed) {
	for _, feed := range feeds {
		feed.command.Process.Kill()
		feed.command.Wait()
	}
}

func freePort() int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fatal(err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "tester:", err)
		os.Exit(1)
	}
}
