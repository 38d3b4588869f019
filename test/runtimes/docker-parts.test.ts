/** Parts of the docker runtime, without an engine. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type AddressInfo } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import test from "ava";
import fc from "fast-check";
import type { ContainerRecord } from "../../src/engine/container-record.ts";
import { EngineRejection } from "../../src/engine/engine-errors.ts";
import type { DockerEngine } from "../../src/engine/engine.ts";
import { SvcError } from "../../src/errors.ts";
import { StepLines } from "../../src/runtimes/docker/buildkit/progress.ts";
import { configFailure, reasonOf } from "../../src/runtimes/compose/compose-failure.ts";
import { ComposeImages, type ComposeImagesOptions } from "../../src/runtimes/compose/compose-images.ts";
import {
  ContainerRuntime,
  type ContainerRuntimeOptions,
} from "../../src/runtimes/containers/container-runtime.ts";
import {
  initialMode,
  mayRestart,
  statusIn,
  transitions,
  type ContainerMode,
} from "../../src/runtimes/containers/container-mode.ts";
import { awaitedIn, statusOf } from "../../src/runtimes/containers/container-status.ts";
import { ObservedContainers } from "../../src/runtimes/containers/observed-containers.ts";
import { pullImage } from "../../src/runtimes/docker/image-pull.ts";
import { withTag } from "../../src/runtimes/docker/image-names.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { chooseEntries } from "../../src/packages/build-context/chosen-entries.ts";
import { readIgnorePatterns, type PatternMatches } from "../../src/packages/build-context/ignore-patterns.ts";
import { pinnedBy } from "../../src/runtimes/docker/image-freshness.ts";
import { portHealth } from "../../src/runtimes/port-health.ts";
import { PortProbe } from "../../src/runtimes/port-probe.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { isUpNow, stoppedStatus } from "../../src/runtimes/runtime-status.ts";
import { eventually } from "../support/eventually.ts";
import { ownershipIn } from "../support/ownership.ts";
import { programs } from "../support/programs.ts";
import { failureOf } from "./support/container-tests.ts";
import { policyDirectory } from "./support/policy-app.ts";

/** Whether a file is excluded, checked as a build does: directory by directory. */
function isIgnored(patterns: string, path: string): boolean {
  const reader = readIgnorePatterns(patterns);
  let matches: PatternMatches | undefined;
  const parts = path.split("/");
  for (let length = 1; length <= parts.length; length++) {
    matches = reader.match(parts.slice(0, length).join("/"), matches);
  }
  return matches?.isIgnored ?? false;
}

const ignores: [patterns: string, ignored: string[], kept: string[]][] = [
  ["", [], ["a", "a/b"]],
  ["# a comment\n\n  \n", [], ["a", "# a comment"]],
  ["node_modules", ["node_modules", "node_modules/a/b"], ["a/node_modules", "node_modules2"]],
  ["/dist/", ["dist", "dist/a"], ["a/dist"]],
  ["**/node_modules", ["node_modules", "a/node_modules", "a/b/node_modules/c"], ["a/node_module"]],
  ["*.tmp", ["a.tmp", ".tmp"], ["a/b.tmp", "a.tmp2"]],
  ["**/*.tmp", ["a.tmp", "a/b/c.tmp"], ["a/b.tm"]],
  ["a/**/z", ["a/z", "a/b/c/z", "a/b/z/y"], ["b/a/z", "az"]],
  ["*\n!keep", ["a", "a/b"], ["keep", "keep/a"]],
  ["a\n!a/b\na/b/c", ["a/x", "a/b/c"], ["a/b", "a/b/d"]],
  ["file?.[ab]", ["file1.a", "filex.b"], ["file.a", "file1.c", "file12.a"]],
  ["[^a]", ["b"], ["a"]],
  ["a/../b", ["b"], ["a/b"]],
  [String.raw`\*`, ["*"], ["a"]],
  ["a\r\nb\r\n", ["a", "b"], ["c"]],
];
for (const [patterns, ignored, kept] of ignores) {
  test(`.dockerignore ${JSON.stringify(patterns)}`, (t) => {
    for (const path of ignored) t.true(isIgnored(patterns, path), path);
    for (const path of kept) t.false(isIgnored(patterns, path), path);
  });
}

