# One bulk TCP over a path with independent loss of data packets.
#
#   src --rate, delay-- router --(loss)-- dst        and back without loss
#
# The lossy part is a link of its own, 10 Gb/s without delay, so that a packet is lost after it was transmitted. ns-2's
# own link-lossmodel is no such link: after a drop it is free again after a random time.
set script tcp-lossy
source [file join [file dirname [info script]] common.tcl]
param congestion newreno   ;# reno | newreno | sack
param delayed_ack 0        ;# 1: RFC 1122 with the timer below
param delack_ms 100
param p 0.01
param rate_bps 10e6
param delay_ms 50          ;# one way
param queue_packets 1000
param window 1000          ;# packets: never the limit unless asked
param payload 1000         ;# bytes; ns-2 adds 40 on the wire
param ack_wire 40
param initial_window 2
param min_rto_s 0.2
param tick_s 0.01
param jitter_ms 0          ;# each send delayed by uniform 0 ... jitter
param seed 1
param warmup_s 20
param duration_s 1000
param headers needed
endOfParams

keepHeaders IP TCP Flags RTP
set ns [new Simulator]
seedEverything

set kinds [list reno Agent/TCP/Reno newreno Agent/TCP/Newreno sack Agent/TCP/Sack1]
array set kind $kinds
if {![info exists kind($P(congestion))]} { refuse "congestion=$P(congestion): reno, newreno or sack" }

set src [$ns node]
set router [$ns node]
set dst [$ns node]
$ns duplex-link $src $router $P(rate_bps) [expr {$P(delay_ms) / 1000.0}] DropTail
$ns queue-limit $src $router $P(queue_packets)
$ns queue-limit $router $src $P(queue_packets)
$ns duplex-link $router $dst 10e9 0 DropTail
$ns queue-limit $router $dst 100000
$ns queue-limit $dst $router 100000
set loss [new ErrorModel]
$loss unit packet
$loss set rate_ $P(p)
$loss ranvar [new RandomVariable/Uniform]
set lost [new Agent/LossMonitor]
$ns lossmodel $loss $router $dst
$loss drop-target $lost    ;# after lossmodel, which points it elsewhere

set tcp [new $kind($P(congestion))]
$tcp set window_ $P(window)
$tcp set maxcwnd_ $P(window)
$tcp set packetSize_ $P(payload)
$tcp set windowInit_ $P(initial_window)
$tcp set minrto_ $P(min_rto_s)
$tcp set tcpTick_ $P(tick_s)
$tcp set overhead_ [expr {$P(jitter_ms) / 1000.0}]
set sinkName Agent/TCPSink
if {$P(congestion) eq "sack"} { append sinkName /Sack1 }
if {$P(delayed_ack)} { append sinkName /DelAck }
set sink [new $sinkName]
$sink set packetSize_ $P(ack_wire)
if {$P(delayed_ack)} { $sink set interval_ [expr {$P(delack_ms) / 1000.0}] }
$ns attach-agent $src $tcp
$ns attach-agent $dst $sink
$ns connect $tcp $sink
set ftp [new Application/FTP]
$ftp attach-agent $tcp

set mon [watch $ns $src $router]
set srtts {}
set cwnds {}
proc sample {} {
    global ns tcp P srtts cwnds
    lappend srtts [expr {([$tcp set srtt_] >> [$tcp set T_SRTT_BITS]) * $P(tick_s) * 1000.0}]
    lappend cwnds [$tcp set cwnd_]
    $ns at [expr {[$ns now] + 0.1}] sample
}
proc counters {} {
    global tcp sink lost
    return [list [$sink set bytes_] [$tcp set ndatapack_] [$tcp set nrexmitpack_] [$tcp set ncwndcuts_] \
        [$tcp set nrexmit_] [$lost set npkts_]]
}
$ns at 0.0 "$ftp start"
$ns at $P(warmup_s) { set before [counters]; set link0 [books $ns $mon]; sample }
$ns at $P(duration_s) {
    set span [expr {$P(duration_s) - $P(warmup_s)}]
    foreach {b0 s0 r0 c0 t0 l0} $before {b1 s1 r1 c1 t1 l1} [counters] {}
    result wire_bytes [expr {$P(payload) + 40}]
    result from_s $P(warmup_s)
    result span_s $span
    set thr [expr {8.0 * ($b1 - $b0) / $span}]
    result throughput_bps $thr
    result payload_bps [expr {$thr * $P(payload) / ($P(payload) + 40.0)}]
    result sent_packets [expr {$s1 - $s0}]
    result retransmitted_packets [expr {$r1 - $r0}]
    result timeouts [expr {$t1 - $t0}]
    result window_cuts [expr {$c1 - $c0}]
    result lost_packets [expr {$l1 - $l0}]
    result loss_frac [expr {double($l1 - $l0) / ($s1 - $s0)}]
    result loss_event_rate [expr {double($c1 - $c0) / ($s1 - $s0)}]
    set wait [enterBooks $link0 [books $ns $mon] $span $P(rate_bps)]
    set wire [expr {8000.0 * ($P(payload) + 40) / $P(rate_bps)}]
    set ack [expr {8000.0 * $P(ack_wire) / $P(rate_bps)}]
    result rtt_min_ms [expr {2 * $P(delay_ms) + $wire + $ack}]
    result rtt_ms [expr {2 * $P(delay_ms) + $wire + $ack + $wait}]
    result srtt_ms [mean $srtts]
    result cwnd_mean_packets [mean $cwnds]
    finish
}
$ns run
