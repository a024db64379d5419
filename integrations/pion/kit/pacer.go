package kit

import (
	"sync"
	"time"
)

// Pacer polls a Sender in real time, in a separate goroutine.
type Pacer struct {
	mu     sync.Mutex
	sender *Sender
	start  time.Time
	take   func(Output) func() (transport uint16, named bool)
	after  func()
	wake   chan struct{}
	done   chan struct{}
	ended  sync.WaitGroup
}

// NewPacer starts a pacer, which Close ends. For each departing packet, the pacer calls take while it holds Do's lock,
// and then, without the lock, the function that take returned. That function sends the packet, and returns the packet's
// transport-wide number if a later interceptor has assigned one. The pacer calls after when the rate may have changed.
func NewPacer(config Config, take func(Output) func() (uint16, bool), after func()) (*Pacer, error) {
	sender, err := New(config)
	if err != nil {
		return nil, err
	}
	p := &Pacer{sender: sender, start: time.Now(), take: take, after: after}
	p.wake, p.done = make(chan struct{}, 1), make(chan struct{})
	p.ended.Add(1)
	go p.run()
	return p, nil
}

// Do calls f with the sender and the time, unless the pacer is closed. One call runs at a time.
func (p *Pacer) Do(f func(s *Sender, now time.Duration)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sender == nil {
		return false
	}
	f(p.sender, time.Since(p.start))
	return true
}

// Poke wakes the pacer, so that it polls for packets.
func (p *Pacer) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close ends the pacer. Queued packets are not sent.
func (p *Pacer) Close() error {
	close(p.done)
	p.ended.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sender.Close()
	p.sender = nil
	return nil
}

func (p *Pacer) run() {
	defer p.ended.Done()
	timer := time.NewTimer(0)
	for {
		select {
		case <-p.done:
			return
		case <-p.wake:
		case <-timer.C:
		}
		timer.Reset(p.flush())
		p.after()
	}
}

// flush sends the packets that are due, and returns the time until the next one is due.
func (p *Pacer) flush() time.Duration {
	for {
		var send func() (uint16, bool)
		var out Output
		var wait time.Duration
		found := true
		p.Do(func(s *Sender, now time.Duration) {
			if out, found, wait = s.Poll(now); found {
				send = p.take(out)
			}
		})
		if !found {
			return wait
		}
		if send == nil {
			continue
		}
		if transport, named := send(); named {
			p.Do(func(s *Sender, _ time.Duration) { s.SentAs(out.Number, transport) })
		}
	}
}