test("no pattern keeps the daemon busy", (t) => {
  const startedAtMs = performance.now();
  fc.assert(
    fc.property(
      fc.stringMatching(/^[*?a/[\]\\!-]{0,200}$/),
      fc.stringMatching(/^[a/]{1,200}$/),
      (pattern, path) => {
        isIgnored(pattern, path);
      },
    ),
    { numRuns: 200 },
  );
  isIgnored(`${"*a".repeat(400)}b`, "a".repeat(255));
  isIgnored(`${"**/a/".repeat(150)}b`, "a/".repeat(100));
  t.true(performance.now() - startedAtMs < 20_000);
});

const digest = `sha256:${"a".repeat(64)}`;
const pinned = ["1.2.3", "v1.2", "1.27-alpine", "2024.01.15", "20240115", "sha-1a2b3c4", "1a2b3c4d5e"];
const moving = ["latest", "stable", "alpine", "1", "16", "16-alpine", "v3", "main", "edge", "nightly"];
test("a tag with a complete version is pinned, and so is a digest", (t) => {
  for (const tag of pinned) t.truthy(pinnedBy(`registry.example:5000/a/b:${tag}`), tag);
  for (const tag of moving) t.is(pinnedBy(`registry.example:5000/a/b:${tag}`), undefined, tag);
  t.truthy(pinnedBy(`a/b@${digest}`));
});

test("an image without a tag is its latest", (t) => {
  t.is(withTag("nginx"), "nginx:latest");
  t.is(withTag("localhost:5000/a"), "localhost:5000/a:latest");
  for (const image of ["nginx:1", "localhost:5000/a:2", `a@${digest}`]) t.is(withTag(image), image);
  for (const image of ["-x", "a:b:c", "a/B", "a@sha256:1"]) t.throws(() => withTag(image));
});

test("a project is up while one of its services runs; a failed one shows in its health", (t) => {
  const service = (name: string, more: object) => ({
    ...({ id: name, composeService: name, state: "running", health: "none", exitCode: 0 } as const),
    ...{ wasOutOfMemory: false, error: "", startedAtMs: 1, finishedAtMs: 2 },
    ...more,
  });
  const context = {
    shouldRun: true,
    exitCodes: new Map(),
    probed: undefined,
    lastLines: new Map([["b", ["why"]]]),
    restarts: 0,
    endOf: () => undefined,
  };
  const state = (...parts: object[]) => {
    const all = parts.map((part, at) => service("abc"[at] ?? "", part));
    const { state: word, health, reason } = statusOf(all, context);
    return [word, health, reason];
  };
  const crashed = { state: "exited", exitCode: 3 };
  const done = { state: "exited" };
  t.deepEqual(state({}, {}), ["RUNNING", "none", ""]);
  t.deepEqual(state({ health: "healthy" }, {}), ["RUNNING", "healthy", ""]);
  t.deepEqual(state({ health: "healthy" }, { health: "starting" }), ["RUNNING", "starting", ""]);
  t.deepEqual(state({}, done), ["RUNNING", "none", ""]);
  t.deepEqual(state({ health: "healthy" }, crashed), [
    "RUNNING",
    "unhealthy",
    'service "b" exited with code 3',
  ]);
  t.deepEqual(state(crashed, done), ["CRASHED", "none", 'service "a" exited with code 3']);
  t.deepEqual(state(done, done), ["STOPPED", "none", 'service "a" exited with code 0']);
  t.deepEqual(state({ state: "exited", exitCode: 137, wasOutOfMemory: true }), [
    ...["CRASHED", "none", "the container ran out of memory (exit code 137)"],
  ]);
  const never = { state: "created" };
  t.deepEqual(state({}, never), ["RUNNING", "unhealthy", 'service "b" was never started']);
  t.deepEqual(state(done, never), ["CRASHED", "none", 'service "b" was never started']);
  const whole = statusOf([service("a", {}), service("b", done)], context);
  t.true(isUpNow(whole));
  for (const part of [crashed, never]) {
    t.false(isUpNow(statusOf([service("a", {}), service("b", part)], context)), "a start checks it");
  }
  const waiting = { ...context, restarts: 2, endOf: () => ({ restartAtMs: 9, why: "" }) };
  const endedReason = 'service "b" exited with code 3';
  t.like(statusOf([service("a", {}), service("b", crashed)], waiting), {
    ...{ state: "RUNNING", reason: `BACKOFF after 2 restarts: ${endedReason}` },
    ...{ nextRestartAtMs: 9, endedReason },
  });
  t.deepEqual(statusOf([], context).state, "CRASHED");
  t.deepEqual(statusOf([], { ...context, shouldRun: false }).state, "STOPPED");
});

