# n TCP through one bottleneck.
#
#   n hosts --100 Mb/s, 5 ms-- left --64 Mb/s, 10 ms-- right --100 Mb/s, 5 ms-- n hosts
#
# Without monitors, hops are computed: a data packet crosses three links, or one if the bottleneck drops it, and an
# acknowledgment three. Packets under way at the end are less than 0.1 %. With count=1 the links count the hops.
set script bench-tcp
source [file join [file dirname [info script]] common.tcl]
param n 32
param rate_bps 64e6
param delay_ms 10
param access_bps 100e6
param access_ms 5
param queue_packets 300
param congestion sack
param delayed_ack 0
param payload 960          ;# 1000 B on the wire
param window 1000
param initial_window 2
param min_rto_s 0.2
param tick_s 0.01
param jitter_ms 0
param start_s 1
param duration_s 100
param scheduler Splay
param count 0
param seed 1
param headers needed
endOfParams

keepHeaders IP TCP Flags
set ns [new Simulator]
$ns use-scheduler $P(scheduler)
seedEverything
array set kind [list reno Agent/TCP/Reno newreno Agent/TCP/Newreno sack Agent/TCP/Sack1]
if {![info exists kind($P(congestion))]} { refuse "congestion=$P(congestion): reno, newreno or sack" }
set mons {}
proc link {a b rate delay limit} {
    global ns P mons
    $ns duplex-link $a $b $rate [expr {$delay / 1000.0}] DropTail
    $ns queue-limit $a $b $limit
    $ns queue-limit $b $a $limit
    if {$P(count)} { lappend mons [watch $ns $a $b] [watch $ns $b $a] }
}
set left [$ns node]
set right [$ns node]
link $left $right $P(rate_bps) $P(delay_ms) $P(queue_packets)
set draw [new RandomVariable/Uniform]
$draw set min_ 0
$draw set max_ $P(start_s)
set agents {}
set sinks {}
for {set i 0} {$i < $P(n)} {incr i} {
    set a [$ns node]
    set b [$ns node]
    link $a $left $P(access_bps) $P(access_ms) 1000
    link $right $b $P(access_bps) $P(access_ms) 1000
    set tcp [new $kind($P(congestion))]
    $tcp set packetSize_ $P(payload)
    $tcp set window_ $P(window)
    $tcp set windowInit_ $P(initial_window)
    $tcp set minrto_ $P(min_rto_s)
    $tcp set tcpTick_ $P(tick_s)
    $tcp set overhead_ [expr {$P(jitter_ms) / 1000.0}]
    set name Agent/TCPSink
    if {$P(congestion) eq "sack"} { append name /Sack1 }
    if {$P(delayed_ack)} { append name /DelAck }
    set sink [new $name]
    $ns attach-agent $a $tcp
    $ns attach-agent $b $sink
    $ns connect $tcp $sink
    set ftp [new Application/FTP]
    $ftp attach-agent $tcp
    $ns at [$draw value] "$ftp start"
    lappend agents $tcp
    lappend sinks $sink
}
$ns at $P(duration_s) {
    set sent 0
    set bytes 0
    set again 0
    foreach a $agents s $sinks {
        incr sent [$a set ndatapack_]
        incr again [$a set nrexmitpack_]
        incr bytes [expr {round([$s set bytes_])}]
    }
    set wire [expr {$P(payload) + 40}]
    set delivered [expr {$bytes / $wire}]
    if {$P(count)} {
        set hops 0
        foreach m $mons { incr hops [$m set pdepartures_] }
        result counted 1
    } else {
        # One acknowledgment per packet, or about one per two.
        set acks [expr {$P(delayed_ack) ? $delivered / 2 : $delivered}]
        set hops [expr {$sent + 2 * $delivered + 3 * $acks}]
        result counted 0
    }
    result wire_bytes $wire
    result throughput_bps [expr {8.0 * $bytes / $P(duration_s)}]
    result sent_packets $sent
    result retransmitted_packets $again
    result hops $hops
    finish
}
$ns run
