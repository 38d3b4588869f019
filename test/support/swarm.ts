/**
 * A real swarm of engines, each in its own network namespace with its own host name, on one switch, with a registry
 * that all of them reach. The kernel may lack IP_VS: ports are published on nodes (`host`).
 */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { engineRequest } from "./docker-request.ts";
import { startEngine, whyNoDocker, type TestEngine } from "./docker.ts";
import { eventually, nextEvent } from "./eventually.ts";

const run = promisify(execFile);
const passRequests = fileURLToPath(new URL("./pass-requests.mjs", import.meta.url));

export interface TestSwarm extends AsyncDisposable {
  /** The first is the manager; they are called node1, node2, … */
  readonly engines: readonly TestEngine[];
  readonly manager: TestEngine;
  /** Arguments of `nsenter` for programs that reach all nodes at their addresses, 10.77.0.1 and so on. */
  readonly inside: readonly string[];
  /** The registry that all of them pull from. */
  readonly registry: string;
  /** The response of a node on a port. @param node from 1 @throws Error without a response */
  get(node: number, port: number): Promise<string>;
  /** Disconnects a node from the others, or reconnects it. */
  link(node: number, state: "up" | "down"): Promise<void>;
}

const registryAddress = "10.77.0.254";
const addressOf = (node: number): string => `10.77.0.${node}`;

/** Why this host cannot run a swarm for the tests; `undefined` if it can. */
export async function findSwarmObstacle(): Promise<string | undefined> {
  if (whyNoDocker !== undefined) return whyNoDocker;
  for (const kind of ["bridge", "veth", "vxlan id 1 dstport 4789"]) {
    const failure = await run("unshare", ["--net", "sh", "-c", `ip link add tried type ${kind}`]).catch(
      String,
    );
    if (typeof failure === "string") return `needs network links: ${failure.replaceAll(/\s+/g, " ").trim()}`;
  }
  await using engine = await startEngine({ machine: { name: "tried", connect: () => Promise.resolve() } });
  const { status, text } = await engine.request("POST", "/swarm/init", {
    ListenAddr: "127.0.0.1:2377",
    AdvertiseAddr: "127.0.0.1",
  });
  return status === 200 ? undefined : `the engine makes no swarm: ${text.trim()}`;
}

