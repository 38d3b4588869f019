/** Limits of containers and published ports of one user, over all of their apps. */
import { composeTest, needsCompose } from "./support/compose-test.ts";
import { failureOf, sharedFixture, startApp } from "./support/container-tests.ts";
import { DockerFixture } from "./support/docker-fixture.ts";
import { freePort } from "../support/packages.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { containerFacts } from "../../src/engine/container-record.ts";
import { UserContainers } from "../../src/runtimes/containers/user-containers.ts";
import type { ContainerClaims } from "../../src/runtimes/containers/container-policy.ts";
import { Readable } from "node:stream";
import test from "ava";
import { ownershipIn } from "../support/ownership.ts";

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
    message: /^app "b" cannot start: .* those of your apps would take 9437184 bytes there, more than 8388608/,
  });
  for (const uid of [2, 3, 4]) await reserve(uid, `of-${uid}`, 8 * mib);
  await t.throwsAsync(reserve(5, "c", 2 * mib), {
    message: /those of all users would take 34603008 bytes there, more than 33554432/,
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
    t.regex(error.message, /those of your apps would take \d+ bytes there, more than 8388608/);
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
