#!/bin/sh
# Reduces each fuzzer's corpus to the fewest and shortest inputs that cover the same code. Needs a nightly compiler and
# cargo-fuzz.
set -eu
cd "$(dirname "$0")/../fuzz"
for target in rtp rtcp feedback payload rtx parity sdp srtp session steady web_offer web_answer web_datagram; do
    cargo +nightly fuzz cmin "$target" -- -max_len=1024
done