const { start, launch, rejectStart, stop, finish, freeze, rest, reattach, find, observe } = transitions;
const { loseEngine, regainEngine } = transitions;
const running = rest(finish(launch(start(initialMode))));
const unreachable = new SvcError("unavailable", "the engine does not respond");
const shownIn = (mode: ContainerMode, isUp: boolean) => {
  const seen = { ...stoppedStatus, state: isUp ? ("RUNNING" as const) : ("STOPPED" as const) };
  const { state, isLost = false, isPartial = false } = statusIn(mode, seen, isUp, { reason: "" });
  return { state, isLost, isPartial, mayRestart: mayRestart(mode) };
};

for (const [title, mode, isUp, expected] of [
  ["runs after its start", running, true, { state: "RUNNING", mayRestart: true }],
  ["starts until its start has settled", launch(start(initialMode)), true, { state: "STARTING" }],
  ["is stopped after a rejected start", rest(rejectStart(launch(start(initialMode)))), false, {}],
  ["is stopped after its stop", rest(finish(stop(running, true))), false, {}],
  [
    "runs in part after an interrupted stop of one of several containers",
    ...[rest(stop(running, true)), true, { state: "RUNNING", isPartial: true }],
  ],
  [
    "runs after an interrupted stop of its only container",
    rest(stop(running, false)),
    true,
    { state: "RUNNING" },
  ],
  ["is unknown while the engine is away", loseEngine(running, unreachable), true, { state: "UNKNOWN" }],
  ["is stopped while the engine is away, if it should be", loseEngine(initialMode, unreachable), false, {}],
  ["is lost if the engine's end ended it", find(regainEngine(running), false), false, { isLost: true }],
  [
    "is not lost if it had ended by itself",
    find(regainEngine(running), false, true),
    false,
    { mayRestart: true },
  ],
  ["is lost if its start was interrupted", find(reattach(initialMode, true), true), true, { isLost: true }],
  [
    "is no longer lost when one of its containers runs",
    ...[observe(find(running, false), true), true, { state: "RUNNING", mayRestart: true }],
  ],
  [
    "stays lost after an interrupted start, even if one of its containers runs",
    ...[observe(find(reattach(initialMode, true), true), true), true, { isLost: true }],
  ],
  ["is not restarted while it is frozen", freeze(running), true, { state: "RUNNING" }],
  [
    "is restarted again after a start that follows an interrupted pause",
    ...[rest(finish(launch(start(freeze(running))))), true, { state: "RUNNING", mayRestart: true }],
  ],
] as const) {
  test(`an app of containers ${title}`, (t) => {
    const stopped = { state: "STOPPED", isLost: false, isPartial: false, mayRestart: false };
    t.deepEqual(shownIn(mode, isUp), { ...stopped, ...expected } as ReturnType<typeof shownIn>);
  });
}

test("a start has failed while one of the containers was never started, or has failed", (t) => {
  const seen = new ObservedContainers({} as ConstructorParameters<typeof ObservedContainers>[0]);
  const container = (id: string, state: string, more: object = {}) =>
    ({ id, state, exitCode: 0, error: "", ...more }) as ContainerRecord;
  const failed = (...more: ContainerRecord[]): string | undefined =>
    seen.failedOf([container("a", "running"), ...more])?.id;
  t.is(failed(container("b", "running")), undefined);
  t.is(failed(container("b", "exited")), undefined, "it has finished its work");
  t.is(failed(container("b", "created")), "b");
  t.is(failed(container("b", "exited", { exitCode: 3 })), "b");
  t.is(failed(container("b", "exited", { error: "no such file" })), "b");
  t.is(seen.failedOf([container("b", "exited")])?.id, "b", "nothing of it runs");
});

