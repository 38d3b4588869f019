/** A process runtime over a temporary store, and apps made of small commands. */
import { randomUUID } from "node:crypto";
import { chmod, mkdir, mkdtemp, readFile, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createUserHelpers, type UserHelpers } from "../../../src/run-as/user-helpers.ts";
import { systemDirs } from "../../../src/run-as/launch.ts";
import { readBootId } from "../../../src/sys/process-identity.ts";
import { noLog } from "../../../src/lib/log.ts";
import type { Manifest } from "../../../src/packages/manifest/manifest.ts";
import { ProcessRuntime, type ProcessRuntimeOptions } from "../../../src/runtimes/process/process-runtime.ts";
import type { RunnableApp } from "../../../src/runtimes/runnable-app.ts";
import { loadPeerUid } from "../../../src/server/http/peer-uid.ts";
import { programs } from "../../support/programs.ts";

export const isRoot = process.getuid?.() === 0;
/** The owner of apps: another user if that is possible. */
export const appUid = isRoot ? 65534 : (process.getuid?.() ?? 0);

const peerUid = loadPeerUid();

export type ManifestOverrides = Partial<
  Pick<Manifest, "stop" | "restart" | "limits" | "health" | "ports" | "console">
> & {
  env?: Record<string, string>;
};

export class Fixture implements AsyncDisposable {
  readonly store: string;
  readonly userHelpers: UserHelpers;
  readonly runtime: ProcessRuntime;
  readonly warnings: string[] = [];
  readonly #apps: RunnableApp[] = [];
  readonly #ownsIdentities: boolean;

  private constructor(store: string, bootId: string, overrides: Partial<ProcessRuntimeOptions>) {
    this.store = store;
    this.#ownsIdentities = overrides.userHelpers === undefined;
    this.userHelpers = overrides.userHelpers ?? createUserHelpers({ helperPath: programs.userHelper });
    this.runtime = new ProcessRuntime({ ...runtimeOptions(this.userHelpers, bootId), ...overrides });
  }

  /** @param overrides The caller disposes `userHelpers` that it passes. */
  static async create(overrides: Partial<ProcessRuntimeOptions> & { store?: string } = {}): Promise<Fixture> {
    const { store = await mkdtemp(join(tmpdir(), "svc-runtime-")), ...options } = overrides;
    await chmod(store, 0o755);
    for (const name of ["run", "apps"]) await mkdir(join(store, name), { recursive: true, mode: 0o755 });
    return new Fixture(store, await readBootId(), options);
  }

  /** An app with its directories. */
  async app(argv: readonly string[], overrides: ManifestOverrides = {}, uid = appUid): Promise<RunnableApp> {
    const id = `app-${randomUUID().slice(0, 8)}`;
    const app: RunnableApp = {
      id,
      name: id,
      ownerUid: uid,
      uid,
      directory: join(this.store, "apps", id),
      runDir: join(this.store, "run", id),
      version: "1.0.0",
      manifest: manifestOf(argv, overrides),
      settings: {},
      startedSettings: null,
    };
    await this.userHelpers.createOwnedDir(app.directory, uid);
    await (await this.userHelpers.as(uid)).makeDirs(app.directory, ["repo", "data"]);
    this.#apps.push(app);
    return app;
  }

  /** An app that is one shell script. */
  shell(script: string, overrides: ManifestOverrides = {}, uid = appUid): Promise<RunnableApp> {
    return this.app(["/bin/sh", "-c", script], overrides, uid);
  }

  /** The text of all log lines of a stream. */
  async output(app: RunnableApp, stream: "stdout" | "stderr" | "svc" = "stdout"): Promise<string[]> {
    const { lines } = await this.runtime.logs(app, { tail: 1000 });
    return lines.filter((line) => line.stream === stream).map(({ text }) => text);
  }

  /** The lines on stdout before the line `last`: a busy host delivers output late. */
  async outputUntil(app: RunnableApp, last: string): Promise<string[]> {
    const lines = await eventually(`the line "${last}"`, async () => {
      const output = await this.output(app);
      return output.at(-1) === last ? output : undefined;
    });
    return lines.slice(0, -1);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const app of this.#apps) await this.runtime.stop(app);
    await this.runtime[Symbol.asyncDispose]();
    if (this.#ownsIdentities) await this.userHelpers[Symbol.asyncDispose]();
    await rm(this.store, { recursive: true, force: true });
  }
}

export function runtimeOptions(userHelpers: UserHelpers, bootId: string): ProcessRuntimeOptions {
  return {
    userHelpers,
    peerUid,
    bootId,
    svcVersion: "0.0.0-test",
    nodePath: process.execPath,
    supervisorPath: programs.supervisor,
    settleMs: 200,
    searchPath: systemDirs.join(":"),
    log: noLog,
  };
}

export function manifestOf(
  argv: readonly string[],
  { env = {}, ...overrides }: ManifestOverrides = {},
): Manifest {
  return {
    id: "test",
    name: "test",
    version: "1.0.0",
    summary: "",
    homepage: "",
    runtime: { kind: "process", argv: [...argv], build: [], env, workingDir: "." },
    ports: [],
    volumes: [],
    stop: { signal: "SIGTERM", graceMs: 2000 },
    restart: { policy: "never", delayMs: 20, maxDelayMs: 100, maxAttempts: 3, resetAfterMs: 60_000 },
    limits: {},
    permissions: [],
    ...overrides,
  };
}

/** Polls until the condition is true; fails with a message if it is not. */
export async function eventually<T>(
  what: string,
  check: () => Promise<T | undefined> | T | undefined,
  timeoutMs = 10_000,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const result = await check();
    if (result !== undefined && result !== false) return result;
    if (Date.now() > deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await sleep(10);
  }
}

/** PIDs of living processes whose command line contains a text that only the test uses. */
export async function pidsRunning(marker: string): Promise<number[]> {
  const pids: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const command = await readFile(`/proc/${name}/cmdline`, "latin1").catch(() => "");
    if (command.split("\0").includes(marker)) pids.push(Number(name));
  }
  return pids;
}

/** A number of seconds for `sleep` that no other test uses. */
export function uniqueSleep(): string {
  return `${1000 + Math.floor(Math.random() * 1000)}.${Math.floor(Math.random() * 1e9)}`;
}
