/**
 * `svc __compile`: what the first stage is for, against a daemon that says the same to everybody, and the start of a daemon that
 * has nothing to do. V8 has compiled it all afterwards, and the bundle keeps that beside itself (`build/bundle.ts`).
 */
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, get, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { CliHost, OutputStream } from "./host.ts";
import type { RunDaemon } from "./run-command.ts";

const lines = [
  ["ls"],
  ["ls", "--json"],
  ["status"],
  ["app", "info", "a"],
  ["start", "a"],
  ["restart", "a"],
  ["stop", "a"],
  ["--help"],
  ["__complete", "sch"],
  ["__complete", "start", ""],
] as const;

const app = {
  ...{ id: "a", name: "A", state: "RUNNING", state_reason: "", version: "1.0.0", runtime: "process" },
  ...{ owner: 0, owner_name: "root", restarts: 1, health: "healthy", started_at: "2026-01-01T00:00:00Z" },
  ...{ ports: [{ name: "http", port: 8080, protocol: "tcp" }], backups: {}, package_id: "a", enabled: true },
  ...{ directory: "/a", settings: {}, origin: {}, limits: [], volumes: [], permissions: [], tasks: [] },
};
const answer = JSON.stringify({
  ...{ ...app, apps: [app, { ...app, id: "b" }], next_page_token: "", mode: "system", hostname: "a" },
  ...{ capabilities: [], caller: { uid: 0, user: "root", root: true }, alerts: [] },
});

/** Whatever a line answers: what it takes to get there is what counts. */
export async function rehearse(host: CliHost, runLine: (host: CliHost) => Promise<unknown>): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "svc-compile-"));
  const socket = join(dir, "svc.sock");
  const server = createServer((request, response) => {
    request.resume();
    response.setHeader("content-type", "application/json").end(answer);
  });
  try {
    await once(server.listen(socket), "listening");
    for (const line of lines) {
      for (const isTTY of [false, true]) {
        const stdout = silent(isTTY);
        const args = line[0].startsWith("-") ? line : [...line, "--socket", socket];
        await runLine({ ...host, args, stdout, stderr: silent(isTTY) }).catch(() => undefined);
      }
    }
  } finally {
    server.close();
    rmSync(dir, { recursive: true, force: true });
  }
}

const settings = {
  schema: {
    type: "object",
    properties: {
      port: { type: "integer", minimum: 1, maximum: 65_535 },
      host: { type: "string", format: "ipv4" },
      greeting: { type: "string", minLength: 1, maxLength: 200, pattern: "^[a-z]+$" },
      loud: { type: "boolean" },
      level: { type: "string", enum: ["a", "b"] },
    },
    required: ["port"],
    additionalProperties: false,
  },
  values: { port: 80, host: "127.0.0.1", greeting: "hello", loud: true, level: "a" },
};

/**
 * What the thread of packages does for an installation, in this one, where it is compiled all the same.
 * @param entry of the thread
 * @param manifest one as authors write them
 */
export async function rehearsePackages(entry: URL, manifest: string): Promise<void> {
  const { answer } = (await import(fileURLToPath(entry))) as { answer: (task: object) => Promise<unknown> };
  const text = readFileSync(manifest, "utf8");
  await answer({ kind: "manifest", text });
  await answer(settings);
}

/** What a daemon is asked first. */
const firstQuestions = ["/v1/status", "/v1/apps", "/v1/schedules", "/v1/status"];
const daemonTimeoutMs = 30_000;
const pollMs = 20;

/** Of the host it knows nothing but the directory that is made for it. */
export async function rehearseDaemon(runDaemon: RunDaemon): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), "svc-compile-"));
  const configFile = join(dir, "svc.toml");
  const socketPath = join(dir, "svc.sock");
  writeFileSync(
    configFile,
    `[api]\nlisten = "127.0.0.1:0"\nsocket = ${JSON.stringify(socketPath)}\n[store]\ndir = ${JSON.stringify(join(dir, "store"))}\n` +
      `[docker]\nsocket = ${JSON.stringify(join(dir, "docker.sock"))}\n[apps]\ncheck_updates = false\n[log]\nlevel = "silent"\n`,
  );
  const end = new AbortController();
  const ended = runDaemon({ configFile, checkOnly: false, stop: end.signal }).finally(() => end.abort());
  try {
    const deadline = AbortSignal.any([AbortSignal.timeout(daemonTimeoutMs), end.signal]);
    for (const path of firstQuestions) {
      while (!(await isAnswered(socketPath, path, deadline)))
        await sleep(pollMs, undefined, { signal: deadline });
    }
  } finally {
    end.abort();
    await ended;
    rmSync(dir, { recursive: true, force: true });
  }
}

async function isAnswered(socketPath: string, path: string, signal: AbortSignal): Promise<boolean> {
  try {
    const request = get({ socketPath, path, agent: false, signal });
    const [response] = (await once(request, "response")) as [IncomingMessage];
    response.resume();
    await once(response, "end");
    return true;
  } catch {
    return false;
  }
}

function silent(isTTY: boolean): OutputStream {
  return Object.assign(new Writable({ write: (_part, _encoding, done) => done() }), { isTTY, columns: 80 });
}
