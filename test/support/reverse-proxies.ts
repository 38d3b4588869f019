/** Reverse proxies with the configurations of the documentation, on free ports of loopback and with a certificate of the test. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { existsSync } from "node:fs";
import type { IncomingMessage } from "node:http";
import { readSection } from "./docs.ts";
import { eventually } from "./eventually.ts";
import { freePort } from "./packages.ts";

const howTo = "docs/how-to/use-a-reverse-proxy.md";
export const hostName = "svc.example.org";
const startMs = 60_000;

export interface ReverseProxy extends AsyncDisposable {
  readonly port: number;
}

interface Setup {
  readonly dir: string;
  readonly port: number;
  /** The configuration of the documentation, with the test's ports and files. */
  readonly config: string;
}

interface Program {
  readonly command: string;
  /** Writes the files, and returns the arguments. */
  readonly prepare: (setup: Setup) => Promise<readonly string[]>;
}

const programs: Readonly<Record<string, Program>> = {
  Caddy: {
    command: "caddy",
    prepare: async ({ dir, port, config }) => {
      const options = `{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n\tauto_https disable_redirects\n\thttps_port ${port}\n}\n`;
      await writeFile(join(dir, "Caddyfile"), options + config);
      return ["run", "--config", join(dir, "Caddyfile"), "--adapter", "caddyfile"];
    },
  },
  nginx: {
    command: "nginx",
    prepare: async ({ dir, port, config }) => {
      const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
        (name) => `${name}_temp_path ${dir}/${name};`,
      );
      await writeFile(
        join(dir, "nginx.conf"),
        `daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/errors;\nevents {}\n` +
          `http {\naccess_log off; ${paths.join(" ")}\n${config.replace("listen 443", `listen 127.0.0.1:${port}`)}\n}\n`,
      );
      return ["-p", dir, "-c", "nginx.conf"];
    },
  },
  Apache: {
    command: "apache2",
    prepare: async ({ dir, port, config }) => {
      const modules = ["mpm_event", "authz_core", "proxy", "proxy_http", "headers", "ssl", "socache_shmcb"];
      const lines = modules.map(
        (name) => `LoadModule ${name}_module /usr/lib/apache2/modules/mod_${name}.so`,
      );
      await writeFile(
        join(dir, "apache.conf"),
        `${lines.join("\n")}\nServerRoot ${dir}\nPidFile ${dir}/pid\nErrorLog ${dir}/errors\nListen 127.0.0.1:${port}\n` +
          config.replace("*:443", `127.0.0.1:${port}`),
      );
      return ["-DFOREGROUND", "-f", join(dir, "apache.conf")];
    },
  },
  HAProxy: {
    command: "haproxy",
    prepare: async ({ dir, port, config }) => {
      await writeFile(join(dir, "haproxy.cfg"), config.replace("bind :443", `bind 127.0.0.1:${port}`));
      return ["-db", "-f", join(dir, "haproxy.cfg")];
    },
  },
};

export const proxyNames = Object.keys(programs);

/** Why tests of the proxy are skipped; undefined if its program is installed. */
export function missingProxy(name: string): string | undefined {
  const path = find(name);
  return path === undefined ? `no ${programs[name]?.command ?? name}` : undefined;
}

function find(name: string): string | undefined {
  const command = programs[name]?.command ?? "";
  const directories = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin"];
  return directories.map((directory) => join(directory, command)).find((path) => existsSync(path));
}

/** @param daemonPort port of the daemon behind the proxy */
export async function startProxy(name: string, daemonPort: number): Promise<ReverseProxy> {
  const [path, program] = [find(name), programs[name]];
  assert.ok(path !== undefined && program !== undefined, name);
  const dir = await mkdtemp(join(tmpdir(), "svc-proxy-"));
  // HAProxy and Apache drop root's rights.
  await chmod(dir, 0o755);
  const port = await freePort();
  await writeCertificate(dir);
  const [, block] = /^```\w*\n(.*?)^```/ms.exec(await readSection(howTo, name)) ?? [];
  assert.ok(block !== undefined, `${howTo} has a configuration of ${name}`);
  const config = block
    .replaceAll("127.0.0.1:8420", `127.0.0.1:${daemonPort}`)
    .replaceAll(`/etc/ssl/${hostName}`, `${dir}/tls`);
  const argv = await program.prepare({ dir, port, config });
  await mkdir(join(dir, "home"));
  const child = spawn(path, argv, {
    stdio: ["ignore", "ignore", "pipe"],
    env: { PATH: process.env["PATH"] ?? "", HOME: join(dir, "home") },
  });
  let log = "";
  child.stderr.on("data", (chunk: Buffer) => (log += chunk.toString()));
  const exited = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await exited;
    clearTimeout(timer);
    await rm(dir, { recursive: true, force: true });
  };
  try {
    await eventually(async () => {
      assert.equal(child.exitCode, null, log);
      const { statusCode } = await askProxy(port, "/healthz");
      assert.equal(statusCode, 200);
    }, startMs);
  } catch (error) {
    const errors = await readFile(join(dir, "errors"), "utf8").catch(() => "");
    await stop();
    throw new Error(`${name} did not start: ${log}${errors}`, { cause: error });
  }
  return { port, [Symbol.asyncDispose]: stop };
}

async function writeCertificate(dir: string): Promise<void> {
  const [key, crt] = [join(dir, "tls.key"), join(dir, "tls.crt")];
  execFileSync("openssl", [
    ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"],
    ...["-subj", `/CN=${hostName}`, "-addext", `subjectAltName=DNS:${hostName}`, "-keyout", key, "-out", crt],
  ]);
  await writeFile(join(dir, "tls.pem"), (await readFile(crt, "utf8")) + (await readFile(key, "utf8")));
}

export interface ProxiedRequest {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The address of the client. */
  readonly from?: string;
}

/** Sends a request over TLS, as a browser that opens `https://svc.example.org`. */
export function askProxy(
  port: number,
  path: string,
  { method = "GET", headers = {}, body, from }: ProxiedRequest = {},
): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        ...{
          host: "127.0.0.1",
          port,
          path,
          method,
          servername: hostName,
          rejectUnauthorized: false,
          agent: false,
        },
        headers: { host: hostName, ...headers },
        ...(from !== undefined && { localAddress: from }),
        signal: AbortSignal.timeout(startMs),
      },
      resolve,
    );
    sent.once("error", reject);
    sent.end(body);
  });
}
