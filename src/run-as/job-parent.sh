#!/bin/sh
# The parent process of one run. Each run has its own, so that runs do not affect each other and do not wait for a
# user's helper. It is a shell script because a thousand of them must fit in memory. It is started as the job's owner,
# checks that, runs the command as leader of a new session, and kills what the command leaves behind.
#
# Arguments: lines that /proc/self/status must have, one per argument, then "."; the run ID; `end` or `keep` for
# processes that the command leaves behind; the directory; the command; its variables as NAME=value.
# Standard input: a byte, or end of file when the daemon is gone, ends the run: SIGTERM to its group, SIGKILL 5 s
# later.
# Standard output and error belong to the command. Descriptor 3 reports `refused WHY`, or `begun` and finally `exit
# STATUS LEFT`: STATUS as in `$?`, LEFT the number of leftover processes that were killed.
set -u
exec 4<&0 </dev/null

. "${0%/*}/expect-identity.sh"
expect_identity "$@" || {
  echo "refused wrong identity: its status does not say $expected" >&3
  exit 77
}
shift $((expected_words - 1))
run=$2 left=$3 dir=$4 command=$5
shift 5
cd "$dir" || {
  echo "refused directory \"$dir\" cannot be entered" >&3
  exit 78
}
umask 022

# In seconds since the host's boot.
read -r began _ </proc/uptime

# Reported first: a command that kills its parent at once has also started.
echo begun >&3
(
  # Waits until the parent's second child exists, which ends the command if the command kills its parent.
  second=
  children=/proc/$$/task/$$/children
  while [ -z "$second" ] && [ -r "$children" ]; do read -r _ second <"$children" || :; done
  [ -d "/proc/$$" ] || exit
  export "SVC_RUN_ID=$run" "$@"
  exec setsid /bin/sh -c "$command"
) 3>&- 4<&- &
job=$!

# Prints when a process started (field 22 of its stat). Together with the PID this identifies the process uniquely.
started() {
  read -r stat <"/proc/$1/stat" || return 0
  set -- ${stat##*) }
  echo "${20}"
}

# Prints the descendants of a process, as PID:START.
descendants() {
  for children in /proc/"$1"/task/*/children; do
    pids=
    read -r pids <"$children" || :
    for pid in $pids; do
      echo "$pid:$(started "$pid")"
      (descendants "$pid")
    done
  done
}

# Sets `found` to the living processes of the job's session and those with the run ID in their environment. Only
# processes started since then can match, so if their number is small, no others are read. For a short run the number
# may be larger, because hundreds can start at once, but PIDs do not wrap around within seconds.
find_left() {
  found= files= few=500
  read -r now _ </proc/uptime
  [ $((${now%.*} - ${began%.*})) -gt 10 ] || few=3000
  read -r _ _ _ _ last </proc/loadavg
  if [ "$last" -ge "$job" ] && [ $((last - job)) -le "$few" ]; then
    pid=$job
    while [ "$pid" -lt "$last" ]; do
      pid=$((pid + 1))
      if [ "$pid" != "${control-}" ] && [ -d "/proc/$pid" ]; then files="$files /proc/$pid/environ /proc/$pid/stat"; fi
    done
    [ -z "$files" ] || search $files
  else
    files=all
    for digit in 1 2 3 4 5 6 7 8 9; do search /proc/$digit*/environ /proc/$digit*/stat; done
  fi
}

search() {
  hits=$(LC_ALL=C grep -lsaE -e "SVC_RUN_ID=$run" -e "^[0-9]+ \(.*\) [RSDTtIKP] [0-9]+ [0-9]+ $job " "$@")
  [ -z "$hits" ] || found="$found $hits"
}

# Kills leftover processes, and those that they fork in the meantime, until none are left. `ended` counts them. A
# process that executes a program has no readable environment for a moment, and a process that forks and exits leaves a
# child that was not examined. So if any process started since, an empty scan is repeated once.
end_left() {
  killed=' ' ended=0 round=0 empty=0
  while [ "$round" -lt 100 ]; do
    find_left
    if [ -z "$found" ]; then
      empty=$((empty + 1))
      [ -n "$files" ] && [ "$empty" -lt 2 ] || return 0
      sleep 0.02
      continue
    fi
    empty=0
    for file in $found; do
      pid=${file#/proc/}
      pid=${pid%/*}
      kill -KILL "$pid" || continue
      case $killed in
      *" $pid "*) ;;
      *) killed="$killed$pid " ended=$((ended + 1)) ;;
      esac
    done
    sleep 0.05
    round=$((round + 1))
  done
}

# Ends the run on request.
(
  read -r _ <&4 || :
  exec 4<&-
  trap '' TERM
  family=$(descendants "$job")
  kill -TERM -- "-$job" || kill -TERM "$job"
  tenths=0
  while [ "$tenths" -lt 50 ] && kill -0 "$job"; do
    sleep 0.1
    tenths=$((tenths + 1))
  done
  kill -KILL -- "-$job" || kill -KILL "$job"
  # Descendants with another session and no run ID were only reachable through parents that are now dead.
  for one in $family; do
    [ "$(started "${one%:*}")" != "${one#*:}" ] || kill -KILL "${one%:*}"
  done
  # If the job has killed its parent, only this process can do it.
  kill -0 $$ || end_left
) >/dev/null 2>&1 3>&- &
control=$!

# Silences messages of the shell such as "Killed".
exec 4<&- >/dev/null 2>&1
wait "$job"
status=$?
kill -TERM "$control"
wait "$control" && left=end
ended=0
[ "$left" = keep ] || end_left
echo "exit $status $ended" >&3
