# One CBR stream to a group, and one TCP, through one bottleneck.
#
#   server --10 Mb/s, 5 ms-- left --4 Mb/s, 10 ms-- right --10 Mb/s, 5 ms-- receiver 1 ... n
#   tcp    --10 Mb/s, 5 ms--                              --10 Mb/s, 5 ms-- tcp sink
#
# Three ways to build the tree:
#   dm        ns-2's dense mode; its membership and prunes run in OTcl, and it also floods the hosts of TCP once.
#   ctrmcast  ns-2's centralised multicast, switched to a source-rooted tree at once.
#   static    no multicast routing: one replicator put into `right` by hand for an address of its own, and only the
#             routes that are used, since ns-2's routes between all pairs of nodes cost n^3. This is ns-2's fastest way.
set script bench-multicast
source [file join [file dirname [info script]] common.tcl]
param receivers 45
param rate_bps 2e6         ;# of the stream
param packet 1018
param bottleneck_bps 4e6
param delay_ms 10
param access_bps 10e6
param access_ms 5
param queue_packets 50
param congestion newreno
param payload 978          ;# 1018 B on the wire
param window 20
param initial_window 2
param min_rto_s 0.2
param tick_s 0.01
param duration_s 200
param tree static          ;# static | dm | ctrmcast
param sinks null           ;# null | lossmonitor: what counts, or does not, at each receiver
param scheduler Splay
param count 0
param seed 1
param headers needed
endOfParams

if {$P(tree) eq "static"} {
    keepHeaders IP TCP Flags RTP
    set ns [new Simulator]
    $ns rtproto Manual
} else {
    keepHeaders IP TCP Flags RTP mcastCtrl CtrMcast
    set ns [new Simulator -multicast on]
}
$ns use-scheduler $P(scheduler)
seedEverything
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
set server [$ns node]
set tcpSrc [$ns node]
set tcpDst [$ns node]
link $left $right $P(bottleneck_bps) $P(delay_ms) $P(queue_packets)
link $server $left $P(access_bps) $P(access_ms) $P(queue_packets)
link $tcpSrc $left $P(access_bps) $P(access_ms) $P(queue_packets)
link $right $tcpDst $P(access_bps) $P(access_ms) $P(queue_packets)
set members {}
for {set i 0} {$i < $P(receivers)} {incr i} {
    set r [$ns node]
    link $right $r $P(access_bps) $P(access_ms) $P(queue_packets)
    lappend members $r
}
proc route {from to via} {
    global ns
    [$from set classifier_] install $to [[$ns link $from $via] head]
}
if {$P(tree) eq "static"} {
    set group [expr {$P(receivers) + 100}]
    route $server $group $left
    route $left $group $right
    set copies [new Classifier/Replicator]
    foreach r $members { $copies installNext [[$ns link $right $r] head] }
    [$right set classifier_] install $group $copies
    set there [$tcpDst id]
    set back [$tcpSrc id]
    route $tcpSrc $there $left
    route $left $there $right
    route $right $there $tcpDst
    route $tcpDst $back $right
    route $right $back $left
    route $left $back $tcpSrc
} else {
    set group [Node allocaddr]
    if {$P(tree) eq "dm"} {
        DM set PruneTimeout_ [expr {10 * $P(duration_s)}]
        $ns mrtproto DM
    } elseif {$P(tree) eq "ctrmcast"} {
        set mc [$ns mrtproto CtrMcast {}]
        $mc set_c_rp $left
    } else {
        refuse "tree=$P(tree): static, dm or ctrmcast"
    }
}
set udp [new Agent/UDP]
$udp set packetSize_ $P(packet)
$udp set dst_addr_ $group
$udp set dst_port_ 0
$ns attach-agent $server $udp
set cbr [new Application/Traffic/CBR]
$cbr set packetSize_ $P(packet)
$cbr set rate_ $P(rate_bps)
$cbr attach-agent $udp
set kindOfSink [expr {$P(sinks) eq "null" ? "Agent/Null" : "Agent/LossMonitor"}]
set sinks {}
foreach r $members {
    set s [new $kindOfSink]
    $ns attach-agent $r $s
    lappend sinks $s
    if {$P(tree) eq "static"} {
        [$r set classifier_] install $group $s
    } else {
        $ns at 0.0 "$r join-group $s $group"
    }
}
if {$P(tree) eq "ctrmcast"} { $ns at 0.3 "$mc switch-treetype $group" }

array set kind [list reno Agent/TCP/Reno newreno Agent/TCP/Newreno sack Agent/TCP/Sack1]
set tcp [new $kind($P(congestion))]
$tcp set packetSize_ $P(payload)
$tcp set window_ $P(window)
$tcp set windowInit_ $P(initial_window)
$tcp set minrto_ $P(min_rto_s)
$tcp set tcpTick_ $P(tick_s)
set sink [new Agent/TCPSink]
$ns attach-agent $tcpSrc $tcp
$ns attach-agent $tcpDst $sink
$ns connect $tcp $sink
set ftp [new Application/FTP]
$ftp attach-agent $tcp
$ns at 0.4 "$cbr start"
$ns at 0.5 "$ftp start"
$ns at $P(duration_s) {
    if {$P(sinks) eq "null"} {
        # The number of packets sent, which is right only without drops at the bottleneck: see link_drops with count=1.
        set got [expr {$P(receivers) * int($P(rate_bps) / 8.0 / $P(packet) * ($P(duration_s) - 0.4))}]
    } else {
        set got 0
        foreach s $sinks { incr got [$s set npkts_] }
    }
    set wire [expr {$P(payload) + 40}]
    set delivered [expr {round([$sink set bytes_]) / $wire}]
    if {$P(count)} {
        set hops 0
        set drops 0
        foreach m $mons { incr hops [$m set pdepartures_]; incr drops [$m set pdrops_] }
        result counted 1
        result link_drops $drops
    } else {
        # The stream crosses two shared links and one per receiver, TCP three each way. A dropped packet's hop is missing here.
        set hops [expr {$got + 2 * $got / $P(receivers) + 6 * $delivered}]
        result counted 0
    }
    result wire_bytes $wire
    result video_packets_received $got
    result video_bps [expr {8.0 * $P(packet) * $got / $P(receivers) / $P(duration_s)}]
    result tcp_bps [expr {8.0 * $wire * $delivered / $P(duration_s)}]
    result hops $hops
    finish
}
$ns run
