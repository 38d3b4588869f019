/**
 * grpcurl as users run it: with only an address it lists and calls everything, on the TCP port with a token and on the
 * unix socket. Needs `grpcurl` on the PATH, or built once by `GOBIN=$PWD/node_modules/.cache/svc-tools go install
 * github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4`, as .ci/run does.
 */
import { spawn } from "node:child_process";
import { access, constants } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { methodPolicies } from "../../gen/svc/v1/methods.ts";
import { sharedDaemon } from "../support/daemon-test.ts";
import { isRoot, type TestDaemon } from "../support/daemon.ts";
import { nextEvent } from "../support/eventually.ts";

const cache = fileURLToPath(new URL("../../node_modules/.cache/svc-tools", import.meta.url));

async function findGrpcurl(): Promise<string | undefined> {
  for (const dir of [cache, ...(process.env["PATH"] ?? "").split(delimiter)]) {
    const path = join(dir, "grpcurl");
    if (
      await access(path, constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return path;
  }
  return undefined;
}

const grpcurl = await findGrpcurl();
const emptyDaemon = sharedDaemon();
const grpcurlTest = grpcurl === undefined ? test.skip : test;
const why = grpcurl === undefined ? " (skipped: grpcurl is not there; see the head of this file)" : "";

async function run(...args: string[]): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(grpcurl ?? "grpcurl", ["-max-time", "30", ...args], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const seen = { out: "", err: "" };
  child.stdout.on("data", (chunk) => (seen.out += String(chunk)));
  child.stderr.on("data", (chunk) => (seen.err += String(chunk)));
  const [code] = (await nextEvent(child, "close")) as [number | null];
  return { code, ...seen };
}

const doors: Record<string, (daemon: TestDaemon, ...args: string[]) => string[]> = {
  "the TCP port with a token": (daemon, ...args) => [
    "-plaintext",
    "-H",
    `authorization: Bearer ${daemon.token}`,
    ...args.slice(0, -1),
    `127.0.0.1:${daemon.port}`,
    ...args.slice(-1),
  ],
  "the unix socket": (daemon, ...args) => [
    "-plaintext",
    "-unix",
    "-authority",
    "localhost",
    ...args.slice(0, -1),
    daemon.socketPath,
    ...args.slice(-1),
  ],
};

for (const [door, argsOf] of Object.entries(doors)) {
  grpcurlTest(`grpcurl lists, describes and calls everything on ${door}${why}`, async (t) => {
    t.timeout(180_000);
    const daemon = await emptyDaemon();
    const ask = (...args: string[]) => run(...argsOf(daemon, ...args));

    const list = await ask("list");
    t.is(list.code, 0, list.err);
    const services = list.out.trim().split("\n");
    const own = new Set(Object.keys(methodPolicies).map((name) => name.split("/")[0]));
    t.deepEqual(
      services.filter((name) => name.startsWith("svc.v1.")),
      [...own].toSorted(),
    );
    const described = await ask("describe");
    t.is(described.code, 0, described.err);
    for (const name of Object.keys(methodPolicies)) {
      t.true(described.out.includes(`rpc ${name.split("/")[1]} (`), name);
    }

    t.like(JSON.parse((await ask("svc.v1.DaemonService/GetStatus")).out), {
      mode: isRoot ? "system" : "user",
    });
    t.deepEqual(JSON.parse((await ask("grpc.health.v1.Health/Check")).out), { status: "SERVING" });
    const missing = await ask("-d", '{"id":"missing"}', "svc.v1.AppService/StartApp");
    t.is(missing.code, 64 + 5, "NOT_FOUND");
    t.regex(missing.err, /"@type": *"type.googleapis.com\/svc.v1.ErrorDetail",[^]*"reason": *"not_found"/);

    // An empty request of every method gets a response from a handler or a validation rule, never a transport error.
    const answers = await Promise.all(
      Object.keys(methodPolicies)
        .filter((name) => !/Reboot|Rotate|Commit|Revoke|Stream|Follow/.test(name))
        .map(async (name) => [name, await ask("-d", "{}", name)] as const),
    );
    for (const [name, { code, err }] of answers) {
      // Opening a page session requires a code, and codes are issued only to socket peers: those are rules, too.
      if (name.startsWith("svc.v1.SessionService/") && /"reason": *"token_denied"/.test(err)) continue;
      const status = code === 0 ? "OK" : (/Code: (\w+)/.exec(err)?.[1] ?? err);
      t.regex(
        status,
        /^(OK|InvalidArgument|Unimplemented|FailedPrecondition|Unavailable)$/,
        `${name}: ${err}`,
      );
    }
  });
}

grpcurlTest(`grpcurl without a token is denied everything except the health check${why}`, async (t) => {
  const daemon = await emptyDaemon();
  const address = `127.0.0.1:${daemon.port}`;
  const list = await run("-plaintext", address, "list");
  t.is(list.code, 1);
  t.regex(list.err, /Unauthenticated|token/);
  const proto = fileURLToPath(new URL("../../node_modules/grpc-health-check/proto", import.meta.url));
  const args = ["-plaintext", "-import-path", proto, "-proto", "health/v1/health.proto"];
  const check = await run(...args, address, "grpc.health.v1.Health/Check");
  t.deepEqual(JSON.parse(check.out), { status: "SERVING" });
});
