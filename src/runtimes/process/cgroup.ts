/**
 * Control groups, version 2 (kernel document `admin-guide/cgroup-v2`): the only way to bound the memory of a whole
 * app and to end all of its processes at once. Used where the daemon was given a subtree of its own, as systemd does
 * with `Delegate=yes`.
 *
 * Below the daemon's own cgroup lies `apps/<id>` with two children: `supervisor` and `app`. A limit on `app` hits
 * the app alone. The owner may move processes between the two and freeze the app, and cannot touch the limits.
 */
import { existsSync } from "node:fs";
import { access, chown, constants, mkdir, readFile, rmdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";
import type { LimitSpec } from "./supervisor-types.ts";

const cpuPeriodUs = 100_000;
const cgroupControllers = ["cpu", "memory", "pids"] as const;
type Controller = (typeof cgroupControllers)[number];

export interface CgroupOptions {
  /** The subtree that is the daemon's own, absolute. */
  root: string;
  /** Controllers that can be used in it. */
  controllers: ReadonlySet<Controller>;
}

/** The daemon's own subtree. */
export class Cgroups {
  readonly #root: string;
  readonly #controllers: ReadonlySet<Controller>;

  constructor({ root, controllers }: CgroupOptions) {
    this.#root = root;
    this.#controllers = controllers;
  }

  /**
   * Finds the delegated subtree and makes it usable: the daemon moves into a child of its own, as controllers can be
   * handed on only by a cgroup without processes.
   * @returns undefined where there is none: cgroup v1, the root cgroup, not writable, or shared with other processes
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

  /** Which limits hold here; `openFiles` holds everywhere. */
  get enforces(): { memory: boolean; cpus: boolean } {
    return { memory: this.#controllers.has("memory"), cpus: this.#controllers.has("cpu") };
  }

  /**
   * Makes the cgroup of an app, or takes the one that is there, and sets its limits.
   * @returns its path, for the supervisor's `spec.json`
   */
  async create(appId: string, owner: { uid: number; gid: number }, limits: LimitSpec): Promise<string> {
    const path = this.pathOf(appId);
    await mkdir(path, { recursive: true });
    await handOn(`${this.#root}/apps`);
    await handOn(path);
    for (const child of ["supervisor", "app"]) {
      await mkdir(`${path}/${child}`, { recursive: true });
      await chown(`${path}/${child}/cgroup.procs`, owner.uid, owner.gid);
    }
    // The supervisor freezes what it may stop anyway. Kernels before 5.2 cannot.
    await chown(`${path}/app/cgroup.freeze`, owner.uid, owner.gid).catch(() => undefined);
    // Moving a process between the children takes the right to write here.
    await chown(`${path}/cgroup.procs`, owner.uid, owner.gid);
    const { memoryBytes, cpus } = limits;
    if (this.#controllers.has("memory")) {
      await writeFile(`${path}/app/memory.max`, memoryBytes === undefined ? "max" : String(memoryBytes));
      // The app is one thing: half of it killed is worse than all of it, which the supervisor starts again.
      await writeFile(`${path}/app/memory.oom.group`, "1");
    }
    if (this.#controllers.has("cpu")) {
      const quota = cpus === undefined ? "max" : String(Math.max(1000, Math.round(cpus * cpuPeriodUs)));
      await writeFile(`${path}/app/cpu.max`, `${quota} ${cpuPeriodUs}`);
    }
    return path;
  }

  /**
   * Sets the limits of an app that an earlier daemon started: where systemd knows of no subgroups, they go when a daemon ends
   * (`ExecStopPost=` of the unit says why), and memory that it had by then does not count any more.
   */
  async renew(appId: string, owner: { uid: number; gid: number }, limits: LimitSpec): Promise<void> {
    if (existsSync(this.pathOf(appId))) await this.create(appId, owner, limits);
  }

  /**
   * Moves a supervisor into its cgroup, from which it moves the app into the other.
   *
   * The pid is what the owner's helper says: another user's process in there would be theirs to move, limit and kill.
   * @throws SvcError `failed_precondition` when the process is not the owner's
   */
  async enter(path: string, pid: number, ownerUid: number): Promise<void> {
    const uid = (await stat(`/proc/${pid}`).catch(() => undefined))?.uid;
    if (uid !== ownerUid) throw new SvcError("not_possible", `process ${pid} is not one of uid ${ownerUid}`);
    await writeFile(`${path}/supervisor/cgroup.procs`, String(pid));
  }

  /** Removes the cgroup of an app that has ended; one that still has processes stays. */
  async remove(appId: string): Promise<void> {
    const path = this.pathOf(appId);
    for (const each of [`${path}/app`, `${path}/supervisor`, path]) await rmdir(each).catch(() => undefined);
  }

  pathOf(appId: string): string {
    return join(this.#root, "apps", appId);
  }
}

/** Lets the children of a cgroup use those controllers that it has itself, and says which these are. */
async function handOn(path: string): Promise<Set<Controller>> {
  const available = (await readFile(`${path}/cgroup.controllers`, "utf8")).split(/\s+/);
  const usable = cgroupControllers.filter((controller) => available.includes(controller));
  if (usable.length > 0) {
    await writeFile(`${path}/cgroup.subtree_control`, usable.map((name) => `+${name}`).join(" "));
  }
  return new Set(usable);
}
