/** Limits of one user's containers, published ports, images, volumes and builds. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { release, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Readable } from "node:stream";
import test from "ava";
import type Dockerode from "dockerode";
import { containerFacts } from "../../../src/engine/container-record.ts";
import type { ContainerClaims } from "../../../src/runtimes/containers/container-policy.ts";
import { UserContainers } from "../../../src/runtimes/containers/user-containers.ts";
import { UserObjects } from "../../../src/runtimes/containers/user-objects.ts";
import {
  type BuildCgroup,
  type EngineCgroups,
  createBuildCgroup,
  locateBuildGroup,
} from "../../../src/runtimes/docker/build-cgroup.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { ownershipIn } from "../../support/ownership.ts";
import { freePort } from "../../support/packages.ts";

// Limits of one user's containers, published ports, images and volumes.

// Limits of containers and published ports of one user, over all of their apps.

const fixtureNow = sharedFixture();
const manifest = "docker: { image: svc/shell:1 }\nstop: { grace: 1s }";
const project = (scale: number): Record<string, string> => ({
  "compose.yaml": `services: { web: { image: "svc/shell:1", scale: ${scale}, stop_grace_period: 0s } }\n`,
});

composeTest(`a user cannot have more containers than the limit over all apps${needsCompose}`, async (t) => {
  await using fixture = await DockerFixture.create(fixtureNow().engine, {
    limits: { maxContainersPerUser: 3 },
  });
  const { runtime, compose } = fixture;
  const one = await startApp(runtime, await fixture.app("one", manifest));
  const files = project(3);
  const many = await fixture.app("many", "compose: { file: compose.yaml }", { files });
  const error = await failureOf(startApp(compose, many));
  t.is(error.reason, "too_many");
  t.regex(
    error.message,
    /^app "many" cannot start: it needs 3 containers, your other apps have 1, and \[limits\] max_containers_per_user is 3; stop/,
  );
  const other = await startApp(
    compose,
    await fixture.app("theirs", "compose: { file: compose.yaml }", { files, uid: 5 }),
  );
  const roots = await startApp(
    compose,
    await fixture.app("roots", "compose: { file: compose.yaml }", { files: project(4), uid: 0 }),
  );
  await runtime.stop(one);
  await runtime.remove(one);
  await compose.start(many);
  // An app's own containers do not count twice.
  await compose.stop(many);
  await compose.start(many);
  t.is(compose.status("many")?.state, "RUNNING");
  for (const app of [many, other, roots]) {
    await compose.stop(app);
    await compose.remove(app);
  }
});

dockerTest(`a user cannot publish more ports than the limit over all apps${needsDocker}`, async (t) => {
  await using fixture = await DockerFixture.create(fixtureNow().engine, {
    limits: { maxPublishedPortsPerUser: 1 },
  });
  const { runtime } = fixture;
  const published = async (id: string) =>
    fixture.app(
      id,
      `${manifest}\nports: [{ name: http, default: ${await freePort()}, container_port: 8080 }]`,
    );
  const one = await startApp(runtime, await published("first"));
  const two = await published("second");
  const error = await failureOf(startApp(runtime, two));
  t.is(error.reason, "too_many");
  t.regex(
    error.message,
    /needs 1 published ports, your other apps have 1, and \[limits\] max_published_ports_per_user is 1/,
  );
  await runtime.stop(one);
  await runtime.start(two);
  for (const app of [one, two]) {
    await runtime.stop(app);
    await runtime.remove(app);
  }
});

test("tasks and ports on a swarm count once, whichever node they run on", async (t) => {
  const counted = new UserContainers({
    ...{ ownership: ownershipIn("test"), ownerOf: () => 1 },
    state: { containers: () => Promise.resolve({ containers: [] }) } as unknown as ConstructorParameters<
      typeof UserContainers
    >[0]["state"],
    swarmUsage: () => Promise.resolve(new Map([["web", { containers: 3, ports: 1, descriptionBytes: 0 }]])),
    limits: { maxContainersPerUser: 4, maxPublishedPortsPerUser: 2 },
  });
  const reserve = (id: string, containers: number, ports = 0) =>
    counted.reserve({ id, ownerUid: 1 }, [{ uses: { containers, ports, descriptionBytes: 0 } }]);
  await t.throwsAsync(reserve("other", 2), { message: /your other apps have 3, and \[limits\]/ });
  await t.throwsAsync(reserve("other", 1, 2), { message: /needs 2 published ports, your other apps have 1/ });
  (await reserve("other", 1, 1))[Symbol.dispose]();
  await t.notThrowsAsync(reserve("web", 4));
});

test("concurrent starts count each other", async (t) => {
  const counted = new UserContainers({
    ...{ ownership: ownershipIn("test"), ownerOf: () => 1 },
    state: { containers: () => Promise.resolve({ containers: [] }) } as unknown as ConstructorParameters<
      typeof UserContainers
    >[0]["state"],
    swarmUsage: () => Promise.resolve(new Map()),
    limits: { maxContainersPerUser: 10, maxPublishedPortsPerUser: 10 },
  });
  const uses = { containers: 4, ports: 0, descriptionBytes: 0 };
  const claims = [{ uses } as ContainerClaims];
  const starts = await Promise.allSettled(
    ["a", "b", "c"].map((id) => counted.reserve({ id, ownerUid: 1 }, claims)),
  );
  t.deepEqual(
    starts.map(({ status }) => status),
    ["fulfilled", "fulfilled", "rejected"],
  );
  for (const start of starts) if (start.status === "fulfilled") start.value[Symbol.dispose]();
  await t.notThrowsAsync(counted.reserve({ id: "c", ownerUid: 1 }, claims));
});

test("the containers of users leave space for those of root in the engine's list", async (t) => {
  const mib = 2 ** 20;
  const owners = new Map([["roots", 0]]);
  const counted = new UserContainers({
    ...{ ownership: ownershipIn("test"), ownerOf: (id) => owners.get(id) },
    state: { containers: () => Promise.resolve({ containers: [] }) } as unknown as ConstructorParameters<
      typeof UserContainers
    >[0]["state"],
    swarmUsage: () => Promise.resolve(new Map()),
    limits: { maxContainersPerUser: 10, maxPublishedPortsPerUser: 10 },
  });
  const reserve = (ownerUid: number, id: string, bytes: number) =>
    counted.reserve({ id, ownerUid }, [{ uses: { containers: 1, ports: 0, descriptionBytes: bytes } }]);
  await reserve(1, "a", 7 * mib);
  await t.throwsAsync(reserve(1, "b", 2 * mib), {
    message: /^app "b" cannot start: .* those of your apps would use 9437184 bytes there \(limit 8388608\)/,
  });
  for (const uid of [2, 3, 4]) await reserve(uid, `of-${uid}`, 8 * mib);
  await t.throwsAsync(reserve(5, "c", 2 * mib), {
    message: /those of all users would use 34603008 bytes there \(limit 33554432\)/,
  });
  await t.notThrowsAsync(reserve(0, "roots", 60 * mib));
});

dockerTest(
  `labels of images count for each container, with as many bytes as the engine lists${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { images } = fixture.engine;
    // 21 KiB as characters, and six times as many bytes in the engine's lists.
    await images.build("svc/wordy:1", { labels: { note: "\u2028".repeat(21 * 1024) } });
    const app = await fixture.app("wordy", "docker: { image: svc/wordy:1 }\nstop: { grace: 1s }");
    await startApp(fixture.runtime, app);
    const filters = encodeURIComponent(JSON.stringify({ label: ["svc.app=wordy"] }));
    const listed = await fixture.engine.request("GET", `/containers/json?filters=${filters}`);
    const [{ Id: id = "" } = {}] = listed.expect(200) as { Id?: string }[];
    const info = (await fixture.engine.request("GET", `/containers/${id}/json`)).expect(200);
    const { descriptionBytes } = containerFacts(info as Parameters<typeof containerFacts>[0]);
    t.true(listed.text.length > 6 * 21 * 1024, `${listed.text.length}`);
    t.true(descriptionBytes > 6 * 21 * 1024, `${descriptionBytes}`);
    await fixture.runtime.stop(app);
    await fixture.runtime.remove(app);
  },
);

composeTest(
  `a user cannot have more in the engine's list than fits beside others${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    await fixture.engine.images.build("svc/wordy:2", { labels: { note: "<".repeat(100_000) } });
    const files = {
      "compose.yaml": `services: { web: { image: "svc/wordy:2", scale: 15, stop_grace_period: 0s } }\n`,
    };
    const app = await fixture.app("wordy-project", "compose: { file: compose.yaml }", { files });
    const error = await failureOf(startApp(fixture.compose, app));
    t.is(error.reason, "too_many");
    t.regex(error.message, /those of your apps would use \d+ bytes there \(limit 8388608\)/);
    await fixture.compose.remove(app);
  },
);

composeTest(`volumes of earlier versions count against the limit of a user${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const { ownership } = fixture;
  const files = {
    "compose.yaml": `services: { web: { image: "svc/shell:1", stop_grace_period: 0s, volumes: ["new:/new"] } }\nvolumes: { new: {} }\n`,
  };
  const app = await fixture.app("keeps", "compose: { file: compose.yaml }", { files });
  for (let at = 0; at < 1_024; at++) {
    const body = { Name: `earlier-${at}`, Labels: ownership.labels("volume", "keeps") };
    (await fixture.engine.request("POST", "/volumes/create", body)).expect(201);
  }
  const error = await failureOf(startApp(fixture.compose, app));
  t.is(error.reason, "too_many");
  t.regex(error.message, /needs 1 new volumes, your apps have 1024, .* at most 1024/);
  const { volumes } = fixture.compose;
  for (const take of ["create", "stage"] as const) {
    const refused = await failureOf(volumes[take]("keeps", "of-an-archive", Readable.from([])));
    t.is(refused.reason, "too_many", take);
  }
  const original = await fixture.app("original", "compose: { file: compose.yaml }", { files });
  const labels = { ...ownership.labels("volume", "original"), "com.docker.compose.volume": "new" };
  const body = { Name: `${ownership.projectOf("original")}_new`, Driver: "local", Labels: labels };
  (await fixture.engine.request("DELETE", "/volumes/earlier-1")).expect(204);
  (await fixture.engine.request("POST", "/volumes/create", body)).expect(201);
  t.is((await failureOf(volumes.copy("original", "keeps", {}))).reason, "too_many", "a clone");
  await fixture.compose.remove(original);
  (await fixture.engine.request("DELETE", "/volumes/earlier-0")).expect(204);
  await fixture.compose.start(app);
  await fixture.compose.stop(app);
  await fixture.compose.remove(app);
});

// Limits on the images and volumes of users, as the engine lists them.

const uid = 1000;
const other = 1001;
const ownership = ownershipIn("test");
/** In the engine's list, every character has six bytes. */
const text = (kib: number): string => "\u2028".repeat((kib * 1024) / 6);

