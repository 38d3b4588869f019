/**
 * A machine emulated by QEMU for a test: a kernel with all cgroup controllers, and this host's own root over 9p,
 * read-only. It boots in a quarter of a minute, and is some ten times as slow.
 */
import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { chmod, cp, mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const run = promisify(execFile);
const qemu = "/usr/bin/qemu-system-x86_64";
const busybox = "/bin/busybox";
const cache = fileURLToPath(new URL("../../node_modules/.cache/svc-tools/kernel", import.meta.url));
/** In the order of their dependencies. */
const modules = [
  ...["drivers/virtio/virtio_ring", "drivers/virtio/virtio", "drivers/virtio/virtio_pci_modern_dev"],
  ...[
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
  ],
  ...["net/9p/9pnet", "net/9p/9pnet_virtio", "fs/9p/9p", "fs/overlayfs/overlay"],
];
/** Units that the test does not need, or that need hardware of the host. */
const masked = ["docker.service", "docker.socket", "containerd.service", "systemd-udevd.service"].concat([
  "systemd-modules-load.service",
  // This unit would clean up this host's temporary directories.
  "systemd-tmpfiles-setup.service",
  "systemd-tmpfiles-setup-dev.service",
  "network-online.target",
  "serial-getty@ttyS0.service",
]);
const initOf = (systemdArguments: string): string => `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in ${modules.map((path) => path.split("/").at(-1)).join(" ")}; do insmod /modules/$module.ko; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /low
mount -t tmpfs -o size=70% tmpfs /upper
mkdir /upper/upper /upper/work
mount -t overlay -o lowerdir=/low,upperdir=/upper/upper,workdir=/upper/work overlay /root
cp -a /add/. /root/
: > /root/etc/machine-id
umount /proc
mount --move /dev /root/dev
mount -t tmpfs -o mode=1777 tmpfs /root/tmp
exec switch_root /root /lib/systemd/systemd --system --unit=probe.target ${systemdArguments}
`;

/** Why no machine can be emulated here; `undefined` if one can. */
export const whyNoEmulator = findObstacle();

function findObstacle(): string | undefined {
  if (process.arch !== "x64") return "needs an x86 processor";
  for (const file of [qemu, busybox, "/lib/systemd/systemd", "/usr/bin/apt-get", "/usr/bin/dpkg"]) {
    try {
      accessSync(file, constants.X_OK);
    } catch {
      return `needs ${file}`;
    }
  }
  return undefined;
}

/**
 * Boots the machine and runs a script as root after systemd and the units have started. @param files added to the root
 * of the machine, by path @param systemdArguments as on a kernel command line, which systemd ignores in environments
 * that look like a container @returns the output of the machine and the script
 */
export async function runEmulated(
  script: string,
  files: Readonly<Record<string, string>>,
  timeoutMs: number,
  systemdArguments = "",
): Promise<string> {
  const kernel = await debianKernel();
  const dir = await mkdtemp(join(tmpdir(), "svc-emulated-"));
  try {
    const image = await packInitramfs(dir, kernel, initOf(systemdArguments), {
      ...files,
      "etc/systemd/system/probe.target": "[Unit]\nRequires=basic.target\nWants=svc.service probe.service\n",
      "etc/systemd/system/probe.service": `[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh /probe.sh
StandardOutput=tty
StandardError=inherit
TTYPath=/dev/ttyS0
ExecStopPost=/bin/systemctl poweroff --force --force
`,
      "probe.sh": script,
    });
    const { stdout } = await run(
      qemu,
      [
        ...["-accel", "tcg", "-cpu", "max", "-M", "q35", "-m", "2048", "-smp", "2", "-nic", "none"],
        ...[
          "-kernel",
          kernel.image,
          "-initrd",
          image,
          "-append",
          "console=ttyS0 quiet panic=-1 systemd.show_status=false",
        ],
        ...["-nographic", "-no-reboot"],
        ...["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"],
      ],
      { timeout: timeoutMs, killSignal: "SIGKILL", maxBuffer: 16 * 1024 * 1024 },
    );
    return stdout.replaceAll("\r", "");
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

interface Kernel {
  readonly image: string;
  readonly modules: string;
}

/** The distribution's kernel from its own packages; downloaded once. */
async function debianKernel(): Promise<Kernel> {
  const find = async (): Promise<Kernel | undefined> => {
    const [version] = await readdir(join(cache, "lib/modules")).catch(() => []);
    if (version === undefined) return undefined;
    return {
      image: join(cache, "boot", `vmlinuz-${version}`),
      modules: join(cache, "lib/modules", version, "kernel"),
    };
  };
  const found = await find();
  if (found !== undefined) return found;
  const { stdout } = await run("apt-cache", ["depends", "linux-image-amd64"]);
  const name = /Depends: (\S+)/.exec(stdout)?.[1];
  if (name === undefined) throw new Error("apt knows no kernel: apt-get update");
  const dir = await mkdtemp(join(tmpdir(), "svc-kernel-"));
  try {
    await run("apt-get", ["download", name], { cwd: dir });
    const [file = ""] = await readdir(dir);
    await run("dpkg", ["-x", join(dir, file), join(dir, "root")]);
    await mkdir(dirname(cache), { recursive: true });
    await cp(join(dir, "root"), cache, { recursive: true });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
  const fresh = await find();
  if (fresh === undefined) throw new Error(`${name} has no kernel`);
  return fresh;
}

async function packInitramfs(
  dir: string,
  kernel: Kernel,
  init: string,
  files: Readonly<Record<string, string>>,
): Promise<string> {
  const root = join(dir, "initramfs");
  for (const name of [
    "bin",
    "dev",
    "proc",
    "sys",
    "root",
    "low",
    "upper",
    "modules",
    "add/etc/systemd/system",
  ])
    await mkdir(join(root, name), { recursive: true });
  await cp(busybox, join(root, "bin/busybox"));
  for (const path of modules)
    await cp(join(kernel.modules, `${path}.ko`), join(root, "modules", `${path.split("/").at(-1)}.ko`));
  await writeFile(join(root, "init"), init);
  await chmod(join(root, "init"), 0o755);
  for (const unit of masked) await symlink("/dev/null", join(root, "add/etc/systemd/system", unit));
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(root, "add", path)), { recursive: true });
    await writeFile(join(root, "add", path), text);
  }
  const image = join(dir, "initramfs.cpio");
  await run("sh", ["-c", `find . | ${busybox} cpio -o -H newc > "$0"`, image], { cwd: root });
  return image;
}
