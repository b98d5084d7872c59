// Two Go clients, franz-go and Sarama, behind the JSON lines that program.py describes.
// The only argument names the client.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	deadline      = 90 * time.Second
	session       = 300 * time.Second // nobody is dead because the machine is slow
	lingerFor     = 20 * time.Millisecond
	maxBatchBytes = 10_000_000
	noneOfKafkas  = -1
)

type asked struct {
	Do         string
	Servers    string
	Topic      string
	Partitions int32
	Configs    map[string]*string
	Partition  *int32
	Codec      string
	Acks       int16
	Idempotent bool
	Records    []record
	Start      int64
	Count      int
	Group      string
}

// A record's bytes are base64 in JSON, and null where they are nil.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Name  string
	Value []byte
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

type place [2]int64

type producer interface {
	send(asked) ([]place, error)
	close()
}

type client interface {
	create(asked) error
	open(asked) (producer, error)
	consume(asked) ([]record, error)
	group(asked) ([]record, error)
	// code is Kafka's error code, if an error has one.
	code(error) (int16, bool)
}

// The producer that is open, if one is.
var kept producer

func produce(c client, a asked) ([]place, error) {
	p, err := c.open(a)
	if err != nil {
		return nil, err
	}
	defer p.close()
	return p.send(a)
}

func answer(c client, a asked) (said any, err error) {
	switch a.Do {
	case "create":
		return map[string]any{}, c.create(a)
	case "produce":
		places, err := produce(c, a)
		return map[string]any{"places": places}, err
	case "open":
		kept, err = c.open(a)
		return map[string]any{}, err
	case "send":
		places, err := kept.send(a)
		return map[string]any{"places": places}, err
	case "close":
		kept.close()
		return map[string]any{}, nil
	case "consume":
		records, err := c.consume(a)
		return map[string]any{"records": records}, err
	case "group":
		records, err := c.group(a)
		return map[string]any{"records": records}, err
	}
	panic(a.Do)
}

func refusal(c client, err error) any {
	code, found := c.code(err)
	if !found {
		code = noneOfKafkas
	}
	return map[string]any{"code": code, "message": err.Error()}
}

func main() {
	c := map[string]client{"franz-go": franz{}, "sarama": saramaClient{}}[os.Args[1]]
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var a asked
		if err := json.Unmarshal(line, &a); err != nil {
			panic(err)
		}
		said, err := answer(c, a)
		if err != nil {
			said = refusal(c, err)
		}
		text, err := json.Marshal(said)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}
