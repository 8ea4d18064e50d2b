#!/bin/sh
# Check every file of deploy/ with the linter or the parser of the program that reads it: make check-deploy.
# The proxies are those of `make proxies` or of the machine; systemd is that of the machine. Where one is missing, its files are named and not
# checked. tests/deploy/test_proxies.py runs the proxies in front of a real server.
# usage: check.sh TOOLS    TOOLS is the folder of the locked linters
set -eu
tools=$1
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
missing() { echo "not checked: $2, because $1 is not installed"; }

if [ -x "$tools/python/bin/hadolint" ]; then
    "$tools/python/bin/hadolint" --failure-threshold info deploy/Dockerfile
    "$tools/python/bin/kubernetes-validate" --strict --kubernetes-version 1.37.0 --quiet deploy/kubernetes/*.yaml
    echo "checked: Dockerfile, kubernetes/"
else
    missing "tests/deploy/python.lock" "Dockerfile and kubernetes/"
fi

if [ -f "$tools/node_modules/dclint/package.json" ]; then
    # Left out: the order of keys and quotes; build beside image, which is the name of what is built; ports on all interfaces, for only the
    # proxy has any.
    node "$tools/node_modules/.bin/dclint" deploy/compose.yaml deploy/compose.distributed.yaml --quiet \
        --disable-rule no-build-and-image --disable-rule no-unbound-port-interfaces
    echo "checked: compose.yaml, compose.distributed.yaml"
else
    missing "tests/deploy/package-lock.json" "the compose files"
fi

if command -v systemd-analyze >/dev/null; then
    for unit in rookery rookery-worker; do
        # The program of ExecStart must exist to be verified. An unknown key is only a warning, so any output is a failure.
        sed 's#/opt/rookery/bin/rookery#/bin/true#' deploy/$unit.service >"$scratch/$unit.service"
        said=$(systemd-analyze verify --man=no --recursive-errors=no "$scratch/$unit.service" 2>&1) && [ -z "$said" ] || { echo "$said" >&2; exit 1; }
        # 0 is best and 10 is worst; 20 stands for 2.0.
        systemd-analyze security --offline=true --threshold=20 deploy/$unit.service >"$scratch/score" || { cat "$scratch/score" >&2; exit 1; }
        echo "checked: $unit.service, $(grep -o 'exposure level.*: [0-9.]*' "$scratch/score")"
    done
else
    missing systemd-analyze "the units of systemd"
fi

openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=rookery.example.org -keyout "$scratch/key" -out "$scratch/certificate" 2>/dev/null
cat "$scratch/key" "$scratch/certificate" >"$scratch/both"
# Writes a file of deploy/ with a certificate that exists.
with_certificate() {
    sed -e "s#/etc/ssl/rookery/fullchain.pem#$scratch/certificate#; s#/etc/ssl/rookery/privkey.pem#$scratch/key#" \
        -e "s#/etc/ssl/rookery/haproxy.pem#$scratch/both#" "deploy/$1" >"$scratch/$1"
}

if command -v nginx >/dev/null; then
    with_certificate nginx.conf
    # The folders of a package that is not installed do not exist.
    places=$(for name in client_body proxy fastcgi uwsgi scgi; do echo "${name}_temp_path $scratch/$name;"; done)
    printf 'pid %s/pid;\nerror_log stderr warn;\nevents {}\nhttp {\naccess_log off;\n%s\ninclude %s/nginx.conf;\n}\n' "$scratch" "$places" "$scratch" >"$scratch/main.conf"
    nginx -e stderr -t -q -c "$scratch/main.conf"
    echo "checked: nginx.conf, $(nginx -v 2>&1)"
else
    missing nginx nginx.conf
fi

if command -v caddy >/dev/null; then
    PUBLIC_HOST=rookery.example.org UPSTREAM=127.0.0.1:8400 HOME=$scratch \
        caddy validate --config deploy/Caddyfile --adapter caddyfile >"$scratch/said" 2>&1 || { cat "$scratch/said" >&2; exit 1; }
    caddy fmt --diff deploy/Caddyfile >/dev/null
    echo "checked: Caddyfile, Caddy $(caddy version)"
else
    missing Caddy Caddyfile
fi

if command -v haproxy >/dev/null; then
    with_certificate haproxy.cfg
    haproxy -q -c -f "$scratch/haproxy.cfg"
    echo "checked: haproxy.cfg, $(haproxy -v | head -1)"
else
    missing HAProxy haproxy.cfg
fi
