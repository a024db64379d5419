#!/bin/sh
# Links the shared library with its SONAME and its symbol versions from the static one, and adds the links to its name.
# rustc's own shared library has neither: it passes an anonymous version script to the linker, which excludes another.
#
#     sh crates/capi/link.sh target/release/libsteadycast.a FOLDER
set -eu
here=$(dirname "$0")
version=$(sed -n 's/^Version: //p' "$here/steadycast.pc")
soname=libsteadycast.so.${version%.*} # in 0.x a minor version may break the interface
mkdir -p "$2"
${CC:-cc} -shared -o "$2/libsteadycast.so.$version" -Wl,-soname,"$soname" -Wl,--version-script="$here/steadycast.map" \
    -Wl,--gc-sections -Wl,-z,defs -Wl,--whole-archive "$1" -Wl,--no-whole-archive -lm -lpthread -ldl -lgcc_s
ln -sf "libsteadycast.so.$version" "$2/$soname"
ln -sf "$soname" "$2/libsteadycast.so"
