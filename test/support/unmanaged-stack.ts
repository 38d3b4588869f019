/** A compose project that runs without svc, and a daemon beside it. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { access, mkdir } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { composeGenerations } from "./compose-generations.ts";
import { startDaemon, type TestDaemon } from "./daemon.ts";
import type { TestEngine } from "./docker.ts";
import { eventually } from "./eventually.ts";
import { freePort, writeFiles } from "./packages.ts";
import { main } from "./svc-main.ts";

const run = promisify(execFile);
export const slowMs = 60_000;

/** Writes once into each directory, and serves all of them. */
export const stackScript =
  "for d in /data /site /cache; do test -f $$d/born || cat /proc/sys/kernel/random/uuid > $$d/born; done; echo $$GREETING > /greeting; httpd -f -p 80 -h / & trap 'exit 0' TERM; wait";

export interface UnmanagedStack {
  readonly daemon: TestDaemon;
  readonly dir: string;
  readonly port: number;
  readonly compose: (...args: string[]) => Promise<unknown>;
  readonly svc: (...args: string[]) => Promise<string>;
  /** What the stack serves: the IDs that it wrote first, and a setting. */
  readonly served: () => Promise<string[]>;
}

/** Writes the project; the test starts it with `compose("up", "--detach")`. */
export async function createStack(
  engine: TestEngine,
  name: string,
  generation = composeGenerations.find(({ missing }) => missing === ""),
): Promise<UnmanagedStack> {
  await engine.images.build("busybox:latest", { volumes: ["/cache"] });
  const dirs = generation?.dirs ?? [];
  const config = `${engine.config}\n[apps]\npath = ${JSON.stringify(dirs)}\n`;
  const daemon = await startDaemon({ config });
  const port = await freePort();
  const dir = join(daemon.dir, name);
  await mkdir(join(dir, "site"), { recursive: true });
  await writeFiles(dir, {
    "compose.yaml": `services:
  web:
    image: busybox
    container_name: ${name}-web
    command: ["/bin/sh", "-c", ${JSON.stringify(stackScript)}]
    env_file: web.env
    ports: ["127.0.0.1:\${WEB_PORT}:80"]
    volumes: ["data:/data", "./site:/site"]
    restart: always
volumes: { data: {} }
`,
    ".env": `WEB_PORT=${port}\n`,
    "web.env": "GREETING=hello\n",
  });
  const env = {
    PATH: [...dirs, process.env["PATH"] ?? ""].join(delimiter),
    ...{ HOME: daemon.dir, DOCKER_HOST: `unix://${engine.socket}` },
  };
  const compose = (...args: string[]): Promise<unknown> =>
    run("docker-compose", ["--project-name", name, ...args], { cwd: dir, env });
  const svc = async (...args: string[]): Promise<string> => {
    const line = [main, "--socket", daemon.socketPath, ...args];
    const { stdout, stderr } = await run(process.execPath, line, { cwd: daemon.dir, env });
    return stdout + stderr;
  };
  const read = async (path: string): Promise<string> => {
    let text = "";
    await eventually(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/${path}`);
      assert.equal(answer.status, 200);
      text = await answer.text();
    }, slowMs);
    return text;
  };
  const served = async (): Promise<string[]> => [
    await read("data/born"),
    await read("site/born"),
    await read("cache/born"),
    await read("greeting"),
  ];
  return { daemon, dir, port, compose, svc, served };
}

/** States of the containers with this name. */
export async function statesOf(engine: TestEngine, name: string): Promise<string[]> {
  const filters = encodeURIComponent(JSON.stringify({ name: [`^/${name}$`] }));
  const answer = await engine.request("GET", `/containers/json?all=1&filters=${filters}`);
  return (answer.expect(200) as { State: string }[]).map(({ State }) => State);
}

/** Names of all volumes, sorted. */
export async function volumeNames(engine: TestEngine): Promise<string[]> {
  const answer = await engine.request("GET", "/volumes");
  return ((answer.expect(200) as { Volumes: { Name: string }[] | null }).Volumes ?? [])
    .map(({ Name }) => Name)
    .sort();
}

export async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
