// Package pion gives a list of packets to pion/interceptor's estimator and prints the rates that it allows: python -m
// validation.reference.
//
// Its input and output have the formats of integrations/webrtc/examples/replay.rs, with the same start, limits and
// interval of reports; pion's own receiver writes the reports. It is a test because Go has a virtual clock for tests only.
package pion

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/gcc"
	"github.com/pion/interceptor/pkg/twcc"
	"github.com/pion/rtp"
)

const (
	each      = 50 * time.Millisecond
	back      = 20 * time.Millisecond
	start     = 300_000
	least     = 50_000
	most      = 8_000_000
	extension = 1
	uri       = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01"
)

type packet struct {
	left, arrived time.Duration
	number, size  int
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func seconds(text string) time.Duration {
	return time.Duration(must(strconv.ParseFloat(text, 64)) * float64(time.Second))
}

// read returns all packets in the order of departure, and those that arrived in the order of arrival.
func read() (sent, came []packet) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		cells := strings.Split(lines.Text(), ",")
		one := packet{left: seconds(cells[0]), number: len(sent), size: must(strconv.Atoi(cells[1]))}
		if cells[2] != "" {
			one.arrived = seconds(cells[2])
			came = append(came, one)
		}
		sent = append(sent, one)
	}
	slices.SortStableFunc(came, func(a, b packet) int { return int(a.arrived - b.arrived) })
	return sent, came
}

func TestReplay(t *testing.T) { synctest.Test(t, replay) }

func replay(*testing.T) {
	sent, came := read()
	estimator := must(gcc.NewSendSideBWE(gcc.SendSideBWEInitialBitrate(start), gcc.SendSideBWEMinBitrate(least),
		gcc.SendSideBWEMaxBitrate(most), gcc.SendSideBWEPacer(gcc.NewNoOpPacer())))
	network := interceptor.RTPWriterFunc(func(*rtp.Header, []byte, interceptor.Attributes) (int, error) { return 0, nil })
	out := estimator.AddStream(&interceptor.StreamInfo{SSRC: 1, RTPHeaderExtensions: []interceptor.RTPHeaderExtension{
		{ID: extension, URI: uri}}}, network)
	receiver, began := twcc.NewRecorder(2), time.Now()
	until := func(at time.Duration) { time.Sleep(time.Until(began.Add(at))) }
	end := sent[len(sent)-1].left
	fmt.Println("t_s,pion_bps")
	for report := each; report <= end; report += each {
		for ; len(came) > 0 && came[0].arrived <= report; came = came[1:] {
			receiver.Record(1, uint16(came[0].number), came[0].arrived.Microseconds())
		}
		told := receiver.BuildFeedbackPacket()
		for ; len(sent) > 0 && sent[0].left <= report+back; sent = sent[1:] {
			header := &rtp.Header{Version: 2, SSRC: 1, SequenceNumber: uint16(sent[0].number)}
			stamp := must(rtp.TransportCCExtension{TransportSequence: uint16(sent[0].number)}.Marshal())
			must(0, header.SetExtension(extension, stamp))
			until(sent[0].left)
			must(out.Write(header, make([]byte, sent[0].size-header.MarshalSize()), nil))
		}
		until(report + back)
		must(0, estimator.WriteRTCP(told, nil))
		synctest.Wait()
		fmt.Printf("%.3f,%d\n", (report + back).Seconds(), estimator.GetTargetBitrate())
	}
	must(0, estimator.Close())
}
