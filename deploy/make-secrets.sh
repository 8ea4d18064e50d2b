#!/bin/sh
# Create the secrets of compose.distributed.yaml in a folder, a file each. Files that exist are kept.
# usage: make-secrets.sh FOLDER
set -eu
folder=$1
umask 077
mkdir -p "$folder"
create() {
    [ -s "$folder/$1" ] || { openssl rand "$2" 32 | tr -d '\n' >"$folder/$1.new" && mv "$folder/$1.new" "$folder/$1"; }
    # Compose mounts the file as it is, and users inside the containers have other numbers than its owner. The folder stays closed.
    chmod 0444 "$folder/$1"
}
create secret_key -base64
# Parts of addresses, so without characters that an address would have to escape.
for name in database_password vectors_key counters_password; do create $name -hex; done
