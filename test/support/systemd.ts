/**
 * A real systemd for a test, in namespaces over a temporary overlay of this host's root: its units, `/etc/svc` and
 * `/var/lib/svc` belong to the test and persist over boots.
 */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomUUID } from "node:crypto";
import { accessSync, constants, existsSync, readFileSync } from "node:fs";
import { chown, mkdir, mkdtemp, readdir, readFile, rm, rmdir, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createClient, type Client } from "@connectrpc/connect";
import type { DescService } from "@bufbuild/protobuf";
import { userConnection, socketTransport, type UserConnection } from "./daemon.ts";
import { eventually, nextEvent } from "./eventually.ts";
import { main } from "./svc-main.ts";

const run = promisify(execFile);
const shippedUnit = fileURLToPath(new URL("../../packaging/svc.service", import.meta.url));
const [shippedSocket, shippedTcpSocket] = ["svc.socket", "svc-tcp.socket"].map((name) =>
  fileURLToPath(new URL(`../../packaging/${name}`, import.meta.url)),
) as [string, string];
const userSocket = fileURLToPath(new URL("./user-socket.mjs", import.meta.url));
const script = fileURLToPath(new URL("./systemd-box.sh", import.meta.url));
const cgroupMount = findCgroupMount();
const bootMs = 60_000;
/** The host's units that the test does not need, or that would affect the host. */
const masked = [
  "sys-kernel-debug.mount",
  "sys-kernel-tracing.mount",
  "dev-hugepages.mount",
  "systemd-modules-load.service",
  "systemd-udevd.service",
  "docker.service",
  "docker.socket",
  "containerd.service",
  "network-online.target",
  // Hides files below /tmp, such as the checkout.
  "tmp.mount",
];
const checkout = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** Why this host cannot run a systemd for the tests; `undefined` if it can. */
export const whyNoSystemd = findObstacle();
/** A controller that its cgroups can delegate; `undefined` if version 2 has none here, or this is not its root. */
export const someController =
  cgroupMount === undefined || existsSync(join(cgroupMount, "cgroup.type"))
    ? undefined
    : readFileSync(join(cgroupMount, "cgroup.controllers"), "utf8").trim().split(" ").find(Boolean);

export class SystemdMachine implements AsyncDisposable {
  /** `etc/` is its `/etc/svc`, `store/` its `/var/lib/svc`, `units/` its `/etc/systemd/system`. */
  readonly dir: string;
  readonly #cgroup: string;
  readonly #root: string;
  #child: ChildProcess | undefined;
  #pid = 0;

  private constructor(dir: string, root: string) {
    this.dir = dir;
    this.#root = root;
    this.#cgroup = join(cgroupMount ?? "", basename(dir));
  }

  /** A stopped machine with another root than this host's, without svc. */
  static async withRoot(root: string): Promise<SystemdMachine> {
    const machine = new SystemdMachine(await mkdtemp(join(tmpdir(), "svc-machine-")), root);
    const units = join(machine.dir, "units");
    for (const name of ["units", "box"]) await mkdir(join(machine.dir, name));
    for (const name of masked) await symlink("/dev/null", join(units, name));
    return machine;
  }

  /** A stopped machine with the shipped unit, except for the path of svc: it runs these sources. */
  static async withSvc(): Promise<SystemdMachine> {
    const machine = await SystemdMachine.withRoot("/");
    const units = join(machine.dir, "units");
    for (const name of ["etc", "store"]) await mkdir(join(machine.dir, name));
    for (const unit of [shippedUnit, shippedSocket, shippedTcpSocket])
      await writeFile(join(units, basename(unit)), await readFile(unit));
    await mkdir(join(units, "multi-user.target.wants"));
    await symlink("../svc.service", join(units, "multi-user.target.wants", "svc.service"));
    const dropIn = join(units, "svc.service.d");
    await mkdir(dropIn);
    await writeFile(
      join(dropIn, "sources.conf"),
      `[Service]\nExecStart=\nExecStart=${process.execPath} ${main} daemon\n`,
    );
    await writeFile(
      join(machine.dir, "etc", "svc.toml"),
      `[apps]\npath = ["${dirname(process.execPath)}", "/usr/bin", "/bin"]\n`,
    );
    return machine;
  }

