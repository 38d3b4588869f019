/** A real registry for a test, with or without a password. */
import { spawn, type ChildProcess } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, nextEvent } from "./eventually.ts";
import { freePort } from "./packages.ts";

export interface RegistryUser {
  readonly name: string;
  readonly password: string;
}

/** The only account of a registry with a password. */
export const registryUser: RegistryUser = { name: "publisher", password: "open sesame" };
// The registry accepts only bcrypt, which Node does not have.
const htpasswd = `${registryUser.name}:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n`;

export interface TestRegistry extends AsyncDisposable {
  /** `127.0.0.1:<port>`: image names begin with it. */
  readonly host: string;
  stop(): Promise<void>;
  /** Starts it again on the same port with the same images. */
  start(): Promise<void>;
}

/** @param user the accepted account, {@link registryUser}; default: anonymous access */
export async function startRegistry(user?: RegistryUser): Promise<TestRegistry> {
  if (user !== undefined && user !== registryUser) throw new Error("the registry knows registryUser only");
  const dir = await mkdtemp(join(tmpdir(), "svc-registry-"));
  const host = `127.0.0.1:${await freePort()}`;
  const configFile = join(dir, "config.yml");
  const passwordFile = join(dir, "htpasswd");
  await writeFile(passwordFile, htpasswd);
  // JSON is YAML too.
  const config = {
    version: "0.1",
    log: { level: "error" },
    storage: { filesystem: { rootdirectory: join(dir, "data") }, delete: { enabled: true } },
    http: { addr: host },
    ...(user !== undefined && { auth: { htpasswd: { realm: "svc tests", path: passwordFile } } }),
  };
  await writeFile(configFile, JSON.stringify(config));
  let child: ChildProcess | undefined;
  const registry: TestRegistry = {
    host,
    start: async () => {
      child = spawn("setpriv", ["--pdeathsig=KILL", "docker-registry", "serve", configFile], {
        stdio: "ignore",
        detached: true,
      });
      await eventually(async () => {
        const { status } = await fetch(`http://${host}/v2/`, { signal: AbortSignal.timeout(5_000) });
        if (status !== 200 && status !== 401) throw new Error(`the registry returns ${status}`);
      });
    },
    stop: async () => {
      if (child?.exitCode !== null || child.signalCode !== null) return;
      const exited = nextEvent(child, "exit");
      child.kill("SIGKILL");
      await exited;
    },
    [Symbol.asyncDispose]: async () => {
      await registry.stop();
      await rm(dir, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  await registry.start();
  return registry;
}
