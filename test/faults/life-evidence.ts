/** Diagnostics of a failure at the end of a soak test, because they cannot be collected afterwards. */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { inspect, promisify } from "node:util";
import { MonitorService } from "../../gen/svc/v1/monitor_pb.ts";
import type { TestDaemon } from "../support/daemon.ts";
import type { TestEngine } from "../support/docker.ts";
import type { LivingApp } from "./life.ts";

const lastLines = 80;
/** Frequent lines of an engine's log without information. */
const isNoise = (line: string): boolean => line.includes("level=debug");

interface Listed {
  readonly Id: string;
}

/** The state of one app as seen by svc, the engine and the kernel. A source that fails is replaced by its error. */
export async function evidenceOf(
  app: LivingApp,
  daemon: TestDaemon,
  engine: TestEngine | undefined,
): Promise<string> {
  const evidence: Evidence = {
    "svc's view of the app": () => app.client.getApp({ id: app.id }),
    "a request to its port": async () => {
      const answer = await fetch(`http://127.0.0.1:${app.port}`, { signal: AbortSignal.timeout(5_000) });
      return [answer.status, (await answer.text()).slice(0, 200)];
    },
    "who listens on its port": async () => {
      const { ports } = await daemon.client(MonitorService).listListeningPorts({});
      return ports.filter(({ port }) => port === app.port);
    },
    ...(engine && {
      "its containers": () => ask(engine, "/containers/json?all=1", app.id),
      "its containers, looked into": async () => {
        const listed = await ask(engine, "/containers/json?all=1", app.id);
        return Promise.all(
          (listed as Listed[]).map(async ({ Id }) => {
            const info = (await engine.request("GET", `/containers/${Id}/json`)).expect(200);
            const { Name, State, NetworkSettings, HostConfig, Config } = info as Record<string, object>;
            const { PortBindings, NetworkMode } = HostConfig as Record<string, unknown>;
            return { Name, State, NetworkSettings, PortBindings, NetworkMode, Config };
          }),
        );
      },
      "its networks": () => ask(engine, "/networks", app.id),
      "proxies of engines": () => commandsWith("docker-proxy"),
      "its containers, asked at their own addresses": () => askContainers(engine, app.id),
      "the host's addresses": () => ip("-brief", "address"),
      "the host's routes": () => ip("route"),
      "what of containers is on bridges": () => ip("-brief", "link", "show", "type", "veth"),
    }),
    "svc's last words of it": () => Promise.resolve(lastOf(daemon.log(), (line) => line.includes(app.id))),
    ...lastWordsOf(daemon, engine),
  };
  return collect(evidence);
}

/** The same for a failure that does not concern an app. */
export function lastWords(daemon: TestDaemon, engine: TestEngine | undefined): Promise<string> {
  return collect(lastWordsOf(daemon, engine));
}

type Evidence = Readonly<Record<string, () => Promise<unknown>>>;

function lastWordsOf(daemon: TestDaemon, engine: TestEngine | undefined): Evidence {
  return {
    ...(engine && {
      "the engine's last words": () => Promise.resolve(lastOf(engine.log(), () => true)),
    }),
    "svc's last words": () => Promise.resolve(lastOf(daemon.log(), () => true)),
  };
}

async function collect(evidence: Evidence): Promise<string> {
  const collected = await Promise.all(
    Object.entries(evidence).map(async ([what, find]) => {
      const found = await find().catch((error: unknown) => `not available: ${inspect(error)}`);
      const text = typeof found === "string" ? found : JSON.stringify(found, jsonValue, 1);
      return `--- ${what}:\n${text}`;
    }),
  );
  return collected.join("\n");
}

/** The engine's objects of an app. */
async function ask(engine: TestEngine, path: string, id: string): Promise<unknown> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  return (await engine.request("GET", `${path}${path.includes("?") ? "&" : "?"}filters=${filters}`)).expect(
    200,
  );
}

/** Distinguishes a failed container from an unreachable one by its response. */
async function askContainers(engine: TestEngine, id: string): Promise<string[]> {
  const listed = (await ask(engine, "/containers/json", id)) as {
    NetworkSettings: { Networks: Record<string, { IPAddress: string }> };
    Ports: { PrivatePort: number }[];
  }[];
  const addresses = listed.flatMap(({ NetworkSettings, Ports }) =>
    Object.values(NetworkSettings.Networks).flatMap(({ IPAddress }) =>
      Ports.map(({ PrivatePort }) => `${IPAddress}:${PrivatePort}`),
    ),
  );
  return Promise.all(
    [...new Set(addresses)].map(async (address) => {
      const answer = await fetch(`http://${address}`, { signal: AbortSignal.timeout(5_000) }).then(
        ({ status }) => String(status),
        (error: unknown) => inspect(error),
      );
      return `${address}: ${answer}`;
    }),
  );
}

async function ip(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("ip", args);
  return stdout;
}

async function commandsWith(word: string): Promise<string[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(
    pids.map(async (pid) => {
      const text = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      return `${pid} ${text.replaceAll("\0", " ")}`;
    }),
  );
  return commands.filter((command) => command.includes(word));
}

function lastOf(log: string, isIncluded: (line: string) => boolean): string {
  const lines = log.split("\n").filter((line) => isIncluded(line) && !isNoise(line));
  return lines.slice(-lastLines).join("\n");
}

function jsonValue(_key: string, value: unknown): unknown {
  return typeof value === "bigint" ? String(value) : value;
}