/** @param managers the number of managers; requests go to the first */
export async function startSwarm(size: number, managers = 1): Promise<TestSwarm> {
  await using made = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "svc-swarm-"));
  made.defer(() => rm(dir, { recursive: true, force: true, maxRetries: 5 }));
  const hub = await startSwitch();
  made.defer(() => void hub.kill("SIGKILL"));
  const inside = [`--net=/proc/${hub.pid}/ns/net`];
  const connection = join(dir, "inside.sock");
  const asking = await startAsking(connection, inside);
  made.defer(() => void asking.kill("SIGKILL"));
  const registry = await startRegistry(dir, inside, connection);
  made.defer(() => void registry.kill("SIGKILL"));
  const engines: TestEngine[] = [];
  for (let node = 1; node <= size; node++) {
    const engine = await startEngine({
      machine: { name: `node${node}`, connect: (pid) => connect(pid, node, hub.pid ?? 0) },
      arguments: ["--insecure-registry", `${registryAddress}:5000`],
    });
    made.use(engine);
    engines.push(engine);
  }
  const [manager, ...workers] = engines;
  if (manager === undefined) throw new Error("a swarm needs at least one engine");
  await joinAll(manager, workers, managers - 1);
  const owned = made.move();
  return {
    engines,
    manager,
    inside,
    registry: `${registryAddress}:5000`,
    get: (node, port) => askInside(connection, `${addressOf(node)}:${port}`),
    link: async (node, state) => {
      await run("nsenter", [...inside, "ip", "link", "set", `node${node}`, state]);
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** Uses a program that is already running, because it is polled repeatedly. */
async function askInside(connection: string, address: string): Promise<string> {
  const { status, text } = await engineRequest(connection, "GET", `/${address}`);
  if (status === 502) throw new Error(`${address}: ${text}`);
  return text;
}

/** A request forwarder in the switch's network namespace. */
async function startAsking(connection: string, inside: readonly string[]): Promise<ChildProcess> {
  const child = spawn(
    "setpriv",
    ["--pdeathsig=KILL", "nsenter", ...inside, process.execPath, passRequests, connection],
    { stdio: ["ignore", "pipe", "inherit"], detached: true },
  );
  await nextEvent(child.stdout, "data");
  child.stdout.destroy();
  child.unref();
  return child;
}

/** The process that holds the namespace of the switch. */
async function startSwitch(): Promise<ChildProcess> {
  const setUp = [
    "ip link set lo up",
    "ip link add switch type bridge",
    `ip address add ${registryAddress}/24 dev switch`,
    "ip link set switch up",
    "echo ready",
    "exec sleep infinity",
  ].join(" && ");
  const child = spawn("setpriv", ["--pdeathsig=KILL", "unshare", "--net", "sh", "-c", setUp], {
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  let said = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  const ended = once(child, "close").then(() => Promise.reject(new Error(`there is no switch: ${said}`)));
  await Promise.race([once(child.stdout, "data"), ended]);
  child.stdout.destroy();
  child.stderr.destroy();
  child.unref();
  return child;
}

/** A virtual cable between a node and the switch. */
async function connect(pid: number, node: number, hub: number): Promise<void> {
  const far = ["type", "veth", "peer", "name", `node${node}`, "netns", String(hub)];
  await run("ip", ["link", "add", "eth0", "netns", String(pid), ...far]);
  await run("nsenter", [
    `--net=/proc/${hub}/ns/net`,
    "ip",
    "link",
    "set",
    `node${node}`,
    "master",
    "switch",
    "up",
  ]);
  const own = ["nsenter", `--net=/proc/${pid}/ns/net`, "ip"] as const;
  await run(own[0], [...own.slice(1), "address", "add", `${addressOf(node)}/24`, "dev", "eth0"]);
  await run(own[0], [...own.slice(1), "link", "set", "eth0", "up"]);
  await run(own[0], [...own.slice(1), "route", "add", "default", "via", registryAddress]);
}

async function startRegistry(
  dir: string,
  inside: readonly string[],
  connection: string,
): Promise<ChildProcess> {
  const config = {
    version: "0.1",
    log: { level: "error" },
    storage: { filesystem: { rootdirectory: join(dir, "registry") } },
    http: { addr: `${registryAddress}:5000` },
  };
  const file = join(dir, "registry.yml");
  // JSON is YAML too.
  await writeFile(file, JSON.stringify(config));
  const child = spawn(
    "setpriv",
    ["--pdeathsig=KILL", "nsenter", ...inside, "docker-registry", "serve", file],
    {
      stdio: "ignore",
      detached: true,
    },
  );
  child.unref();
  await eventually(() => askInside(connection, `${registryAddress}:5000`), 30_000);
  return child;
}

async function joinAll(
  manager: TestEngine,
  others: readonly TestEngine[],
  moreManagers: number,
): Promise<void> {
  const listen = { ListenAddr: "0.0.0.0:2377" };
  const init = {
    ...listen,
    AdvertiseAddr: addressOf(1),
    DefaultAddrPool: ["10.78.0.0/16"],
    SubnetSize: 24,
    Spec: { Dispatcher: { HeartbeatPeriod: 3e9 } },
  };
  (await manager.request("POST", "/swarm/init", init)).expect(200);
  const { JoinTokens: tokens } = (await manager.request("GET", "/swarm")).expect(200) as {
    JoinTokens: { Worker: string; Manager: string };
  };
  for (const [at, other] of others.entries()) {
    const AdvertiseAddr = addressOf(at + 2);
    const RemoteAddrs = [`${addressOf(1)}:2377`];
    const joining = {
      ...listen,
      AdvertiseAddr,
      RemoteAddrs,
      JoinToken: at < moreManagers ? tokens.Manager : tokens.Worker,
    };
    (await other.request("POST", "/swarm/join", joining)).expect(200);
  }
}
