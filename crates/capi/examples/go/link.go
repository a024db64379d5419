// A controller over a link of 2 Mb/s with 40 ms of round trip, in Go: its decision at each report.
//
// go build link.go && ./link steady (cgo finds the library by pkg-config)
package main

/*
#cgo pkg-config: steadycast
#include <stdlib.h>
#include <steadycast.h>

static SteadycastBounds bounds(uint64_t floor, uint64_t cap)
{
    return (SteadycastBounds)STEADYCAST_BOUNDS(floor, cap);
}
*/
import "C"

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"unsafe"
)

const ms = 1_000_000

// Controller is one controller in use, by one goroutine at a time.
type Controller struct{ remote *C.SteadycastRemote }

// New makes a controller, or says what is wrong and what would be right.
func New(name string, floor, cap uint64) (*Controller, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var told [256]C.char
	bounds := C.bounds(C.uint64_t(floor), C.uint64_t(cap))
	remote := C.steadycast_new(C.STEADYCAST_ABI, text, nil, &bounds, &told[0], C.size_t(len(told)))
	if remote == nil {
		return nil, errors.New(C.GoString(&told[0]))
	}
	return &Controller{remote}, nil
}

// Close frees it.
func (c *Controller) Close() { C.steadycast_free(c.remote) }

func (c *Controller) decision() (target, pacing uint64, why string) {
	var decision C.SteadycastDecision
	decision.size = C.sizeof_SteadycastDecision
	C.steadycast_decision(c.remote, &decision)
	return uint64(decision.target_bps), uint64(decision.pacing_bps), C.GoString(&decision.why[0])
}

type flight struct {
	toldAt int64
	fate   C.SteadycastFate
}

func span(bps uint64) int64 { return int64(1200 * 8_000_000_000 / bps) }

func first(times ...int64) int64 {
	least := times[0]
	for _, time := range times {
		if time < least {
			least = time
		}
	}
	return least
}

func run(name string) error {
	controller, err := New(name, 100_000, 10_000_000)
	if err != nil {
		return err
	}
	defer controller.Close()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var underWay []flight
	var idle, send, report int64 = 0, 0, 50 * ms
	for {
		wake := int64(C.steadycast_wake(controller.remote))
		now := first(wake, send, report)
		switch {
		case now >= 60_000*ms:
			return nil
		case now == wake:
			C.steadycast_timer(controller.remote, C.int64_t(now))
		case now == send:
			number := C.steadycast_sent(controller.remote, C.int64_t(now), 1200, 0)
			fate := C.SteadycastFate{number: number, arrived_ns: C.STEADYCAST_MISSING, ecn: C.STEADYCAST_NO_ECN}
			arrived := now + 20*ms
			if idle-now <= 200*ms { // there is room
				if idle < now {
					idle = now
				}
				idle += span(2_000_000)
				arrived = idle + 20*ms
				fate.arrived_ns = C.int64_t(arrived)
			}
			underWay = append(underWay, flight{arrived, fate})
			_, pacing, _ := controller.decision()
			send = now + span(pacing)
		default:
			var fates []C.SteadycastFate
			for len(underWay) > 0 && underWay[0].toldAt <= now-20*ms {
				fates = append(fates, underWay[0].fate)
				underWay = underWay[1:]
			}
			if len(fates) > 0 {
				C.steadycast_feedback(controller.remote, C.int64_t(now), &fates[0], C.size_t(len(fates)))
			}
			target, pacing, why := controller.decision()
			fmt.Fprintln(out, now/ms, target, pacing, why)
			report = now + 50*ms
		}
	}
}

func main() {
	name := "tfrc"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if err := run(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}
