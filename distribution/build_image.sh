#!/bin/sh
# Build deploy/Dockerfile where there is neither Docker nor a registry of images, as root in a sandbox or as root of a machine.
#
# The base image is made from Debian's packages. Isolation chroot and storage vfs need no overlay mounts and no cgroups.
# usage: build_image.sh WORK    WORK keeps the base (280 MB) for the next run
set -eu
work=$1
cd "$(dirname "$0")/.."
for program in buildah debootstrap; do
    command -v $program >/dev/null || { echo "$program is missing: apt-get install buildah debootstrap crun bubblewrap" >&2; exit 1; }
done
b="buildah --root $work/storage --runroot $work/run --storage-driver vfs"
mkdir -p "$work"

if ! $b inspect --type image localhost/base >/dev/null 2>&1; then
    [ -d "$work/rootfs" ] || {
        debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/rootfs.part" >"$work/debootstrap.log"
        mv "$work/rootfs.part" "$work/rootfs"
    }
    container=$($b from scratch)
    $b add --quiet "$container" "$work/rootfs" / >/dev/null
    $b config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    $b commit --quiet "$container" localhost/base >/dev/null
    $b rm "$container" >/dev/null
    rm -rf "$work/rootfs"
fi

# RUN gets this machine's certificates and its settings of pip; they are not part of the image.
lent=
for file in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do [ ! -f $file ] || lent="$lent --volume $file:$file:ro"; done
# OCI's format has no HEALTHCHECK.
$b bud --quiet --isolation chroot --format docker --build-arg BASE=localhost/base $lent --file deploy/Dockerfile --tag rookery:test . >/dev/null
$b rmi --prune >/dev/null 2>&1 || true # the images of earlier runs
