# The cost of moving packets and nothing else: CBR over three links.
#
#   a --155 Mb/s, 5 ms-- b --155 Mb/s, 5 ms-- c --155 Mb/s, 5 ms-- d
#
# count=1 puts a monitor on each link, for the exact number of hops (a hop is a packet that left a link). With the same
# seed and no monitors the same packets are sent, but faster; `hops` is then computed from the parameters.
set script bench-cbr
source [file join [file dirname [info script]] common.tcl]
param rate_bps 100e6
param packet 1000          ;# bytes on the wire
param links 3
param link_bps 155e6
param delay_ms 5
param queue_packets 50
param duration_s 100
param scheduler Splay      ;# the fastest here; Calendar is ns-2's default; Heap, List, Map
param count 0
param seed 1
param headers needed
endOfParams

keepHeaders IP RTP
set ns [new Simulator]
$ns use-scheduler $P(scheduler)
seedEverything
set nodes {}
for {set i 0} {$i <= $P(links)} {incr i} { lappend nodes [$ns node] }
set mons {}
for {set i 0} {$i < $P(links)} {incr i} {
    set a [lindex $nodes $i]
    set b [lindex $nodes [expr {$i + 1}]]
    $ns duplex-link $a $b $P(link_bps) [expr {$P(delay_ms) / 1000.0}] DropTail
    $ns queue-limit $a $b $P(queue_packets)
    if {$P(count)} { lappend mons [watch $ns $a $b] }
}
set udp [new Agent/UDP]
$udp set packetSize_ $P(packet)
set sink [new Agent/Null]
$ns attach-agent [lindex $nodes 0] $udp
$ns attach-agent [lindex $nodes end] $sink
$ns connect $udp $sink
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ $P(packet)
$cbr set rate_ $P(rate_bps)
$cbr attach-agent $udp
$ns at 0.0 "$cbr start"
$ns at $P(duration_s) {
    if {$P(count)} {
        set hops 0
        foreach m $mons { incr hops [$m set pdepartures_] }
        result counted 1
    } else {
        set hops [expr {round($P(rate_bps) / 8.0 / $P(packet) * $P(duration_s)) * $P(links)}]
        result counted 0
    }
    result wire_bytes $P(packet)
    result hops $hops
    finish
}
$ns run
