#!/bin/sh
# Ends the session of a program that is no longer needed. It is started beside the program, as the same user, in its
# own session.
#
# Argument: the session. Standard input: a line when the program has exited. End of file without a line means that the
# daemon released the program or died: the session gets SIGHUP, as when a terminal window is closed, and SIGKILL 2 s
# later.
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