interface Listed {
  readonly id: string;
  readonly note?: string;
  /** The app that it was built or created for. */
  readonly appId?: string;
  readonly pulledFor?: readonly number[];
  readonly sizeBytes?: number;
}

function objectsOver(listed: readonly Listed[]): UserObjects {
  const labelsOf = (kind: "image" | "volume", { note = "", appId }: Listed) => ({
    ...{ note },
    ...(appId !== undefined && ownership.labels(kind, appId)),
  });
  const docker = {
    listImages: async () =>
      listed.map((each) => ({
        ...{
          Id: each.id,
          Size: each.sizeBytes ?? 0,
          RepoTags: [`svc.local/${each.id}:1`],
          Labels: labelsOf("image", each),
        },
      })),
    listVolumes: async () => ({
      Volumes: listed.map((each) => ({ Name: each.id, Labels: labelsOf("volume", each) })),
    }),
  };
  const owners = new Map([
    ["mine", uid],
    ["theirs", other],
    ["roots", 0],
  ]);
  return new UserObjects({
    engine: { call: (_what, work) => work(docker as unknown as Dockerode, new AbortController().signal) },
    ownership,
    ownerOf: (appId) => owners.get(appId),
    pulled: () => new Map(listed.map(({ id, pulledFor = [] }) => [id, pulledFor])),
    limits: { maxImageBytesPerUser: 1_000 },
  });
}