test("an exit counts for a start only if the container has started since then", (t) => {
  const seen = new ObservedContainers({} as ConstructorParameters<typeof ObservedContainers>[0]);
  const running = { id: "a", state: "running", exitCode: 0, error: "" } as ContainerRecord;
  seen.noteDeath("a", 3);
  seen.beginRun(["a"]);
  t.false(seen.noteDeath("a", 137), "its event arrives late");
  t.is(seen.failedOf([running]), undefined);
  seen.noteStart("a");
  t.true(seen.noteDeath("a", 1));
  t.is(seen.failedOf([running])?.exitCode, 1);
  t.true(seen.noteDeath("b", 2), "it was created since then");
});

test("an http health check requests the app's own port and path in any runtime", async (t) => {
  await using directory = await policyDirectory();
  const app = directory.app(0);
  const timing = { startPeriodMs: 1, intervalMs: 2, timeoutMs: 3, retries: 4 };
  const health = { probe: { kind: "http", port: "web", path: "/${id}/up" } as const, ...timing };
  const ports = [{ name: "web", protocol: "tcp" as const, default: 8080 }];
  const asked = portHealth({ ...app, manifest: { ...app.manifest, health, ports } });
  t.deepEqual(asked, { http: { port: 8080, path: "/web/up" }, ...timing });
  t.is(portHealth({ ...app, manifest: { ...app.manifest, health } }), undefined, "a port without a number");
  const exec = { probe: { kind: "exec" as const, argv: ["true"] }, ...timing };
  t.is(portHealth({ ...app, manifest: { ...app.manifest, health: exec, ports } }), undefined);
});

for (const [words, remedy] of [
  ["no basic auth credentials", "; check the name, or add a login with: svc credential add --kind registry"],
  ["manifest unknown", ""],
] as const) {
  test(`a failed pull says whether a login may help: ${words}`, async (t) => {
    const cause = new EngineRejection(500, words);
    const rejection = new SvcError("source_failed", "pull failed", { cause });
    const engine = { operate: () => Promise.reject(rejection) } as unknown as DockerEngine;
    const error = await t.throwsAsync(pullImage(engine, "registry.example/team/app:1", {}));
    t.is(error.message, `registry.example/team/app:1 cannot be pulled: ${words}${remedy}`);
  });
}

test("compose's failure is reported with the engine's error", (t) => {
  const engine = "driver failed: Bind for 0.0.0.0:80 failed: port is already allocated";
  const cases: [reason: string, ...lines: string[]][] = [
    [
      `Cannot start service web: ${engine}`,
      "Creating a_web_1 ... error",
      `ERROR: for a_web_1  Cannot start service web: ${engine}`,
      `ERROR: for web  Cannot start service web: ${engine}`,
      "ERROR: Encountered errors while bringing up the project.",
    ],
    [engine, "Container a-db-1  Started", `Error response from daemon: ${engine}`],
    ["dependency failed to start", "Container a  Error", "dependency failed to start"],
    [
      "app hook exited with status 1",
      "Container a-db-1  Error",
      "app hook exited with status 1",
      "Container b  Started",
    ],
    ["Container a-db-1  Error", "Container a-db-1  Error", "Container b  Started"],
    ["no such device", "no such device", "ERROR: Encountered errors while bringing up the project."],
    ["compose failed"],
  ];
  for (const [reason, ...lines] of cases) t.is(reasonOf(lines), reason);
});

