#!/bin/sh
# Unpack nginx, Caddy, HAProxy and Apache from the packages of Debian or Ubuntu, without root and without starting them: make proxies.
# usage: install_proxies.sh FOLDER    Their commands are then in FOLDER/bin.
set -eu
mkdir -p "$1/bin" "$1/packages"
folder=$(cd "$1" && pwd)
names="nginx nginx-common caddy haproxy apache2-bin liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libapr1 libaprutil1 libbrotli1 libnghttp2-14 libjansson4"
if [ ! -d /var/lib/apt/lists ] || [ -z "$(ls /var/lib/apt/lists | grep _Packages)" ]; then
    root=$([ "$(id -u)" = 0 ] || echo sudo)
    $root apt-get update -qq
fi
for name in $names; do
    # Other releases have other libraries, and the programs that lack one are named below.
    (cd "$folder/packages" && apt-get -qq download "$name" >/dev/null 2>&1) || echo "not in the package lists: $name" >&2
done
for package in "$folder"/packages/*.deb; do
    dpkg -x "$package" "$folder"
done
libraries=$(find "$folder/usr/lib" "$folder/lib" -name '*.so.*' -exec dirname {} \; 2>/dev/null | sort -u | tr '\n' ':')
for program in usr/sbin/nginx usr/bin/caddy usr/sbin/haproxy usr/sbin/apache2; do
    [ -x "$folder/$program" ] || continue
    command="$folder/bin/$(basename "$program")"
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$libraries" "$folder/$program" >"$command"
    chmod +x "$command"
done
rm -rf "$folder/packages"
for name in nginx caddy haproxy apache2; do
    version=-v
    [ "$name" != caddy ] || version=version
    "$folder/bin/$name" "$version" >/dev/null 2>&1 || { echo "$name could not be unpacked: its tests are skipped" >&2; rm -f "$folder/bin/$name"; }
done
