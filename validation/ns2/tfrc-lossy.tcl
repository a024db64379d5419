# n TFRC over a wired path and one lossy wireless hop: for n > 1, MULTFRC with a fixed number of connections.
#
#   src --10 Mb/s, 10 ms-- bs --1 Mb/s, 69.424 ms-- air --(loss)-- dst
#
# The wireless delay makes the round trip without queue 168 ms: twice the delays, 8.8 ms to transmit 1000 B at both rates,
# 0.352 ms for the 40-B report. Loss strikes after transmission (see tcp-lossy.tcl).
#
# Tcl can read neither the loss event rate nor the smoothed round trip. Both agents print them on stdout (printLoss_,
# printStatus_), and validation/ns2.py reads those lines; with n > 1 the lines of several agents would be mixed.
set script tfrc-lossy
source [file join [file dirname [info script]] common.tcl]
param p 0.02
param n 1                  ;# connections; more than one start within the first second
param rate_bps 1e6
param wired_bps 10e6
param wired_ms 10
param wireless_ms 69.424
param queue_packets 50
param packet 1000          ;# bytes on the wire
param tfrc_headers 0       ;# useHeaders_: 1, the default of ns-2, puts 32 bytes more on the wire than the rate is computed with
param report_wire 40
param jitter 0             ;# overhead_: each gap times uniform 1 - jitter ... 1 + jitter
param damping 1            ;# ca_: the pacing's sqrt(RTT) correction
param ndupack 1            ;# later packets that declare a loss (RFC 5348: 3)
param tfrc_rto_s 0         ;# floor of the equation's t_RTO; 0: ns-2's own estimate, in ticks of 0.1 s (RFC 5348: 4 R)
param discount_floor 0.5   ;# RFC 5348: 0.25
param seed 1
param warmup_s 60
param duration_s 2000
param headers needed
endOfParams

keepHeaders IP Flags TFRC TFRC_ACK RTP
set ns [new Simulator]
seedEverything
set src [$ns node]
set bs [$ns node]
set air [$ns node]
set dst [$ns node]
$ns duplex-link $src $bs $P(wired_bps) [expr {$P(wired_ms) / 1000.0}] DropTail
$ns duplex-link $bs $air $P(rate_bps) [expr {$P(wireless_ms) / 1000.0}] DropTail
$ns duplex-link $air $dst 10e9 0 DropTail
foreach {a b} [list $src $bs $bs $src $bs $air $air $bs] { $ns queue-limit $a $b $P(queue_packets) }
foreach {a b} [list $air $dst $dst $air] { $ns queue-limit $a $b 100000 }
set loss [new ErrorModel]
$loss unit packet
$loss set rate_ $P(p)
$loss ranvar [new RandomVariable/Uniform]
set lost [new Agent/LossMonitor]
$ns lossmodel $loss $air $dst
$loss drop-target $lost

for {set i 0} {$i < $P(n)} {incr i} {
    set tfrc($i) [new Agent/TFRC]
    $tfrc($i) set packetSize_ $P(packet)
    $tfrc($i) set useHeaders_ $P(tfrc_headers)
    $tfrc($i) set overhead_ $P(jitter)
    $tfrc($i) set ca_ $P(damping)
    $tfrc($i) set minrto_ $P(tfrc_rto_s)
    $tfrc($i) set printStatus_ [expr {$P(n) == 1}]
    set sink($i) [new Agent/TFRCSink]
    $sink($i) set packetSize_ $P(report_wire)
    $sink($i) set numPkts_ $P(ndupack)
    $sink($i) set minDiscountRatio_ $P(discount_floor)
    $sink($i) set printLoss_ [expr {$P(n) == 1}]
    $ns attach-agent $src $tfrc($i)
    $ns attach-agent $dst $sink($i)
    $ns connect $tfrc($i) $sink($i)
}
set mon [watch $ns $bs $air]
set mon0 [watch $ns $src $bs]

proc counters {} {
    global sink lost mon mon0 P
    set bytes 0
    for {set i 0} {$i < $P(n)} {incr i} { set bytes [expr {$bytes + [$sink($i) set bytes_]}] }
    return [list $bytes [$lost set npkts_] [$mon0 set parrivals_] [$mon set pdrops_]]
}
set when [new RandomVariable/Uniform]
for {set i 0} {$i < $P(n)} {incr i} { $ns at [expr {$P(n) > 1 ? [$when value] : 0.0}] "$tfrc($i) start" }
$ns at $P(warmup_s) { set before [counters]; set link0 [books $ns $mon] }
$ns at $P(duration_s) {
    set span [expr {$P(duration_s) - $P(warmup_s)}]
    foreach {b0 l0 s0 q0} $before {b1 l1 s1 q1} [counters] {}
    result wire_bytes $P(packet)
    result from_s $P(warmup_s)
    result span_s $span
    result throughput_bps [expr {8.0 * ($b1 - $b0) / $span}]
    result payload_bps [expr {8.0 * ($b1 - $b0) / $span}]
    result sent_packets [expr {$s1 - $s0}]
    result lost_packets [expr {$l1 - $l0 + $q1 - $q0}]
    result loss_frac [expr {double($l1 - $l0 + $q1 - $q0) / ($s1 - $s0)}]
    set wait [enterBooks $link0 [books $ns $mon] $span $P(rate_bps)]
    set base [expr {2 * ($P(wired_ms) + $P(wireless_ms)) \
        + 8000.0 * ($P(packet) + $P(report_wire)) * (1.0 / $P(wired_bps) + 1.0 / $P(rate_bps))}]
    result rtt_min_ms $base
    result rtt_ms [expr {$base + $wait}]
    finish
}
$ns run
