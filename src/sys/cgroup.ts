/**
 * Control groups, version 2 (kernel document `admin-guide/cgroup-v2`). Only cgroups can limit the memory of a whole app
 * and kill all its processes at once. Used if the daemon has a delegated subtree, as systemd gives it with
 * `Delegate=yes`.
 *
 * The daemon's cgroup contains `apps/<id>` with two children: `supervisor` and `app`. A limit on `app` affects only the
 * app. The owner may move processes between the two and freeze the app, but cannot change the limits.
 */
import { existsSync } from "node:fs";
import { access, chown, constants, mkdir, readFile, rmdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { SvcError } from "../errors.ts";

/** Limits of an app. */
export interface LimitSpec {
  /** Enforced only by the cgroup: RLIMIT_AS breaks programs that reserve address space, such as Node. */
  memoryBytes?: number;
  /** CPU limit in cores, such as 1.5. Enforced only by the cgroup. */
  cpus?: number;
  /** Maximum open descriptors of each process. */
  openFiles?: number;
}

const cpuPeriodUs = 100_000;
/** Attempts to remove a cgroup, and those before its processes are killed: a supervisor that exits leaves by itself. */
const removeAttempts = 250;
const politeAttempts = 10;
const removeRetryMs = 20;
const cgroupControllers = ["cpu", "memory", "pids"] as const;
type Controller = (typeof cgroupControllers)[number];

export interface CgroupOptions {
  /** The delegated subtree, absolute. */
  root: string;
  /** Controllers that can be used in it. */
  controllers: ReadonlySet<Controller>;
}

/** The daemon's delegated subtree. */
export class Cgroups {
  readonly #root: string;
  readonly #controllers: ReadonlySet<Controller>;

  constructor({ root, controllers }: CgroupOptions) {
    this.#root = root;
    this.#controllers = controllers;
  }

  /**
   * Finds the delegated subtree and prepares it: the daemon moves into a child cgroup, because only a cgroup without
   * processes can enable controllers for its children.
   * @returns undefined for cgroup v1, the root cgroup, a cgroup that is not writable, or one shared with other
   *   processes
   */
  static async detect({ procDir = "/proc" } = {}): Promise<Cgroups | undefined> {
    try {
      const mounts = (await readFile(`${procDir}/self/mountinfo`, "utf8")).split("\n");
      const mountPoint = mounts.find((mount) => mount.includes(" - cgroup2 "))?.split(" ")[4];
      const own = /^0::(\/.+)$/m.exec(await readFile(`${procDir}/self/cgroup`, "utf8"))?.[1];
      if (mountPoint === undefined || own === undefined) return undefined;
      const root = join(mountPoint, own.replace(/\/daemon$/, ""));
      for (const path of [root, `${root}/cgroup.procs`, `${root}/cgroup.subtree_control`]) {
        await access(path, constants.W_OK);
      }
      await mkdir(`${root}/daemon`, { recursive: true });
      await writeFile(`${root}/daemon/cgroup.procs`, String(process.pid));
      return new Cgroups({ root, controllers: await handOn(root) });
    } catch {
      return undefined;
    }
  }

  /** Which limits are enforced here; `openFiles` always is. */
  get enforces(): { memory: boolean; cpus: boolean } {
    return { memory: this.#controllers.has("memory"), cpus: this.#controllers.has("cpu") };
  }

  /**
   * Creates the cgroup of an app that does not run, and sets its limits.
   * @returns its path, for the supervisor's `spec.json`
   * @throws SvcError `unavailable` if processes of an earlier run are left in it
   */
  async create(appId: string, owner: { uid: number; gid: number }, limits: LimitSpec): Promise<string> {
    await this.end(appId);
    return this.#prepare(appId, owner, limits);
  }

  async #prepare(appId: string, owner: { uid: number; gid: number }, limits: LimitSpec): Promise<string> {
    const path = this.pathOf(appId);
    await mkdir(path, { recursive: true });
    await handOn(`${this.#root}/apps`);
    await handOn(path);
    for (const child of ["supervisor", "app"]) {
      await mkdir(`${path}/${child}`, { recursive: true });
      await chown(`${path}/${child}/cgroup.procs`, owner.uid, owner.gid);
    }
    // Lets the supervisor freeze the app. Kernels before 5.2 do not support it.
    await chown(`${path}/app/cgroup.freeze`, owner.uid, owner.gid).catch(() => undefined);
    // Moving a process between the children requires write access to this file.
    await chown(`${path}/cgroup.procs`, owner.uid, owner.gid);
    const { memoryBytes, cpus } = limits;
    if (this.#controllers.has("memory")) {
      await writeFile(`${path}/app/memory.max`, memoryBytes === undefined ? "max" : String(memoryBytes));
      // Kill the whole app when it is out of memory, not half of it; the supervisor then restarts it.
      await writeFile(`${path}/app/memory.oom.group`, "1");
    }
    if (this.#controllers.has("cpu")) {
      const quota = cpus === undefined ? "max" : String(Math.max(1000, Math.round(cpus * cpuPeriodUs)));
      await writeFile(`${path}/app/cpu.max`, `${quota} ${cpuPeriodUs}`);
    }
    return path;
  }

  /**
   * Sets the limits of an app that an earlier daemon started. If systemd does not support subgroups, the limits are
   * lost when a daemon exits (see `ExecStopPost=` of the unit), and memory that the app already uses is not counted.
   */
  async renew(appId: string, owner: { uid: number; gid: number }, limits: LimitSpec): Promise<void> {
    if (existsSync(this.pathOf(appId))) await this.#prepare(appId, owner, limits);
  }

  /**
   * Moves a supervisor into its cgroup, from which it moves the app into the other one.
   *
   * The owner's helper reports the PID, so it is checked: otherwise its user could move, limit and kill another user's
   * process.
   * @throws SvcError `not_possible` if the process does not belong to the owner
   */
  async enter(path: string, pid: number, ownerUid: number): Promise<void> {
    const uid = (await stat(`/proc/${pid}`).catch(() => undefined))?.uid;
    if (uid !== ownerUid) throw new SvcError("not_possible", `process ${pid} is not one of uid ${ownerUid}`);
    await writeFile(`${path}/supervisor/cgroup.procs`, String(pid));
  }

  /** Removes the cgroup of an app that has exited; a cgroup with processes stays. @returns whether it is gone */
  async remove(appId: string): Promise<boolean> {
    const path = this.pathOf(appId);
    for (const each of [`${path}/app`, `${path}/supervisor`, path]) await rmdir(each).catch(() => undefined);
    return !existsSync(path);
  }

  /**
   * Kills what is left in the cgroup of an app that has exited (Linux 5.14), and removes it. The owner can hide processes from a stop
   * in there. An app of another user that gets the ID later could then not be stopped, and these processes could freeze it.
   * @throws SvcError `unavailable` if the cgroup stays
   */
  async end(appId: string): Promise<void> {
    for (let attempt = 1; !(await this.remove(appId)); attempt++) {
      if (attempt === removeAttempts) {
        throw new SvcError(
          "unavailable",
          `processes of an earlier run of app "${appId}" do not end; as root, end those in ${this.pathOf(appId)}`,
        );
      }
      // Not created where the kernel does not have it.
      if (attempt > politeAttempts)
        await writeFile(`${this.pathOf(appId)}/cgroup.kill`, "1", { flag: "r+" }).catch(() => undefined);
      await sleep(removeRetryMs);
    }
  }

  pathOf(appId: string): string {
    return join(this.#root, "apps", appId);
  }
}

/** Enables the cgroup's own controllers for its children, and returns them. */
async function handOn(path: string): Promise<Set<Controller>> {
  const available = (await readFile(`${path}/cgroup.controllers`, "utf8")).split(/\s+/);
  const usable = cgroupControllers.filter((controller) => available.includes(controller));
  if (usable.length > 0) {
    await writeFile(`${path}/cgroup.subtree_control`, usable.map((name) => `+${name}`).join(" "));
  }
  return new Set(usable);
}