  /** Resolves once its systemd responds. */
  async boot(): Promise<void> {
    await writeFile(join(this.dir, "boot_id"), `${randomUUID()}\n`);
    await mkdir(this.#cgroup, { recursive: true });
    const argv = [script, join(this.dir, "box"), this.#cgroup, this.dir, this.#root];
    if (this.#root === "/") argv.push(checkout);
    // Killed with this test run, together with its machine.
    const child = spawn("setpriv", ["--pdeathsig=KILL", "sh", ...argv], {
      stdio: ["ignore", "ignore", "inherit"],
      detached: true,
    });
    this.#child = child;
    this.#pid = await eventually(async () => {
      const children = await readFile(`/proc/${child.pid ?? 0}/task/${child.pid ?? 0}/children`, "utf8");
      const pid = Number(children.trim());
      assert.equal((await readFile(`/proc/${pid}/comm`, "utf8")).trim(), "systemd");
      return pid;
    }, bootMs);
    await eventually(() => this.systemctl("show", "--property=Version"), bootMs);
    if (this.#root === "/") await this.#expectSvc();
  }

  /** @throws Error if the program under test cannot run inside: connections to its sockets would wait without end. */
  async #expectSvc(): Promise<void> {
    for (const file of [process.execPath, main])
      await this.run("test", "-e", file).catch((error: unknown) => {
        throw new Error(`the machine cannot run svc: it does not see ${file}`, { cause: error });
      });
  }

  /** Runs a command inside; resolves with its output. */
  async run(...argv: string[]): Promise<string> {
    // The host's temporary directory does not exist inside.
    const env = { ...process.env, TMPDIR: undefined };
    return (await run("nsenter", [...this.#enter(), ...argv], { env })).stdout;
  }

  async systemctl(...args: string[]): Promise<string> {
    return this.run("systemctl", ...args);
  }

  #enter(): string[] {
    return ["--target", String(this.#pid), "--all"];
  }

  /** Paths as root inside sees them. */
  path(inside: string): string {
    return `/proc/${this.#pid}/root${inside}`;
  }

  /** Makes every cgroup on the path to one inside, including that one, delegate {@link someController}. */
  async delegateTo(inside: string): Promise<void> {
    // The kernel allows this only for cgroups without processes, and the process that booted the machine is not needed
    // inside.
    const starter = (await readFile(join(this.#cgroup, "cgroup.procs"), "utf8")).trim();
    if (starter !== "") await writeFile(join(cgroupMount ?? "", "cgroup.procs"), starter);
    let path = cgroupMount ?? "";
    for (const name of [basename(this.#cgroup), ...inside.split("/"), ""]) {
      await writeFile(join(path, "cgroup.subtree_control"), `+${someController ?? ""}`);
      path = join(path, name);
    }
  }

  /** A proxy to the daemon inside with the credentials of a user. */
  async asUser(uid: number): Promise<UserConnection> {
    const dir = join(this.dir, "etc", `connection-${uid}`);
    await mkdir(dir);
    await chown(dir, uid, uid);
    const inside = `/etc/svc/${basename(dir)}/socket`;
    const identity = [`--reuid=${uid}`, `--regid=${uid}`, "--clear-groups"];
    const connection = [process.execPath, userSocket, inside, "/run/svc/svc.sock"];
    const child = spawn("nsenter", [...this.#enter(), "setpriv", ...identity, "--", ...connection], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    return userConnection(child, join(dir, "socket"), dir);
  }

  /** A client as root, over the socket of the daemon inside. */
  client<S extends DescService>(service: S): Client<S> {
    return createClient(service, socketTransport(this.path("/run/svc/svc.sock"), "connect"));
  }

  /** Shuts it down like its operator. */
  async powerOff(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    this.#child = undefined;
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = nextEvent(child, "exit", 3 * bootMs);
    // SIGRTMIN+4 starts poweroff.target (systemd(1)).
    await run("kill", ["-s", "RTMIN+4", String(this.#pid)]).catch(() => undefined);
    const timer = setTimeout(() => child.kill("SIGKILL"), 2 * bootMs);
    await exited;
    clearTimeout(timer);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.powerOff();
    await eventually(() => removeCgroups(this.#cgroup), 10_000).catch(() => undefined);
    await rm(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function removeCgroups(path: string): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await removeCgroups(join(path, entry.name));
  }
  await rmdir(path);
}

function findCgroupMount(): string | undefined {
  const mounts = readFileSync("/proc/mounts", "utf8").split("\n");
  return mounts.map((mount) => mount.split(" ")).find(([, , type]) => type === "cgroup2")?.[1];
}

function findObstacle(): string | undefined {
  if (process.getuid?.() !== 0) return "needs root";
  if (cgroupMount === undefined) return "needs cgroup v2";
  for (const file of ["/lib/systemd/systemd", "/usr/bin/dbus-daemon", "/usr/bin/nsenter"]) {
    try {
      accessSync(file, constants.X_OK);
    } catch {
      return `needs ${file}`;
    }
  }
  try {
    accessSync(cgroupMount, constants.W_OK);
  } catch {
    return "needs a cgroup v2 that can be written";
  }
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  const capSysAdmin = 1n << 21n;
  return (BigInt(`0x${capabilities}`) & capSysAdmin) === 0n ? "needs CAP_SYS_ADMIN" : undefined;
}
