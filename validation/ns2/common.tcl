# What every script of this folder shares: key=value arguments, one JSON line as the answer, a link's counters.
#
#   ns tcp-lossy.tcl p=0.01 seed=3
#
# The answer is the last line of stdout that starts with "{". ns-2's agents print through C's stdio, whose buffer may be
# flushed in the middle of a line, so the answer starts on a line of its own.

set tcl_precision 12
set paramNames {}
set answer {}

# Declares a parameter; a value on the command line replaces the default.
proc param {name default} {
    global paramNames P given
    lappend paramNames $name
    set P($name) $default
    if {[info exists given($name)]} { set P($name) $given($name) }
}

proc readArguments {} {
    global argv given
    foreach word $argv {
        set eq [string first = $word]
        if {$eq < 1} { refuse "argument \"$word\" is not key=value" }
        set given([string range $word 0 [expr {$eq - 1}]]) [string range $word [expr {$eq + 1}] end]
    }
}

# Call it after the last `param`: refuses arguments whose keys no `param` has declared.
proc endOfParams {} {
    global paramNames given
    foreach name [array names given] {
        if {[lsearch -exact $paramNames $name] < 0} {
            refuse "unknown parameter \"$name\"; there are: $paramNames"
        }
    }
}

proc refuse {why} {
    puts stderr $why
    exit 2
}

# Adds one result to the answer. `value` is a number, a word or a list of numbers.
proc result {name value} {
    global answer
    lappend answer $name $value
}

proc jsonValue {value} {
    if {[llength $value] == 1} {
        if {[string is double -strict $value]} { return [expr {$value == int($value) ? $value : double($value)}] }
        return "\"$value\""
    }
    set parts {}
    foreach v $value { lappend parts [jsonValue $v] }
    return "\[[join $parts {, }]\]"
}

# Prints the answer and ends the process.
proc finish {} {
    global paramNames P answer script
    set fields {}
    foreach name $paramNames { lappend fields "\"$name\": [jsonValue $P($name)]" }
    set text "{\"script\": \"$script\", \"params\": {[join $fields {, }]}"
    foreach {name value} $answer { append text ", \"$name\": [jsonValue $value]" }
    puts "\n$text}"
    flush stdout
    exit 0
}

# ns-2's packets have all headers that it knows, which costs time; unless headers=all, this keeps only the named ones.
# Must run before the Simulator exists. Results are the same either way (validation/ns2.py --check-headers compares the two).
proc keepHeaders {args} {
    global P
    if {$P(headers) eq "all"} return
    remove-all-packet-headers
    eval add-packet-header $args
}

# ns-2 draws all random numbers from this one generator, whose substreams are 10^22 numbers apart.
proc seedEverything {} {
    global P
    ns-random 0
    global defaultRNG
    $defaultRNG seed [expr {1000 + 7919 * $P(seed)}]
}

# Returns a queue monitor of the link a -> b, with an integral of the queue over time.
proc watch {ns a b} {
    return [$ns monitor-queue $a $b [open /dev/null w] 0.1]
}

# Returns the counters of a watched link at this moment.
proc books {ns mon} {
    set pkts [$mon get-pkts-integrator]
    set bytes [$mon get-bytes-integrator]
    $pkts newpoint [$ns now] [$pkts set lasty_]
    $bytes newpoint [$ns now] [$bytes set lasty_]
    return [list arrivals [$mon set parrivals_] drops [$mon set pdrops_] departures [$mon set pdepartures_] \
        departed_bytes [$mon set bdepartures_] packet_seconds [$pkts set sum_] byte_seconds [$bytes set sum_]]
}

# Adds the difference of two results of `books` to the answer: utilisation, drops and the mean wait.
# The mean wait is computed by Little's law: packets in the queue on average over packets leaving per second. ns-2's
# monitor sees a packet leave when its transmission begins, so this is the wait before transmission.
proc enterBooks {before after span rate} {
    array set x $before
    array set y $after
    foreach k [array names y] { set d($k) [expr {$y($k) - $x($k)}] }
    result link_arrivals $d(arrivals)
    result link_drops $d(drops)
    result link_drop_frac [expr {$d(arrivals) > 0 ? double($d(drops)) / $d(arrivals) : 0.0}]
    result link_departures $d(departures)
    result utilisation_frac [expr {8.0 * $d(departed_bytes) / ($rate * $span)}]
    result queue_mean_packets [expr {$d(packet_seconds) / $span}]
    set wait [expr {$d(departures) > 0 ? 1000.0 * $d(packet_seconds) / $d(departures) : 0.0}]
    result queue_mean_ms $wait
    return $wait
}

proc mean {list} {
    if {[llength $list] == 0} { return 0.0 }
    set sum 0.0
    foreach v $list { set sum [expr {$sum + $v}] }
    return [expr {$sum / [llength $list]}]
}

readArguments
