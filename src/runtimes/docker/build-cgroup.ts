/**
 * The control group that limits the processes of one user's builds. The engine's build API has limits for memory and CPU but none
 * for processes: build containers are put into a parent group that svc creates (kernel document `admin-guide/cgroup-v1/pids`).
 */
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { release } from "node:os";
import { join } from "node:path";
import { SvcError } from "../../errors.ts";

/** The parts of the engine's `GET /info` that svc uses. */
export interface EngineCgroups {
  readonly CgroupDriver?: string;
  readonly CgroupVersion?: string;
  readonly KernelVersion?: string;
  readonly SecurityOptions?: readonly string[] | null;
}

export interface BuildCgroup {
  /** Value of `cgroupparent` for the engine. */
  readonly parent: string;
  /** IDs of the running build containers. */
  containerIds(): Promise<string[]>;
}

export interface BuildCgroupOptions {
  info: EngineCgroups;
  uid: number;
  maxProcesses: number;
  /** Creates the slice for engines that leave control groups to systemd. */
  limitSlice: (slice: string, properties: readonly string[]) => Promise<void>;
  /** Mount point of the control groups. Default: `/sys/fs/cgroup`. */
  cgroupDir?: string;
}

/** @throws SvcError `not_possible` if this host cannot limit the processes of builds */
export async function createBuildCgroup(options: BuildCgroupOptions): Promise<BuildCgroup> {
  const { info, uid, maxProcesses, limitSlice, cgroupDir = "/sys/fs/cgroup" } = options;
  try {
    if (info.KernelVersion !== release()) throw new Error("the container engine runs on another host");
    if (info.SecurityOptions?.some((option) => /^name=rootless\b/.test(option)) === true)
      throw new Error("the container engine runs without root");
    const { parent, root, path } = locateBuildGroup(info, uid);
    if (info.CgroupDriver === "systemd") await limitSlice(parent, [`TasksMax=${maxProcesses}`]);
    else await createGroup(join(cgroupDir, root), path, info.CgroupVersion === "2", maxProcesses);
    const directory = join(cgroupDir, root, path);
    const limit = (await readFile(join(directory, "pids.max"), "utf8")).trim();
    if (limit !== String(maxProcesses)) throw new Error(`${join(directory, "pids.max")} is ${limit}`);
    return { parent, containerIds: () => containersIn(directory) };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new SvcError(
      "not_possible",
      `regular users cannot build images on this host: svc cannot limit the processes of a build: ${why}; use a published image instead`,
      { cause: error },
    );
  }
}

export interface BuildGroupLocation {
  /** As the engine names the group. */
  readonly parent: string;
  /** Path in the hierarchy that has the `pids` controller, relative to the mount point. */
  readonly root: string;
  /** Path of the group below `root`. */
  readonly path: string;
}

/** Location of the group of a user's builds, depending on the version of control groups and the engine's driver. */
export function locateBuildGroup(info: EngineCgroups, uid: number): BuildGroupLocation {
  const root = info.CgroupVersion === "2" ? "" : "pids";
  if (info.CgroupDriver !== "systemd")
    return { parent: `/svc-builds/${uid}`, root, path: `svc-builds/${uid}` };
  const parent = `svc-builds-${uid}.slice`;
  return { parent, root, path: slicePath(parent) };
}

/** The dashes in a slice's name give its parents: `a-b.slice` is `a.slice/a-b.slice` (systemd.slice(5)). */
function slicePath(slice: string): string {
  const names = slice.slice(0, -".slice".length).split("-");
  return names.map((_, index) => `${names.slice(0, index + 1).join("-")}.slice`).join("/");
}

async function createGroup(
  root: string,
  path: string,
  isUnified: boolean,
  maxProcesses: number,
): Promise<void> {
  await mkdir(join(root, path), { recursive: true });
  // In version 2, a group has only the controllers that every parent enables.
  const names = isUnified ? path.split("/") : [];
  for (const index of names.keys())
    await writeFile(join(root, ...names.slice(0, index), "cgroup.subtree_control"), "+pids");
  await writeFile(join(root, path, "pids.max"), String(maxProcesses));
}

async function containersIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true });
  return entries.flatMap((entry) => (entry.isDirectory() && /[0-9a-f]{64}/.exec(entry.name)) || []);
}
