# n TFRC against n TCP (or another number of them) through one bottleneck.
#
#   n + n hosts --100 Mb/s, 7.5 ms-- left ==bottleneck, 10 ms== right --100 Mb/s, 7.5 ms-- n + n hosts
#
# The bottleneck grows with the number of flows, 1 Mb/s each; so do the queue and RED's thresholds. The thresholds are
# explicit and count packets, so that both programs run the same RED; with queue=red-auto, ns-2 chooses RED's parameters.
#
# Send jitter: TCP's overhead_ delays each packet by uniform 0 ... jitter. TFRC's overhead_ stretches each gap by
# uniform 1 - x ... 1 + x; x is chosen so that at the fair share the gap moves by +- jitter/2.
set script tfrc-tcp
source [file join [file dirname [info script]] common.tcl]
param n 8
param tcps 0               ;# TCP flows; 0: n
param queue red            ;# red | red-auto | droptail
param share_bps 1e6        ;# bottleneck / flows
param delay_ms 10
param access_bps 100e6
param access_ms 7.5
param congestion sack      ;# reno | newreno | sack
param delayed_ack 0
param delack_ms 100
param payload 960          ;# 1000 B on the wire, as TFRC's
param packet 1000          ;# TFRC, bytes on the wire
param tfrc_headers 0       ;# useHeaders_: 1, the default of ns-2, puts 32 bytes more on the wire than the rate is computed with
param window 1000
param initial_window 2
param min_rto_s 0.2
param tick_s 0.01
param jitter_ms 1
param damping 1
param ndupack 1
param tfrc_rto_s 0         ;# floor of the equation's t_RTO; 0: ns-2's own estimate, in ticks of 0.1 s (RFC 5348: 4 R)
param discount_floor 0.5
param start_s 5            ;# starts are drawn from uniform 0 ... start_s
param queue_per_flow 9.375 ;# limit / flows under RED
param min_per_flow 1.25
param max_per_flow 3.75
param max_p 0.1
param weight 0.002
param red_wait 1           ;# ns-2: at least 1/p packets between drops (0: Floyd and Jacobson 1993)
param tail_per_flow 6.25   ;# drop-tail's limit / flows: one bandwidth-delay product at 50 ms
param seed 1
param warmup_s 30
param duration_s 150
param headers needed
endOfParams

keepHeaders IP TCP Flags TFRC TFRC_ACK
set ns [new Simulator]
seedEverything
set flows [expr {$P(n) + ($P(tcps) ? $P(tcps) : $P(n))}]
set rate [expr {$flows * $P(share_bps)}]
array set kind [list reno Agent/TCP/Reno newreno Agent/TCP/Newreno sack Agent/TCP/Sack1]
if {![info exists kind($P(congestion))]} { refuse "congestion=$P(congestion): reno, newreno or sack" }

if {$P(queue) eq "droptail"} {
    set limit [expr {round($P(tail_per_flow) * $flows)}]
} else {
    set limit [expr {round($P(queue_per_flow) * $flows)}]
}
if {$P(queue) eq "red"} {
    Queue/RED set bytes_ false
    Queue/RED set queue_in_bytes_ false
    Queue/RED set mean_pktsize_ $P(packet)
    Queue/RED set thresh_ [expr {$P(min_per_flow) * $flows}]
    Queue/RED set maxthresh_ [expr {$P(max_per_flow) * $flows}]
    Queue/RED set linterm_ [expr {1.0 / $P(max_p)}]
    Queue/RED set q_weight_ $P(weight)
    Queue/RED set gentle_ true
    Queue/RED set wait_ $P(red_wait)
}
array set discipline [list red RED red-auto RED droptail DropTail]
if {![info exists discipline($P(queue))]} { refuse "queue=$P(queue): red, red-auto or droptail" }

set left [$ns node]
set right [$ns node]
# RED forward only: the way back carries acknowledgments.
$ns simplex-link $left $right $rate [expr {$P(delay_ms) / 1000.0}] $discipline($P(queue))
$ns simplex-link $right $left $rate [expr {$P(delay_ms) / 1000.0}] DropTail
$ns queue-limit $left $right $limit
$ns queue-limit $right $left 10000
set mon [watch $ns $left $right]

