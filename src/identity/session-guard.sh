#!/bin/sh
# Ends the session of a program for which nobody is there any more. It is started beside the program, in a session of its own
# and with the same identity.
#
# Argument: the session. Standard input: a line when the program has ended by itself; its end without one when the daemon has
# let go of it, or is gone: then SIGHUP, as of a window that is closed, and SIGKILL 2 s later for what is left.
set -u
session=$1
read -r _ && exit

find_members() {
  members=
  for stat in $(LC_ALL=C grep -lsaE "^[0-9]+ \(.*\) [RSDTtIKP] [0-9]+ [0-9]+ $session " /proc/[0-9]*/stat); do
    pid=${stat#/proc/}
    members="$members ${pid%/stat}"
  done
}

find_members
for pid in $members; do kill -HUP "$pid" && kill -CONT "$pid"; done
tenths=0
while [ "$tenths" -lt 20 ] && [ -n "$members" ]; do
  sleep 0.1
  tenths=$((tenths + 1))
  find_members
done
round=0
while [ "$round" -lt 100 ] && [ -n "$members" ]; do
  for pid in $members; do kill -KILL "$pid"; done
  sleep 0.05
  round=$((round + 1))
  find_members
done