test("a mistyped key of a compose file is reported with the key that it probably means, in the words of both composes", (t) => {
  const classic = "The Compose file './compose.yaml' is invalid because:\n";
  const hint =
    '\n\nYou might be seeing this error because you\'re using the wrong Compose file version. Either specify a supported version (e.g "2.2" or "3.3")';
  const comand = 'services.web has the unknown key "comand"; did you mean "command"?';
  const volums = 'the file has the unknown key "volums"; did you mean "volumes"?';
  const cases: [reason: string, output: string][] = [
    [comand, `${classic}Unsupported config option for services.web: 'comand'`],
    [comand, "validating /a/compose.yaml: services.web additional properties 'comand' not allowed"],
    [volums, `${classic}'volums' does not match any of the regexes: '^x-'${hint}`],
    [volums, "validating /a/compose.yaml:  additional properties 'volums' not allowed"],
    [
      "Unsupported config option for services.web: 'attach'; docker-compose 1.29 does not support it: check its spelling, leave it out, or install compose 2",
      `${classic}Unsupported config option for services.web: 'attach'`,
    ],
  ];
  for (const [reason, output] of cases) t.is(configFailure(output), reason, output);
});

test("volumes in use by a project's containers count toward its disk usage, beside those that it names now", async (t) => {
  const ownership = ownershipIn("store");
  const labels = ownership.labels("container", "web");
  const asked: string[][] = [];
  const images = new ComposeImages({
    ownership,
    state: { containers: () => Promise.resolve({ containers: [{ labels, imageId: "sha256:old" }] }) },
    projects: { lastDocument: () => Promise.resolve({ services: { one: { image: "svc/web:1" } } }) },
    images: { sizeOf: (names: string[]) => Promise.resolve(asked.push(names)) },
  } as unknown as ComposeImagesOptions);
  await images.disk({ id: "web" } as RunnableApp);
  t.deepEqual(asked, [["svc/web:1", "sha256:old"]]);
});

// An operation on an app's containers during which the engine stops fails with that reason, whatever the engine's last
// error is.

const app = { id: "web" } as RunnableApp;
const refusal = new SvcError("not_possible", "the container engine could not stop it: context canceled");

type Ending = Pick<ContainerRuntime, "stop" | "remove">;

/** A runtime that fails all operations, and whose engine changes as `happens` says. */
function refusing(happens: (events: { error?: SvcError; generation: number }) => void): Ending {
  const nothing = (): Disposable => ({ [Symbol.dispose]: () => undefined });
  const events = { generation: 1, listen: nothing };
  const refuse = (): Promise<never> => {
    happens(events);
    return Promise.reject(refusal);
  };
  class Refusing extends (ContainerRuntime as unknown as new (options: ContainerRuntimeOptions) => Ending) {
    end = refuse;
    clear = refuse;
  }
  return new Refusing({ events, state: { onChange: nothing } } as unknown as ContainerRuntimeOptions);
}

for (const what of ["stop", "remove"] as const) {
  test(`${what}: a failure is caused by the engine's exit if it stopped or was replaced in between`, async (t) => {
    const away = await failureOf(
      refusing((events) => (events.error = new SvcError("unavailable", "away")))[what](app),
    );
    t.is(away.code, "unavailable");
    t.regex(
      away.message,
      /^the container engine is not available, so app "web" could not be (stopped; try again when it is back|removed)$/,
    );
    t.is((await failureOf(refusing((events) => events.generation++)[what](app))).code, "unavailable");
    t.is(await failureOf(refusing(() => undefined)[what](app)), refusal);
  });
}

// Health checks that the daemon makes itself, for services and containers of all users.

