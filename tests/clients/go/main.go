// nats.go against a server: client URL SCENARIO (see ../README.md).
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

const wait = 20 * time.Second

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func demand(ok bool, what ...any) {
	if !ok {
		panic(fmt.Sprint(what...))
	}
}

func options(more ...nats.Option) []nats.Option {
	given := append([]nats.Option{nats.Timeout(wait), nats.NoReconnect()}, more...)
	if user := os.Getenv("FEED_USER"); user != "" {
		given = append(given, nats.UserInfo(user, os.Getenv("FEED_PASSWORD")))
	}
	if token := os.Getenv("FEED_TOKEN"); token != "" {
		given = append(given, nats.Token(token))
	}
	if seed := os.Getenv("FEED_SEED"); seed != "" {
		pair, err := nkeys.FromSeed([]byte(seed))
		must(err)
		public, err := pair.PublicKey()
		must(err)
		given = append(given, nats.Nkey(public, pair.Sign))
	}
	if ca := os.Getenv("FEED_CA"); ca != "" {
		given = append(given, nats.RootCAs(ca))
	}
	return given
}

func connect(url string, more ...nats.Option) *nats.Conn {
	client, err := nats.Connect(url, options(more...)...)
	must(err)
	return client
}

func basics(url string) {
	client, other := connect(url), connect(url)
	one, err := client.SubscribeSync("a.b")
	must(err)
	below, err := client.SubscribeSync("a.>")
	must(err)
	must(client.Flush())
	for n := range 1000 {
		must(other.Publish("a.b", []byte(fmt.Sprint(n))))
	}
	for _, subscription := range []*nats.Subscription{one, below} {
		for n := range 1000 {
			message, err := subscription.NextMsg(wait)
			must(err)
			demand(string(message.Data) == fmt.Sprint(n), "message ", n, " is ", string(message.Data))
		}
	}
	few, err := client.SubscribeSync("few")
	must(err)
	must(few.AutoUnsubscribe(2))
	must(client.Flush())
	for range 5 {
		must(other.Publish("few", nil))
	}
	must(other.Flush())
	for range 2 {
		_, err := few.NextMsg(wait)
		must(err)
	}
	_, err = few.NextMsg(100 * time.Millisecond)
	demand(err != nil, "a third one came")
	var seen [2]atomic.Int64
	for n, connection := range []*nats.Conn{client, other} {
		_, err := connection.QueueSubscribe("work", "workers", func(*nats.Msg) { seen[n].Add(1) })
		must(err)
		must(connection.Flush())
	}
	for range 400 {
		must(client.Publish("work", nil))
	}
	must(client.Flush())
	for range 400 {
		if seen[0].Load()+seen[1].Load() == 400 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	demand(seen[0].Load()+seen[1].Load() == 400, "not all arrived")
	demand(min(seen[0].Load(), seen[1].Load()) > 40, "uneven: ", seen[0].Load(), " ", seen[1].Load())
	_, err = other.Subscribe("ask", func(message *nats.Msg) {
		reply := nats.NewMsg(message.Reply)
		reply.Data = []byte(strings.ToUpper(string(message.Data)))
		reply.Header.Set("Seen", message.Header.Get("Ask"))
		must(message.RespondMsg(reply))
	})
	must(err)
	must(other.Flush())
	question := nats.NewMsg("ask")
	question.Data = []byte("word")
	question.Header.Set("Ask", "why: so")
	reply, err := client.RequestMsg(question, wait)
	must(err)
	demand(string(reply.Data) == "WORD" && reply.Header.Get("Seen") == "why: so", reply)
	_, err = client.Request("nobody", nil, wait)
	demand(errors.Is(err, nats.ErrNoResponders), err)
	var dealt atomic.Int64
	_, err = other.Subscribe("last", func(*nats.Msg) {
		time.Sleep(time.Millisecond)
		dealt.Add(1)
	})
	must(err)
	must(other.Flush())
	for range 50 {
		must(client.Publish("last", nil))
	}
	must(client.Flush())
	must(other.Flush())
	must(other.Drain())
	for range 400 {
		if other.IsClosed() {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	demand(other.IsClosed() && dealt.Load() == 50, "drained with ", dealt.Load())
	client.Close()
}

func letIn(url string) {
	client := connect(url)
	echo, err := client.SubscribeSync("echo")
	must(err)
	must(client.Publish("echo", nil))
	_, err = echo.NextMsg(wait)
	must(err)
	client.Close()
}

func turnedAway(url string) {
	_, err := nats.Connect(url, options()...)
	demand(errors.Is(err, nats.ErrAuthorization), "not turned away: ", err)
}

func denied(url string) {
	told := make(chan error, 8)
	client := connect(url, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { told <- err }))
	open, err := client.SubscribeSync("open.x")
	must(err)
	must(client.Publish("closed", nil))
	select {
	case err := <-told:
		demand(strings.Contains(strings.ToLower(err.Error()), "permissions violation"), err)
	case <-time.After(wait):
		panic("not told")
	}
	must(client.Publish("open.x", nil))
	_, err = open.NextMsg(wait)
	must(err)
	client.Close()
}

func reconnect(url string) {
	back := make(chan struct{}, 8)
	client, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	must(err)
	again, err := client.SubscribeSync("again")
	must(err)
	must(client.Flush())
	fmt.Println("ready")
	select {
	case <-back:
	case <-time.After(wait):
		panic("did not come back")
	}
	must(client.Publish("again", nil))
	_, err = again.NextMsg(wait)
	must(err)
	client.Close()
}

// Messages of 8 KiB by WebSocket with compression asked for, and a PING every ten milliseconds between them
// (nats.go#1783).
func compressed(url string) {
	// On a busy machine many may be under way; that each is answered is asked at the end, where a Flush waits for its
	// own PONG, which follows all others.
	client := connect(url, nats.Compression(true), nats.PingInterval(10*time.Millisecond),
		nats.MaxPingsOutstanding(10000))
	echo, err := client.SubscribeSync("echo")
	must(err)
	large := []byte(strings.Repeat("nighttrain", 820))
	for i := 0; i < 200; i++ {
		must(client.Publish("echo", large))
		if i%20 == 0 {
			time.Sleep(15 * time.Millisecond)
		}
	}
	for i := 0; i < 200; i++ {
		message, err := echo.NextMsg(wait)
		must(err)
		demand(string(message.Data) == string(large), "message ", i, " is another")
	}
	must(client.FlushTimeout(wait))
	must(client.LastError())
	client.Close()
}

func main() {
	scenarios := map[string]func(string){
		"compressed": compressed,
		"basics":     basics, "let-in": letIn, "turned-away": turnedAway, "denied": denied, "reconnect": reconnect,
	}
	scenarios[os.Args[2]](os.Args[1])
	fmt.Println("ok")
}
