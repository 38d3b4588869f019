#!/bin/sh
# read-only-host.sh DIRECTORY COMMAND…: runs a command for which all files of this host are read-only, except those in
# DIRECTORY. The requests of Schemathesis name any path, and root may change all of them. Needs its own mount namespace.
set -eu
kept=$1
shift
mount --bind "$kept" "$kept"
awk '{ print $5 }' /proc/self/mountinfo | while read -r point; do
  point=$(printf '%b' "$point")
  case $point in
    "$kept" | /proc | /proc/*) continue ;;
  esac
  # A mount below another one cannot be reached, and needs no protection.
  mount -o remount,bind,ro "$point" 2>/dev/null || true
done
for directory in / /etc /dev /tmp "$HOME"; do
  [ "$directory" = "$kept" ] && continue
  if touch "$directory/svc-must-not-exist" 2>/dev/null; then
    rm -f "$directory/svc-must-not-exist"
    echo "$directory is not read-only" >&2
    exit 1
  fi
done
exec "$@"
