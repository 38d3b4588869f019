/** A real Kubernetes API server without nodes: its validation of manifests, in a dry run. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { promisify } from "node:util";
import { generateKeyPair } from "node:crypto";
import { eventually } from "../support/eventually.ts";
import { freePort } from "../support/packages.ts";
import { engineProgram } from "./engine-programs.ts";

const token = "of-the-check";
const upTimeoutMs = 120_000;

/** The API path of each kind. */
const places: Readonly<Record<string, string>> = {
  ConfigMap: "/api/v1/namespaces/default/configmaps",
  Secret: "/api/v1/namespaces/default/secrets",
  PersistentVolumeClaim: "/api/v1/namespaces/default/persistentvolumeclaims",
  Service: "/api/v1/namespaces/default/services",
  Deployment: "/apis/apps/v1/namespaces/default/deployments",
};

export interface Kubernetes extends AsyncDisposable {
  /** Creates nothing. @param manifest one YAML document @returns the reason of a rejection */
  refuses(manifest: string): Promise<string | undefined>;
}

export async function startKubernetes(): Promise<Kubernetes> {
  const [server, store] = [await engineProgram("kube-apiserver"), await engineProgram("etcd")];
  await using made = new AsyncDisposableStack();
  const dir = await mkdtemp(join(tmpdir(), "svc-kubernetes-"));
  made.defer(() => rm(dir, { recursive: true, force: true }));
  const [client, peer, port] = [await freePort(), await freePort(), await freePort()];
  const storeUrl = `http://127.0.0.1:${client}`;
  made.use(
    startProgram(store, [
      ...["--data-dir", join(dir, "etcd"), "--log-level", "error"],
      ...["--listen-client-urls", storeUrl, "--advertise-client-urls", storeUrl],
      ...["--listen-peer-urls", `http://127.0.0.1:${peer}`],
      ...["--initial-advertise-peer-urls", `http://127.0.0.1:${peer}`],
      ...["--initial-cluster", `default=http://127.0.0.1:${peer}`],
    ]),
  );
  const keys = await promisify(generateKeyPair)("rsa", {
    modulusLength: 2048,
    publicKeyEncoding: { type: "spki", format: "pem" },
    privateKeyEncoding: { type: "pkcs8", format: "pem" },
  });
  const files = {
    key: keys.privateKey,
    "key.pub": keys.publicKey,
    tokens: `${token},root,0,system:masters\n`,
  };
  for (const [name, content] of Object.entries(files))
    await writeFile(join(dir, name), content, { mode: 0o600 });
  const api = made.use(
    startProgram(server, [
      ...["--etcd-servers", storeUrl, "--bind-address", "127.0.0.1", "--secure-port", String(port)],
      ...["--cert-dir", join(dir, "certificates"), "--token-auth-file", join(dir, "tokens")],
      ...["--service-account-issuer", "https://svc.test", "--service-cluster-ip-range", "10.79.0.0/24"],
      ...["--service-account-key-file", join(dir, "key.pub")],
      ...["--service-account-signing-key-file", join(dir, "key")],
      "--allow-privileged",
      // The plugin would require the controller that creates accounts.
      ...["--disable-admission-plugins", "ServiceAccount", "--v", "0"],
    ]),
  );
  const ask = async (
    method: string,
    path: string,
    body = "",
  ): Promise<{ status: number; output: string }> => {
    const ca = await readFile(join(dir, "certificates/apiserver.crt"));
    const asked = request({
      ...{ host: "127.0.0.1", port, path, method, ca, servername: "kubernetes" },
      headers: { authorization: `Bearer ${token}`, "content-type": "application/yaml" },
    });
    asked.end(body);
    const [answer] = (await once(asked, "response")) as [IncomingMessage];
    return { status: answer.statusCode ?? 0, output: await text(answer) };
  };
  await eventually(async () => {
    assert.equal(api.child.exitCode, null, api.output());
    const { status, output } = await ask("GET", "/api/v1/namespaces/default");
    assert.equal(status, 200, output);
  }, upTimeoutMs);
  const owned = made.move();
  return {
    async refuses(manifest) {
      const kind = /^kind: (\w+)$/m.exec(manifest)?.[1] ?? "";
      const place = places[kind];
      if (place === undefined) return `nobody knows where to make the kind "${kind}"`;
      const { status, output } = await ask("POST", `${place}?dryRun=All&fieldValidation=Strict`, manifest);
      return status === 201 ? undefined : `${kind}: ${output.trim()}`;
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

interface Program extends AsyncDisposable {
  readonly child: ChildProcess;
  /** The last 2,000 characters of the server's output. */
  readonly output: () => string;
}

/** Killed with this process, however that exits. */
export function startProgram(program: string, args: readonly string[]): Program {
  const child = spawn("setpriv", ["--pdeathsig=KILL", program, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  child.stderr.setEncoding("utf8").on("data", (more: string) => (output = (output + more).slice(-2_000)));
  return {
    child,
    output: () => output,
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    },
  };
}