test("a package cannot make the daemon probe without a pause", async (t) => {
  let asked = 0;
  const server = createServer((socket) => {
    asked++;
    socket.on("error", () => undefined).end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const spec = { tcp: { port }, intervalMs: 1, timeoutMs: 1_000, retries: 1, startPeriodMs: 0 };
  using probe = new PortProbe(spec, undefined, { onChange: () => undefined });
  await eventually(() => assert.equal(probe.health, "healthy"), 30_000);
  await wait(2_500);
  server.close();
  // Once per second; without a limit it would be thousands.
  t.true(asked <= 20, String(asked));
});

test("a lone surrogate in a path is requested as its replacement character, and does not stop the daemon", async (t) => {
  const asked: string[] = [];
  const server = createServer((socket) => {
    socket
      .on("error", () => undefined)
      .once("data", (head) => {
        asked.push(head.toString("latin1").split(" ", 2)[1] ?? "");
        socket.end("HTTP/1.1 200 OK\r\n\r\n");
      });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const http = { port, path: "/\ud800/ä" };
  const spec = { http, intervalMs: 1, timeoutMs: 10_000, retries: 1, startPeriodMs: 0 };
  using probe = new PortProbe(spec, undefined, { onChange: () => undefined });
  await eventually(() => assert.equal(probe.health, "healthy"), 30_000);
  server.close();
  t.is(asked[0], "/%EF%BF%BD/%C3%A4");
});

test("500 hostile patterns and 100,000 names exceed the time limit, and do not block the event loop", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread, timeoutMs: 1_000, waitMs: 120_000 });
  const ignoreText = Array.from({ length: 500 }, (_, at) => `**/*${"a?".repeat(200)}*a${at}*`).join("\n");
  const paths = Array.from({ length: 100_000 }, (_, at) => `${"a".repeat(240)}/${at}\0`).join("");
  let longestMs = 0;
  let lastMs = performance.now();
  const timer = setInterval(() => {
    longestMs = Math.max(longestMs, performance.now() - lastMs);
    lastMs = performance.now();
  }, 10);
  const answer = await thread.choose({ paths, ignoreText, withDirectories: true }, 1000);
  clearInterval(timer);
  t.deepEqual(answer, { problems: [{ line: 1, message: "reading it takes more than 1000 ms" }] });
  t.true(longestMs < 800, `${longestMs} ms`);
  const few = await thread.choose(
    { paths: "a\0b/\0b/c\0", ignoreText: "b\n!b/c", withDirectories: true },
    1000,
  );
  t.deepEqual(few, { numbers: Uint32Array.of(0, 1, 2) });
});

test("the entries of a context are sorted by name, with the contents of a directory right after it", (t) => {
  const names = ["z", "b/", "b/c", "b.a", "b/ignored", "e/"];
  const paths = names.map((name) => `${name}\0`).join("");
  const ignoreText = "**/ignored\ne";
  const chosenOf = (withDirectories: boolean): (string | undefined)[] =>
    [...chooseEntries({ paths, ignoreText, withDirectories })].map((number) => names[number]);
  t.deepEqual(chosenOf(true), ["b/", "b/c", "b.a", "z"]);
  t.deepEqual(chosenOf(false), ["z", "b/", "b/c", "b.a"]);
});

for (const [title, patterns] of [
  ["a long pattern", "*a".repeat(100_000)],
  ["unclosed classes", "[".repeat(200_000)],
] as const) {
  test(`an ignore file with ${title} does not block the daemon`, (t) => {
    const before = process.cpuUsage();
    t.throws(() => readIgnorePatterns(patterns).match("a".repeat(250)), { instanceOf: RangeError });
    const { user } = process.cpuUsage(before);
    t.true(user < 1_000_000, `${user} µs of CPU time`);
  });
}

test("characters divided between pieces of build output stay whole, even if steps run at the same time", (t) => {
  const texts: string[] = [];
  const lines = new StepLines((text) => texts.push(text));
  const bytes = Buffer.from("größe\n");
  for (const [source, data] of [
    ["a 1", bytes.subarray(0, 3)],
    ["b 1", bytes.subarray(0, 3)],
    ["a 1", bytes.subarray(3)],
    ["b 1", bytes.subarray(3)],
  ] as const) {
    lines.add({ vertexes: [], logs: [{ source, data }] });
  }
  t.deepEqual(texts, ["gr", "gr", "öße\n", "öße\n"]);
});

test("an app waits only for containers of services", (t) => {
  const created = (composeService?: string) => ({ state: "created", composeService }) as never;
  t.deepEqual(awaitedIn([created("worker"), created("web"), created("")]), {
    reason: 'the app has not started "worker", "web" yet',
  });
  t.deepEqual(awaitedIn([created()]), { reason: "" });
});
