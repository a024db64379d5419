// Additive increase, multiplicative decrease: halves the rate on loss, else adds a packet per round trip.
//
//	go build -o aimd-go aimd.go        (Go 1.21 or newer)
//	controller = "exec:./aimd-go"
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// What has no field here is ignored. A measure that is null stays nil.
type message struct {
	M                  string
	T                  float64
	Packet, Floor, Cap float64
	Rtt, Lost          *float64
}

const every = 100e6

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	var set message
	var rate, quiet float64
	why := "start"
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		switch m.M {
		case "end":
			return
		case "hello":
			fmt.Println(`{"v":1,"name":"aimd","every":100000000,"feedback":"echo"}`)
			continue
		case "setup":
			set, rate = m, m.Floor
		case "report":
			if m.Rtt == nil || m.Lost == nil || *m.Rtt <= 0 {
				break
			}
			rtt := *m.Rtt
			if *m.Lost > 0 && m.T >= quiet {
				rate, quiet, why = rate/2, m.T+rtt, "loss: halved"
			} else if *m.Lost == 0 {
				// float64 keeps the product apart from the sum: together they may be rounded once.
				step := float64(8e9 * set.Packet / rtt * min(1, every/rtt))
				rate, why = rate+step, "no loss: a packet more"
			}
			rate = min(max(rate, set.Floor), set.Cap)
		}
		fmt.Printf("{\"rate\":%d,\"why\":%q}\n", int64(rate), why)
	}
}
