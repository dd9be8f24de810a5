// The conversation that every client's program has, in lines of JSON as tests/support/clients/spoken.py
// says: what is asked and told, and the loop that answers. A program has `answer`.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"time"
)

const timeout = 20 * time.Second

// Where the broker is.
var bootstrap string

type record struct {
	Offset    *int64      `json:"offset,omitempty"`
	Partition int32       `json:"partition"`
	Key       *string     `json:"key"`
	Value     string      `json:"value"`
	Headers   [][2]string `json:"headers"`
	Timestamp int64       `json:"timestamp,omitempty"`
}

type request struct {
	Verb, Topic, Group, Name, Value, Codec, Id string
	Partition, Partitions                      int32
	Offset, Timestamp                          int64
	Count                                      int
	Acks                                       *int
	Idempotent, Commit                         bool
	CommittedOnly                              bool `json:"committed_only"`
	Place                                      *string
	Configs                                    map[string]string
	Records                                    []record
	Authority, User, Password                  string
	Offsets                                    *struct {
		Group, Topic string
		Offset       int64
	}
}

func main() {
	bootstrap = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var ask request
		err := json.Unmarshal(lines.Bytes(), &ask)
		var is any
		if err == nil {
			is, err = answer(&ask)
		}
		if err != nil {
			out.Encode(map[string]string{"error": err.Error()})
		} else {
			out.Encode(map[string]any{"is": is})
		}
	}
	// A member whose input ends is gone without a word.
	os.Exit(0)
}