test("the sizes of a user's pulled images have a limit, which others' images and built ones do not use", async (t) => {
  const objects = objectsOver([
    { id: "pulled", pulledFor: [uid, other], sizeBytes: 600 },
    { id: "theirs", pulledFor: [other], sizeBytes: 900 },
    { id: "built", appId: "mine", sizeBytes: 900 },
  ]);
  await t.notThrowsAsync(objects.requireImageSpace(uid, "web:1", 400));
  const error = await t.throwsAsync(objects.requireImageSpace(uid, "web:1", 401), {
    message: /has 401 bytes, your apps' other pulled images have 600, and max_image_bytes_per_user is 1000/,
  });
  t.like(error, { reason: "too_many" });
  await t.notThrowsAsync(objects.requireImages(uid, "pulled", "web:1"), "an image counts once");
});

const many = (count: number, each: Omit<Listed, "id">): Listed[] =>
  Array.from({ length: count }, (_, at) => ({ ...each, id: `each-${at}` }));

for (const [what, listed, refused] of [
  [
    "256 images that were pulled",
    many(256, { pulledFor: [uid] }),
    /your apps have 256, .* at most 256 images/,
  ],
  ["256 images that were built", many(256, { appId: "mine" }), /your apps have 256, .* at most 256 images/],
  ["255 images", many(255, { pulledFor: [uid] }), undefined],
  ["images of others", [...many(300, { pulledFor: [other] }), ...many(300, { appId: "roots" })], undefined],
  [
    "images with long labels",
    many(33, { pulledFor: [uid], note: text(126) }),
    /list your images with \d+ bytes/,
  ],
  [
    "images of all users with long labels",
    many(130, { pulledFor: [other], note: text(126) }),
    /list all users' images with \d+ bytes, more than 16777216/,
  ],
  ["images of root with long labels", many(300, { note: text(126) }), undefined],
] as const) {
  test(`a user beside ${what} ${refused === undefined ? "gets" : "does not get"} another image`, async (t) => {
    const objects = objectsOver(listed);
    const required = objects.requireImages(uid, "new", "web:1");
    if (refused === undefined) return t.notThrowsAsync(required);
    const error = await t.throwsAsync(required, { message: refused });
    return t.like(error, { reason: "too_many" });
  });
}

test("an existing image counts once", async (t) => {
  await t.notThrowsAsync(objectsOver(many(256, { pulledFor: [uid] })).requireImages(uid, "each-1", "web:1"));
});

for (const [what, listed, missing, refused] of [
  ["its own long labels", [], Array.from({ length: 20 }, () => ({ note: text(126) })), /list your volumes/],
  ["long labels of earlier ones", many(17, { appId: "mine", note: text(126) }), [{}], /list your volumes/],
  ["long labels of others", many(70, { appId: "theirs", note: text(126) }), [{}], /list all users' volumes/],
  ["long labels of root's", many(70, { appId: "roots", note: text(126) }), [{}], undefined],
] as const) {
  test(`volumes with ${what} are ${refused === undefined ? "created" : "rejected"}`, async (t) => {
    const required = objectsOver(listed).requireVolumes("mine", missing);
    if (refused === undefined) return t.notThrowsAsync(required);
    return t.like(await t.throwsAsync(required, { message: refused }), { reason: "too_many" });
  });
}

// Where the control group of a user's builds is, and when a build is rejected because the group has no limit.

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