set draw [new RandomVariable/Uniform]
$draw set min_ 0
$draw set max_ $P(start_s)
set gap [expr {8000.0 * $P(packet) / $P(share_bps)}]
set agents {}
set sinks {}
for {set i 0} {$i < $flows} {incr i} {
    set a [$ns node]
    set b [$ns node]
    $ns duplex-link $a $left $P(access_bps) [expr {$P(access_ms) / 1000.0}] DropTail
    $ns duplex-link $right $b $P(access_bps) [expr {$P(access_ms) / 1000.0}] DropTail
    foreach {x y} [list $a $left $left $a $right $b $b $right] { $ns queue-limit $x $y 1000 }
    if {$i < $P(n)} {
        set agent [new Agent/TFRC]
        $agent set packetSize_ $P(packet)
        $agent set useHeaders_ $P(tfrc_headers)
        $agent set overhead_ [expr {0.5 * $P(jitter_ms) / $gap}]
        $agent set ca_ $P(damping)
        $agent set minrto_ $P(tfrc_rto_s)
        set sink [new Agent/TFRCSink]
        $sink set numPkts_ $P(ndupack)
        $sink set minDiscountRatio_ $P(discount_floor)
        set go "$agent start"
    } else {
        set agent [new $kind($P(congestion))]
        $agent set packetSize_ $P(payload)
        $agent set window_ $P(window)
        $agent set windowInit_ $P(initial_window)
        $agent set minrto_ $P(min_rto_s)
        $agent set tcpTick_ $P(tick_s)
        $agent set overhead_ [expr {$P(jitter_ms) / 1000.0}]
        set name Agent/TCPSink
        if {$P(congestion) eq "sack"} { append name /Sack1 }
        if {$P(delayed_ack)} { append name /DelAck }
        set sink [new $name]
        if {$P(delayed_ack)} { $sink set interval_ [expr {$P(delack_ms) / 1000.0}] }
        set ftp [new Application/FTP]
        $ftp attach-agent $agent
        set go "$ftp start"
    }
    $ns attach-agent $a $agent
    $ns attach-agent $b $sink
    $ns connect $agent $sink
    lappend agents $agent
    lappend sinks $sink
    $ns at [$draw value] $go
}

proc received {} {
    global sinks
    set list {}
    foreach s $sinks { lappend list [$s set bytes_] }
    return $list
}
proc timeouts {} {
    global agents P
    set sum 0
    foreach a [lrange $agents $P(n) end] { incr sum [$a set nrexmit_] }
    return $sum
}
$ns at $P(warmup_s) { set before [received]; set link0 [books $ns $mon]; set timeouts0 [timeouts] }
$ns at $P(duration_s) {
    set span [expr {$P(duration_s) - $P(warmup_s)}]
    set each {}
    foreach b0 $before b1 [received] { lappend each [expr {8.0 * ($b1 - $b0) / $span}] }
    set tfrc [lrange $each 0 [expr {$P(n) - 1}]]
    set tcp [lrange $each $P(n) end]
    result bottleneck_bps $rate
    result queue_limit_packets $limit
    if {$P(queue) ne "droptail"} {
        set q [[$ns link $left $right] queue]
        result red_min [$q set thresh_]
        result red_max [$q set maxthresh_]
        result red_weight [$q set q_weight_]
        result red_mean_packet_bytes [$q set mean_pktsize_]
    }
    result wire_bytes [expr {$P(payload) + 40}]
    result tfrc_wire_bytes $P(packet)
    result from_s $P(warmup_s)
    result span_s $span
    result tfrc_bps $tfrc
    result tcp_bps $tcp
    result tfrc_mean_bps [mean $tfrc]
    result tcp_mean_bps [mean $tcp]
    result tfrc_to_tcp [expr {[mean $tfrc] / [mean $tcp]}]
    result tcp_timeouts [expr {[timeouts] - $timeouts0}]
    set wait [enterBooks $link0 [books $ns $mon] $span $rate]
    set base [expr {2 * ($P(delay_ms) + 2 * $P(access_ms)) \
        + 8000.0 * ($P(packet) + 40) * (1.0 / $rate + 2.0 / $P(access_bps))}]
    result rtt_min_ms $base
    result rtt_ms [expr {$base + $wait}]
    finish
}
$ns run
