/** The port of the daemon that `npm start` runs. */
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { pickPort } from "../../examples/try/addresses.ts";
import { freePort } from "../support/packages.ts";
import { nextEvent } from "../support/eventually.ts";
import { missing } from "../../.ci/optional.ts";

async function portFile(t: ExecutionContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), "svc-port-"));
  t.teardown(() => rm(dir, { recursive: true }));
  return join(dir, "port");
}

/** A program that listens on a port of the loopback address. */
async function occupy(port = 0): Promise<AsyncDisposable & { readonly port: number }> {
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  const { port: bound } = server.address() as { port: number };
  return {
    port: bound,
    [Symbol.asyncDispose]: async () => {
      server.close();
      await nextEvent(server, "close");
    },
  };
}

test("the preferred port is used if it is free", async (t) => {
  const preferred = await freePort();
  t.is(await pickPort(preferred, await portFile(t)), preferred);
});

test("the port that replaces a taken one stays the same on the next start", async (t) => {
  const file = await portFile(t);
  const other = await occupy();
  const first = await pickPort(other.port, file);
  t.not(first, other.port);
  t.is(await pickPort(other.port, file), first);
  await other[Symbol.asyncDispose]();
  t.is(await pickPort(other.port, file), first, "the preferred port is free again");
});

test("another port is chosen if the one of the last start is taken", async (t) => {
  const file = await portFile(t);
  await using last = await occupy();
  await writeFile(file, `${last.port}\n`);
  const preferred = await freePort();
  t.is(await pickPort(preferred, file), preferred);
  t.is(await readFile(file, "utf8"), `${preferred}\n`);
});

for (const text of ["", "port", "-1", "65536", "80.5"]) {
  test(`a stored port "${text}" that is not valid is ignored`, async (t) => {
    const file = await portFile(t);
    await writeFile(file, text);
    const preferred = await freePort();
    t.is(await pickPort(preferred, file), preferred);
  });
}

// The list of missing programs that `npm start` prints.

test.serial("Docker is searched at DOCKER_HOST, as the daemon does", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-optional-"));
  const before = process.env["DOCKER_HOST"];
  const engine = createServer();
  try {
    const socket = join(dir, "engine.sock");
    process.env["DOCKER_HOST"] = `unix://${socket}`;
    t.deepEqual(await missing({ docker: "no containers." }), ["No Docker: no containers."]);
    await once(engine.listen(socket), "listening");
    t.deepEqual(await missing({ docker: "no containers." }), []);
  } finally {
    if (before === undefined) delete process.env["DOCKER_HOST"];
    else process.env["DOCKER_HOST"] = before;
    await new Promise((resolve) => engine.close(resolve));
    await rm(dir, { recursive: true, force: true });
  }
});
