/**
 * Attacks by a regular user's builds, which run as uid 0 in the engine: on resources without limits, and on the
 * network.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { errorOf, type SeenError } from "../support/errors.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";

const uid = 65_534;
const mib = 2 ** 20;
const engineNow = sharedEngine();
const labelled = {
  "svc.app": "victim",
  "svc.store": "0123",
  "com.docker.compose.project": "svc-victim",
  "com.docker.compose.service": "web",
};

if (whyNoDocker === undefined) {
  test.before(async () => {
    await engineNow().images.build("svc/base:1");
    await engineNow().images.build("svc/labelled:1", { labels: labelled });
  });
}

function startLimited(limits = "", docker = ""): Promise<TestDaemon> {
  return startDaemon({ config: `${engineNow().config}\n${docker}\n[limits]\n${limits}` });
}

async function build(
  daemon: TestDaemon,
  id: string,
  dockerfile: string,
  files: Readonly<Record<string, string>> = {},
): Promise<void> {
  const dir = join(daemon.dir, id);
  const manifest = `id: ${id}\nname: ${id}\nversion: "1"\nsummary: Sleeps.\ndocker: { build: {} }\n`;
  await writeFiles(dir, { "svc.yaml": manifest, Dockerfile: dockerfile, ...files });
  await using user = await daemon.as(uid);
  await user.client(AppService).installApp({ spec: dir });
}

function failureOf(...args: Parameters<typeof build>): Promise<SeenError> {
  return errorOf(build(...args));
}

/** The last lines that a failed build printed. */
function linesOf({ payload }: SeenError): readonly string[] {
  return payload.case === "commandFailed" ? payload.value.lastLines : [];
}

/** The running containers in the format of `GET /containers/<id>/json`. */
interface BuildContainer {
  readonly Config: { readonly Labels: Readonly<Record<string, string>> };
  readonly HostConfig: {
    readonly NetworkMode: string;
    readonly Memory: number;
    readonly MemorySwap: number;
    readonly CpuQuota: number;
  };
}

async function runningContainers(): Promise<BuildContainer[]> {
  const listed = (await engineNow().request("GET", "/containers/json")).expect(200) as { Id: string }[];
  const answers = listed.map(({ Id }) => engineNow().request("GET", `/containers/${Id}/json`));
  const all = await Promise.all(answers);
  return all.filter(({ status }) => status === 200).map((answer) => answer.expect(200) as BuildContainer);
}

/** Leftover images of steps, networks and containers of builds. */
async function leftovers(): Promise<string[]> {
  const engine = engineNow();
  const filters = encodeURIComponent(JSON.stringify({ dangling: ["true"] }));
  const images = (await engine.request("GET", `/images/json?filters=${filters}`)).expect(200);
  const networks = (await engine.request("GET", "/networks")).expect(200);
  const containers = (await engine.request("GET", "/containers/json?all=1")).expect(200);
  return [
    ...(images as { Id: string }[]).map(({ Id }) => Id),
    ...(networks as { Name: string }[]).map(({ Name }) => Name).filter((name) => name.includes("builds")),
    ...(containers as { Id: string }[]).map(({ Id }) => Id),
  ];
}

dockerTest(`a build cannot grow variables to gigabytes in the engine${needsDocker}`, async (t) => {
  await using daemon = await startLimited();
  const doubled = Array.from({ length: 40 }, () => "ENV A=$A$A").join("\n");
  const failure = await failureOf(daemon, "doubled", `FROM svc/base:1\nENV A=aaaaaaaaaaaaaaaa\n${doubled}\n`);
  t.is(failure.code, "PermissionDenied");
  t.regex(failure.message, /^up to line \d+ the Dockerfile is longer than 131072 bytes with its variables/);
  t.deepEqual(await leftovers(), []);
});

dockerTest(`the output of a build does not delay other users${needsDocker}`, async (t) => {
  await using daemon = await startLimited();
  const dockerfile = "FROM svc/base:1\nRUN yes | head -c 60000000; echo end; exit 3\n";
  const over = new AbortController();
  const building = failureOf(daemon, "flood", dockerfile).finally(() => over.abort());
  let longestMs = 0;
  while (!over.signal.aborted) {
    const startMs = performance.now();
    await daemon.client(AppService).listApps({});
    longestMs = Math.max(longestMs, performance.now() - startMs);
    await wait(50);
  }
  t.deepEqual(linesOf(await building).slice(-3, -1), ["y", "end"]);
  t.true(longestMs < 2_000, `${longestMs} ms`);
});

