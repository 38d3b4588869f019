/** Where the control group of a user's builds is, and when a build is rejected because the group has no limit. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { release, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test from "ava";
import {
  createBuildCgroup,
  locateBuildGroup,
  type BuildCgroup,
  type EngineCgroups,
} from "../../src/runtimes/docker/build-cgroup.ts";

const uid = 1000;
const maxProcesses = 64;

/** As seen with Docker 20.10, systemd 252 and Linux 6.1. */
const locations = [
  ["systemd", "2", "svc-builds-1000.slice", "svc.slice/svc-builds.slice/svc-builds-1000.slice"],
  ["systemd", "1", "svc-builds-1000.slice", "pids/svc.slice/svc-builds.slice/svc-builds-1000.slice"],
  ["cgroupfs", "2", "/svc-builds/1000", "svc-builds/1000"],
  ["cgroupfs", "1", "/svc-builds/1000", "pids/svc-builds/1000"],
] as const;

for (const [driver, version, parent, directory] of locations) {
  test(`with cgroup v${version} and the driver ${driver}, the builds of a user run in ${directory}`, (t) => {
    const location = locateBuildGroup({ CgroupDriver: driver, CgroupVersion: version }, uid);
    t.is(location.parent, parent);
    t.is(join(location.root, location.path), directory);
  });
}

interface Host extends AsyncDisposable {
  readonly dir: string;
  create(info: EngineCgroups, limitSlice?: () => Promise<void>): Promise<BuildCgroup>;
}

/** Plain files in place of control groups: the kernel's own are tested in an emulated machine. */
async function plainHost(): Promise<Host> {
  const dir = await mkdtemp(join(tmpdir(), "svc-cgroups-"));
  return {
    dir,
    create: (info, limitSlice = () => Promise.reject(new Error("this host has no systemd"))) =>
      createBuildCgroup({
        info: { KernelVersion: release(), ...info },
        ...{ uid, maxProcesses, limitSlice, cgroupDir: dir },
      }),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true }),
  };
}

const unifiedSystemd = { CgroupDriver: "systemd", CgroupVersion: "2" };
const unifiedPlain = { CgroupDriver: "cgroupfs", CgroupVersion: "2" };
const sliceLimit = "svc.slice/svc-builds.slice/svc-builds-1000.slice/pids.max";

async function writeLimit(file: string, limit: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, `${limit}\n`);
}

test("every group above the builds delegates the pids controller", async (t) => {
  await using host = await plainHost();
  const { parent } = await host.create(unifiedPlain);
  t.is(parent, "/svc-builds/1000");
  for (const group of ["", "svc-builds"])
    t.is(await readFile(join(host.dir, group, "cgroup.subtree_control"), "utf8"), "+pids");
  t.is(await readFile(join(host.dir, "svc-builds/1000/pids.max"), "utf8"), String(maxProcesses));
});

test("a user cannot build if systemd does not apply the limit", async (t) => {
  await using host = await plainHost();
  const error = await t.throwsAsync(
    host.create(unifiedSystemd, () => writeLimit(join(host.dir, sliceLimit), "max")),
  );
  t.like(error, { reason: "not_possible" });
  t.regex(error.message, /pids\.max is max/);
});

test("a user cannot build with an engine that runs without root, whose groups are elsewhere", async (t) => {
  await using host = await plainHost();
  const rootless = { ...unifiedPlain, SecurityOptions: ["name=seccomp,profile=default", "name=rootless"] };
  const error = await t.throwsAsync(host.create(rootless));
  t.like(error, { reason: "not_possible" });
  t.regex(error.message, /runs without root/);
});

test("the running builds of a user are found by the names that either driver gives their groups", async (t) => {
  await using host = await plainHost();
  const [plain, scope] = ["a".repeat(64), "b".repeat(64)];
  const group = await host.create(unifiedPlain);
  for (const name of [plain, `docker-${scope}.scope`, "other"])
    await mkdir(join(host.dir, "svc-builds/1000", name));
  t.deepEqual((await group.containerIds()).toSorted(), [plain, scope]);
});
