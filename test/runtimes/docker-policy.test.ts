/** The host access that a package may request from the engine: every spelling, checked in the engine's own options. */
import { join } from "node:path";
import test from "ava";
import { createClaims } from "../../src/runtimes/docker/create-claims.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { engineSocket, nobody, policyDirectory, type Permission } from "./support/policy-app.ts";
import { execFile } from "node:child_process";
import { stat } from "node:fs/promises";
import { promisify } from "node:util";
import { Fixture } from "./support/fixture.ts";

const rootTest = isRoot ? test : test.skip;
const place = await policyDirectory();
test.after.always(() => place[Symbol.asyncDispose]());

const owner = `${nobody}:${nobody}`;

const verdict = (options: object, ownerUid: number, permissions: Permission[] = []): Promise<string> =>
  place.verdict([createClaims(options, "svc-web-12345678")], ownerUid, permissions);

const host = (options: object): object => ({ User: owner, HostConfig: options });
const bind = (source: string, more: object = {}): object => ({
  Type: "bind",
  Source: source,
  Target: "/x",
  ...more,
});

const refused: [name: string, permission: Permission, options: object][] = [
  ["privileged", "privileged", host({ Privileged: true })],
  ["host network", "host_network", host({ NetworkMode: "host" })],
  ["another's network namespace", "host_network", host({ NetworkMode: "container:abc" })],
  ["a namespace by its path", "host_network", host({ NetworkMode: "ns:/proc/1/ns/net" })],
  ["another's network", "host_network", host({ NetworkMode: "other_default" })],
  ["another's network as endpoint", "host_network", { NetworkingConfig: { EndpointsConfig: { other: {} } } }],
  ["host pids", "host_pid", host({ PidMode: "host" })],
  ["another's pids", "host_pid", host({ PidMode: "container:abc" })],
  ["host ipc", "host_ipc", host({ IpcMode: "host" })],
  ["another's ipc", "host_ipc", host({ IpcMode: "container:abc" })],
  ["host name of the host", "privileged", host({ UTSMode: "host" })],
  ["no user namespace", "privileged", host({ UsernsMode: "host" })],
  ["control groups of the host", "privileged", host({ CgroupnsMode: "host" })],
  ["the old cgroup mode", "privileged", host({ Cgroup: "container:abc" })],
  ["a device", "devices", host({ Devices: [{ PathOnHost: "/dev/sda", PathInContainer: "/dev/sda" }] })],
  ["a device without a path", "devices", host({ Devices: [{}] })],
  ["a device request", "devices", host({ DeviceRequests: [{ Driver: "nvidia", Count: -1 }] })],
  ["a device rule", "devices", host({ DeviceCgroupRules: ["a *:* rwm"] })],
  ["a capability", "capabilities", host({ CapAdd: ["SYS_ADMIN"] })],
  ["all capabilities", "capabilities", host({ CapAdd: ["ALL"] })],
  ["a lower-case capability", "capabilities", host({ CapAdd: ["cap_net_admin"] })],
  ["a capability as text", "capabilities", host({ CapAdd: "ALL" })],
  ["no AppArmor", "privileged", host({ SecurityOpt: ["apparmor=unconfined"] })],
  ["no AppArmor, by a colon", "privileged", host({ SecurityOpt: ["apparmor:unconfined"] })],
  ["no seccomp", "privileged", host({ SecurityOpt: ["seccomp=unconfined"] })],
  [
    "its own seccomp profile",
    "privileged",
    host({ SecurityOpt: ['seccomp={"defaultAction":"SCMP_ACT_ALLOW"}'] }),
  ],
  ["no SELinux", "host_mounts", host({ SecurityOpt: ["label=disable"] })],
  ["an SELinux type", "privileged", host({ SecurityOpt: ["label:type:spc_t"] })],
  ["the kernel's paths", "privileged", host({ SecurityOpt: ["systempaths=unconfined"] })],
  ["new privileges", "privileged", host({ SecurityOpt: ["no-new-privileges=false"] })],
  ["no masked paths", "privileged", host({ MaskedPaths: [] })],
  ["no read-only paths", "privileged", host({ ReadonlyPaths: [] })],
  ["kernel parameters", "privileged", host({ Sysctls: { "kernel.shm_rmid_forced": "1" } })],
  ["another runtime", "privileged", host({ Runtime: "sysbox" })],
  ["another cgroup parent", "privileged", host({ CgroupParent: "/system.slice" })],
  ["a group of the image", "privileged", host({ GroupAdd: ["docker"] })],
  ["a group of the host", "groups", host({ GroupAdd: ["44"] })],
  ["a graphics processor", "gpu", host({ Devices: [{ PathOnHost: "/dev/dri/renderD128" }] })],
  ["a radio stick", "serial", host({ Devices: [{ PathOnHost: "/dev/ttyUSB0" }] })],
  ["a camera", "media", host({ Devices: [{ PathOnHost: "/dev/video0" }] })],
  ["a tunnel", "tun", host({ Devices: [{ PathOnHost: "/dev/net/tun" }] })],
  ["a disk beside the graphics", "devices", host({ Devices: [{ PathOnHost: "/dev/dri/../sda" }] })],
  ["the OOM killer off", "privileged", host({ OomKillDisable: true })],
  ["a better OOM score", "privileged", host({ OomScoreAdj: -1000 })],
  [
    "limits on devices of the host",
    "privileged",
    host({ BlkioDeviceReadBps: [{ Path: "/dev/sda", Rate: 1 }] }),
  ],
  ["storage options", "privileged", host({ StorageOpt: { size: "100G" } })],
  ["an unknown option", "privileged", host({ UseApiSocket: true })],
  ["an unknown option beside others", "privileged", { ...host({}), HostAccess: "all" }],
  ["a hardware address", "privileged", { ...host({}), MacAddress: "02:42:ac:11:00:02" }],
  ["a file that the engine writes", "privileged", host({ ContainerIDFile: "/etc/cron.d/x" })],
  ["the log of the host", "privileged", host({ LogConfig: { Type: "journald" } })],
  ["a link to another's container", "host_network", host({ Links: ["other:db"] })],
  ["another's volumes", "host_mounts", host({ VolumesFrom: ["other"] })],
  ["another's volume by name", "host_mounts", host({ Mounts: [{ Type: "volume", Source: "other_data" }] })],
  ["another's volume as a bind", "host_mounts", host({ Binds: ["other_data:/x"] })],
  ["a volume driver", "host_mounts", host({ VolumeDriver: "rexray" })],
  [
    "a volume that is a bind",
    "host_mounts",
    host({
      Mounts: [
        {
          Type: "volume",
          VolumeOptions: { DriverConfig: { Options: { type: "none", o: "bind", device: "/" } } },
        },
      ],
    }),
  ],
  ["a mount of an unknown type", "host_mounts", host({ Mounts: [{ Type: "cluster", Source: "x" }] })],
  ["a mount without a kind", "host_mounts", host({ Mounts: [{ Source: "/etc" }] })],
  ["/etc as a mount", "host_mounts", host({ Mounts: [bind("/etc")] })],
  ["/etc as a mount to read", "host_mounts", host({ Mounts: [bind("/etc", { ReadOnly: true })] })],
  ["/etc as a bind", "host_mounts", host({ Binds: ["/etc:/x:ro"] })],
  ["/etc behind the app's directory", "host_mounts", host({ Binds: [`${place.dir}/../../../etc:/x`] })],
  ["a relative source", "engine_socket", host({ Mounts: [bind("etc")] })],
  ["the directory above", "host_mounts", host({ Mounts: [bind(join(place.dir, ".."))] })],
  ["a directory with the same beginning", "host_mounts", host({ Mounts: [bind(`${place.dir}-evil`)] })],
  [
    "shared mounts",
    "host_mounts",
    host({ Mounts: [bind(place.dir, { BindOptions: { Propagation: "rshared" } })] }),
  ],
  ["slave mounts as a bind", "host_mounts", host({ Binds: [`${place.dir}:/x:rslave`] })],
  ["the engine's socket", "engine_socket", host({ Mounts: [bind("/var/run/docker.sock")] })],
  [
    "the engine's socket as a bind",
    "engine_socket",
    host({ Binds: ["/run/docker.sock:/var/run/docker.sock:ro"] }),
  ],
  ["the engine's socket with dots", "engine_socket", host({ Binds: ["/srv/x/..//engine/./docker.sock:/s"] })],
  ["this engine's socket", "engine_socket", host({ Mounts: [bind(engineSocket)] })],
  ["the directory of the engine's socket", "engine_socket", host({ Mounts: [bind("/srv/engine/")] })],
  ["containerd's socket", "engine_socket", host({ Mounts: [bind("/run/containerd")] })],
  ["everything", "engine_socket", host({ Binds: ["/:/host:ro"] })],
];

