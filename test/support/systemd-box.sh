# A real systemd as pid 1 of namespaces of its own, over a throw-away overlay of this machine's root.
# Usage: systemd-box.sh DIR CGROUP STATE [ROOT [CHECKOUT]], where DIR is a free directory, CGROUP a new cgroup v2, ROOT another root
# than this machine's, and STATE what survives a boot: STATE/etc becomes /etc/svc and STATE/store /var/lib/svc where there are such,
# STATE/units /etc/systemd/system, STATE/boot_id the boot id. CHECKOUT is mounted read-only at its own path: it may lie on another
# file system than ROOT, or below /tmp, which systemd empties when it boots.
set -eu
export DIR=$1 CGROUP=$2 STATE=$3 ROOT=${4:-/} CHECKOUT=${5:-}
echo $$ > "$CGROUP/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --uts --ipc --net --cgroup --propagation private sh -c '
set -eu
ip link set lo up
mount -t tmpfs tmpfs "$DIR"
mkdir "$DIR/upper" "$DIR/work" "$DIR/root"
cd "$DIR"
mount -t overlay overlay -o "lowerdir=$ROOT,upperdir=$DIR/upper,workdir=$DIR/work" root
cd root
: > etc/machine-id
mkdir -p etc/systemd/system
mount --bind "$STATE/units" etc/systemd/system
if [ -d "$STATE/etc" ]; then
  mkdir -p etc/svc var/lib/svc
  mount --bind "$STATE/etc" etc/svc
  mount --bind "$STATE/store" var/lib/svc
fi
if [ -n "$CHECKOUT" ]; then
  mkdir -p "./$CHECKOUT"
  mount --bind "$CHECKOUT" "./$CHECKOUT"
  mount -o remount,bind,ro "./$CHECKOUT"
fi
mount -t proc proc proc
mount --bind "$STATE/boot_id" proc/sys/kernel/random/boot_id
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
for device in null zero full random urandom tty; do : > dev/$device; mount --bind /dev/$device dev/$device; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mkdir -p mnt/old
pivot_root . mnt/old
cd /
umount -l /mnt/old
exec env -i container=svc-test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
  /lib/systemd/systemd --system --unit=multi-user.target < /dev/null
'