dockerTest(`a fork bomb in a build is stopped by its process limit${needsDocker}`, async (t) => {
  await using daemon = await startLimited("max_build_processes = 64");
  const bomb = "i=0; while [ $i -lt 300 ]; do sleep 60 & i=$((i+1)); done; wait";
  const error = await failureOf(daemon, "bomb", `FROM svc/base:1\nRUN ${bomb}\n`);
  t.regex(error.message, /cannot be built/);
  t.regex(JSON.stringify(linesOf(error)), /can't fork: Resource temporarily unavailable/);
  t.deepEqual(await leftovers(), []);
});

dockerTest(`a build is stopped by its memory limit, and has no swap${needsDocker}`, async (t) => {
  await using daemon = await startLimited(`max_build_memory_bytes = ${64 * mib}`);
  const hog = "dd if=/dev/zero of=/dev/null bs=256M count=1";
  const { message } = await failureOf(daemon, "hog", `FROM svc/base:1\nRUN ${hog}\n`);
  t.regex(message, /returned a non-zero code: 137/);
});

const gigabyte = "dd if=/dev/zero bs=1M count=1000";
for (const [where, dockerfile] of [
  ["in its container", `FROM svc/base:1\nRUN ${gigabyte} of=/x; sleep 120\n`],
  ["in a volume", `FROM svc/base:1\nVOLUME /v\nRUN ${gigabyte} of=/v/x; sleep 120\n`],
  ["in many steps", `FROM svc/base:1\n${"RUN dd if=/dev/zero bs=1M count=30 of=/x\n".repeat(20)}`],
  ["in its last step", `FROM svc/base:1\nRUN dd if=/dev/zero bs=1M count=90 of=/x\n`],
] as const) {
  dockerTest(`a build that uses too much disk space ${where} is stopped${needsDocker}`, async (t) => {
    await using daemon = await startLimited(`max_build_bytes_per_user = ${64 * mib}`);
    const { message } = await failureOf(daemon, "large", dockerfile);
    t.regex(message, /the build was stopped: .* use \d+ bytes .* max_build_bytes_per_user \(67108864\)/);
    await eventually(async () => assert.deepEqual(await leftovers(), []), 30_000);
  });
}

dockerTest(`a build has its own network and its limits of CPU and memory${needsDocker}`, async (t) => {
  await using daemon = await startLimited("max_build_cpus = 1");
  const building = build(daemon, "slow", "FROM svc/labelled:1\nRUN sleep 8\n");
  const container = await eventually(async () => {
    const [first] = await runningContainers();
    if (first === undefined) throw new Error("nothing is built yet");
    return first;
  }, 30_000);
  t.regex(container.HostConfig.NetworkMode, /^svc-builds-65534-/);
  t.is(container.HostConfig.CpuQuota, 100_000);
  t.is(container.HostConfig.Memory, 2 ** 31);
  t.is(container.HostConfig.MemorySwap, 2 ** 31);
  for (const name of Object.keys(labelled)) t.is(container.Config.Labels[name], "", name);
  await building;
  t.deepEqual(await leftovers(), []);
});

dockerTest(`a build has no network if the configuration disables it${needsDocker}`, async (t) => {
  await using daemon = await startLimited("", 'users_build_network = "none"');
  const error = await failureOf(daemon, "alone", "FROM svc/base:1\nRUN ls /sys/class/net | xargs; exit 3\n");
  const lines = JSON.stringify(linesOf(error));
  t.regex(lines, /"lo"/, lines);
});

dockerTest(`a user has only one build at a time${needsDocker}`, async (t) => {
  await using daemon = await startLimited();
  const both = Promise.all([
    build(daemon, "first", "FROM svc/base:1\nRUN sleep 3; echo 1\n"),
    build(daemon, "second", "FROM svc/base:1\nRUN sleep 3; echo 2\n"),
  ]);
  const ended = new AbortController();
  both.finally(() => ended.abort()).catch(() => undefined);
  let most = 0;
  while (!ended.signal.aborted) most = Math.max(most, (await runningContainers()).length);
  await both;
  t.is(most, 1);
});

dockerTest(
  `no form of ADD downloads from addresses that only this host can reach${needsDocker}`,
  async (t) => {
    let requests = 0;
    const server = createServer((_request, response) => {
      requests++;
      response.end("secret");
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.teardown(() => server.close());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/x`;
    await engineNow().images.build("svc/trigger:1", { triggers: [`ADD ${url} /x`] });
    await using daemon = await startLimited();
    for (const [at, dockerfile] of [
      `FROM svc/base:1\nADD ${url} /x\n`,
      `FROM svc/base:1\nADD ["${url}", "/x"]\n`,
      `FROM svc/base:1\nARG U=${url}\nADD $U /x\n`,
      `FROM svc/base:1\nENV U=${url}\nADD \${U} /x\n`,
      `FROM svc/base:1\nARG P=http\nADD \${P}${url.slice("http".length)} /x\n`,
      `FROM svc/base:1 AS one\nONBUILD ADD ${url} /x\nFROM one\n`,
      "FROM svc/trigger:1\nRUN true\n",
    ].entries()) {
      const { code } = await failureOf(daemon, `add-${at}`, dockerfile);
      t.true(["PermissionDenied", "FailedPrecondition"].includes(code), dockerfile);
    }
    t.is(requests, 0);
    await t.notThrowsAsync(
      build(daemon, "plain", "FROM svc/base:1\nADD file /x\nRUN cat /x\n", { file: "text" }),
    );
  },
);

dockerTest(`a build cannot set labels that identify apps${needsDocker}`, async (t) => {
  await using daemon = await startLimited();
  for (const line of ["LABEL svc.app=victim", "ARG N=svc\nLABEL $N.app=victim"]) {
    const { code } = await failureOf(daemon, "liar", `FROM svc/base:1\n${line}\n`);
    t.is(code, "PermissionDenied", line);
  }
});