for (const [name, permission, options] of refused) {
  rootTest(`${name}: denied to others, for root with ${permission}${needsRoot}`, async (t) => {
    t.regex(await verdict(options, nobody), /which only root's own apps may/);
    t.regex(await verdict(options, 0), new RegExp(`add "${permission}" to the manifest's permissions`));
    t.is(await verdict(options, 0, [permission]), "allowed");
  });
}

rootTest(
  `text repeated in each list of containers is limited for others, not for root${needsRoot}`,
  async (t) => {
    const options = { Cmd: Array.from({ length: 20 }, () => "a".repeat(10_000)) };
    t.regex(
      await verdict(options, nobody),
      /^the container is \d+ bytes long.* which only root's own apps may/,
    );
    t.is(await verdict(options, 0), "allowed");
  },
);

const tooMuch: [name: string, options: object][] = [
  ["an unlimited log", host({ LogConfig: { Type: "json-file", Config: { "max-size": "500g" } } })],
  [
    "a log of many small files",
    host({ LogConfig: { Type: "json-file", Config: { "max-size": "4k", "max-file": "101" } } }),
  ],
  ["a log of tiny files", host({ LogConfig: { Type: "local", Config: { "max-size": "1" } } })],
  [
    "a buffer of its log",
    host({ LogConfig: { Type: "local", Config: { mode: "non-blocking", "max-buffer-size": "500m" } } }),
  ],
  ["labels in its log", host({ LogConfig: { Type: "json-file", Config: { labels: "svc.app" } } })],
  ["a real-time priority", host({ Ulimits: [{ Name: "rtprio", Soft: 99, Hard: 99 }] })],
  ["locked memory", host({ Ulimits: [{ Name: "memlock", Soft: -1, Hard: -1 }] })],
  ["open files", host({ Ulimits: [{ Name: "nofile", Soft: 1024, Hard: 2 ** 30 }] })],
  ["shared memory", host({ ShmSize: 2 ** 40 })],
  ["processes", host({ PidsLimit: -1 })],
  ["CPU shares", host({ CpuShares: 1_025 })],
  ["memory as a file system", host({ Tmpfs: { "/x": "size=64g" } })],
  ["unlimited memory", host({ Tmpfs: { "/x": "size=0" } })],
  ["memory as file systems", host({ Tmpfs: { "/x": "size=2g" }, Mounts: [{ Type: "tmpfs", Target: "/y" }] })],
  ["all ports of its image", host({ PublishAllPorts: true })],
  ["labels of SELinux", host({ Binds: [`${place.dir}/data:/x:Z`] })],
  ["health checks", { User: owner, Healthcheck: { Test: ["CMD", "true"], Interval: 1e8 } }],
  ["health checks at first", { User: owner, Healthcheck: { StartInterval: 1e8 } }],
  ["long health checks", { User: owner, Healthcheck: { Test: ["CMD", "a".repeat(4_096)] } }],
  ["slow health checks", { User: owner, Healthcheck: { Timeout: 4e12 } }],
];
for (const [name, options] of tooMuch) {
  rootTest(`too much of the host for others, not for root: ${name}${needsRoot}`, async (t) => {
    t.regex(await verdict(options, nobody), /which only root's own apps may/);
    t.is(await verdict(options, 0), "allowed");
  });
}

const links: [name: string, path: string][] = [
  ["a link out of the app's directory", "repo/etc"],
  ["a link that replaces a volume", "volumes/out"],
  ["a path behind a link", "repo/etc/cron.d"],
  ["a path behind a link that stays inside", "repo/behind/data"],
  ["a missing path", "repo/missing"],
];
for (const [name, path] of links) {
  rootTest(`${name} is mounted for nobody${needsRoot}`, async (t) => {
    for (const uid of [nobody, 0]) {
      const options = host({ Mounts: [bind(join(place.dir, path))] });
      t.regex(
        await verdict(options, uid, ["host_mounts", "engine_socket"]),
        /the mount source .* (?:does not exist|or a parent of it is a symlink);/,
      );
    }
  });
}

const allowed: [name: string, options: object][] = [
  ["nothing", host({})],
  [
    "its own directories",
    host({ Mounts: [bind(join(place.dir, "volumes/media")), bind(join(place.dir, "data"))] }),
  ],
  ["its own directory as a bind", host({ Binds: [`${place.dir}/data:/x:rw`] })],
  ["a file of its own", host({ Mounts: [bind(join(place.dir, "repo/app.conf"))] })],
  ["private mounts", host({ Mounts: [bind(place.dir, { BindOptions: { Propagation: "rprivate" } })] })],
  ["memory as a file system", host({ Mounts: [{ Type: "tmpfs", Target: "/x" }], Tmpfs: { "/run": "" } })],
  ["a volume without a name", host({ Mounts: [{ Type: "volume", Target: "/x" }] })],
  ["no new privileges", host({ SecurityOpt: ["no-new-privileges"] })],
  ["fewer capabilities", host({ CapDrop: ["ALL"] })],
  ["its own namespaces", host({ NetworkMode: "bridge", IpcMode: "private", CgroupnsMode: "private" })],
  ["limits", host({ Memory: 1e8, NanoCpus: 1e9, PidsLimit: 100, Ulimits: [] })],
  ["what is off", host({ Privileged: false, Devices: [], CapAdd: null, Runtime: "", Sysctls: {} })],
  ["a high port", host({ PortBindings: { "80/tcp": [{ HostPort: "8080" }] } })],
  ["any free port", host({ PortBindings: { "80/tcp": [{ HostPort: "" }] } })],
];
for (const [name, options] of allowed) {
  rootTest(`${name}: allowed for everybody${needsRoot}`, async (t) => {
    t.is(await verdict(options, nobody), "allowed");
    t.is(await verdict(options, 0), "allowed");
  });
}

for (const user of ["", "root", "0:0", "1", "node", `${nobody}`, `${nobody}:0`, `0${nobody}`]) {
  rootTest(`a user's container runs as its owner, not "${user}"${needsRoot}`, async (t) => {
    for (const more of [{}, { HostConfig: { Mounts: [bind(join(place.dir, "data"))] } }]) {
      const options = { User: user, ...more };
      t.regex(await verdict(options, nobody), /it must run as its owner/);
      t.is(await verdict(options, 0), "allowed");
    }
  });
}

rootTest(`a range of ports is checked at both ends${needsRoot}`, async (t) => {
  for (const HostPort of ["0-1023", "1023-9000", "8000-7000", "8000-65536", "x"]) {
    const options = host({ PortBindings: { "80/tcp": [{ HostPort }] } });
    t.regex(await verdict(options, nobody), /ports below 1024 are for root's own apps/);
  }
});

rootTest(`containers cannot use the daemon's port, including root's${needsRoot}`, async (t) => {
  for (const HostPort of ["8420", "8000-9000"])
    for (const HostIp of ["", "127.0.0.2", "::1"]) {
      const options = host({ PortBindings: { "80/tcp": [{ HostIp, HostPort }] } });
      for (const owner of [nobody, 0])
        t.regex(await verdict(options, owner), /port 8420 is reserved for svc/);
    }
});

rootTest(`ports below 1024 are only for root${needsRoot}`, async (t) => {
  const options = host({ PortBindings: { "80/tcp": [{ HostPort: "8080" }, { HostPort: "80" }] } });
  t.regex(await verdict(options, nobody), /publishes port 80/);
  t.is(await verdict(options, 0), "allowed");
});

const run = promisify(execFile);

for (const uid of [65534, 5]) {
  rootTest(`an app of uid ${uid} has its owner's groups and no privileges (root only)`, async (t) => {
    await using fixture = await Fixture.create();
    const app = await fixture.shell(
      "id -u; id -g; id -G; grep -E 'NoNewPrivs|Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status; echo done; exec sleep 1000",
      {},
      uid,
    );
    await fixture.runtime.start(app);
    const [userId, groupId, groups, ...status] = await fixture.outputUntil(app, "done");
    const { stdout } = await run("id", ["-G", String(uid)]);
    t.is(userId, String(uid));
    t.is(groups, stdout.trim());
    t.is(groupId, stdout.trim().split(" ")[0]);
    t.is(status.length, 6);
    for (const line of status) t.regex(line, /^(NoNewPrivs:\t1|Cap\w+:\t0+)$/);
    for (const name of ["", "state.json", "supervisor.sock", "logs", "spec.json"]) {
      const { uid: owner, mode } = await stat(join(app.runDir, name));
      t.is(owner, uid, name);
      t.is(mode & 0o077, 0, name);
    }
  });
}

test("an app gets a clean environment, descriptors 0 to 2, its directory, the usual umask and its own session", async (t) => {
  process.env["SVC_TEST_CANARY"] = "leaked";
  await using fixture = await Fixture.create();
  const app = await fixture.shell(
    "env; echo; ls /proc/self/fd; pwd; umask; ps -o sid= -p $$ | tr -d ' '; echo $$; echo done; exec sleep 1000",
    {
      env: { MINE: "yes" },
    },
  );
  await fixture.runtime.start(app);
  const output = await fixture.outputUntil(app, "done");
  delete process.env["SVC_TEST_CANARY"];
  const environment = output.slice(0, output.indexOf(""));
  const names = environment.map((line) => line.split("=")[0] ?? "");
  t.false(names.includes("SVC_TEST_CANARY"));
  t.deepEqual(names.filter((name) => !["PWD", "OLDPWD", "SHLVL", "_"].includes(name)).sort(), [
    "HOME",
    "LANG",
    "LOGNAME",
    "MINE",
    "PATH",
    "SHELL",
    "SVC_APP_DIR",
    "SVC_APP_ID",
    "SVC_DATA_DIR",
    "SVC_RUN_ID",
    "TMPDIR",
    "USER",
  ]);
  // `ls` has one more open: the directory that it lists.
  const [zero, one, two, three, directory, umask, session, pid] = output.slice(output.indexOf("") + 1);
  t.deepEqual([zero, one, two, three], ["0", "1", "2", "3"]);
  t.is(directory, join(app.directory, "repo"));
  t.is(umask, "0022");
  t.is(session, pid);
});
