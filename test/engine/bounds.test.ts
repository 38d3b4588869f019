/** Limits of an engine's answers, requests on its socket, and the app that owns an object on it. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type IncomingMessage, type RequestListener, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import test from "ava";
import Docker from "dockerode";
import fc from "fast-check";
import { blankedLabels, isReservedLabel } from "../../src/engine/attribution.ts";
import { EngineRejection } from "../../src/engine/engine-errors.ts";
import { readEvents } from "../../src/engine/event-stream.ts";
import { FramedLogReader } from "../../src/engine/log-lines.ts";
import { type ObjectKind, createAttribution } from "../../src/engine/ownership.ts";
import { remoteImage } from "../../src/engine/registry-client.ts";
import { ScopedModem } from "../../src/engine/scoped-modem.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { readResolved } from "../../src/runtimes/compose/compose-document.ts";
import { readMessages } from "../../src/runtimes/docker/engine-messages.ts";
import { nextEvent } from "../support/eventually.ts";
import { ownershipIn } from "../support/ownership.ts";
import { programs } from "../support/programs.ts";

// Limits of what an engine, a registry and a container's log may send (docs/threat-model.md).

const mib = 1024 * 1024;

/** Chunks of an endless response; reports how many were read. */
class Endless {
  taken = 0;

  *[Symbol.iterator](): Generator<Buffer> {
    for (; this.taken < 1_000; this.taken++) yield Buffer.alloc(mib, "a");
  }
}

test("an endless progress message is not buffered", async (t) => {
  const pieces = new Endless();
  await t.throwsAsync(async () => Array.fromAsync(readMessages(Readable.from(pieces))), {
    message: /progress messages/,
  });
  t.true(pieces.taken < 50, String(pieces.taken));
});

test("an event that is too long is skipped without losing others", async (t) => {
  const event = (action: string): string => `${JSON.stringify({ Type: "container", Action: action })}\n`;
  const long = event(`exec_create: ${"a".repeat(2 * mib)}`);
  function* pieces(): Generator<Buffer> {
    yield Buffer.from(event("start"));
    for (let at = 0; at < long.length; at += 65_536) yield Buffer.from(long.slice(at, at + 65_536));
    yield Buffer.from(event("die"));
  }
  const events = await Array.fromAsync(readEvents(Readable.from(pieces())));
  t.deepEqual(
    events.map(({ action }) => action),
    ["start", "die"],
  );
});

test("a log frame that declares too much is rejected at its header", (t) => {
  const reader = new FramedLogReader();
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(2 * mib + 1, 4);
  t.throws(() => reader.read(head), { message: /not framed/ });
});

test("an endless log line arrives in pieces", (t) => {
  const reader = new FramedLogReader();
  const text = Buffer.alloc(mib, "a");
  const head = Buffer.from([1, 0, 0, 0, 0, 0, 0, 0]);
  head.writeUInt32BE(text.length, 4);
  const lines = reader.read(Buffer.concat([head, text]));
  t.true(lines.length >= 15);
  for (const line of lines) t.true(line.text.length <= 64 * 1024);
});

/** Responds with `answer` at a socket, or at a loopback port. */
async function serve(answer: RequestListener, path?: string) {
  const server = createServer(answer);
  await once(path === undefined ? server.listen(0, "127.0.0.1") : server.listen(path), "listening");
  return {
    port: path === undefined ? (server.address() as AddressInfo).port : 0,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

test("an endless response of the engine is not buffered", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-engine-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const socketPath = join(dir, "engine.sock");
  const pieces = new Endless();
  await using _ = await serve((_request, response) => void Readable.from(pieces).pipe(response), socketPath);
  const modem = new ScopedModem({ socketPath, version: "1.41", signal: AbortSignal.timeout(60_000) });
  const asked = Promise.withResolvers<unknown>();
  modem.dial({ path: "/info", method: "GET", statusCodes: { 200: true } }, (error, data) =>
    error === null ? asked.resolve(data) : asked.reject(error),
  );
  await t.throwsAsync(asked.promise, { message: /bytes|large|long/ });
  t.true(pieces.taken < 200, String(pieces.taken));
});

test("an endless manifest or token of a registry is not buffered", async (t) => {
  const platform = { os: "linux", architecture: "amd64", variant: "" };
  const image = (port: number): string => `127.0.0.1:${port}/svc/app:1`;
  for (const isToken of [false, true]) {
    const pieces = new Endless();
    await using registry = await serve((request, response) => {
      const realm = `Bearer realm="http://${request.headers.host ?? ""}/token",service="s"`;
      if (isToken && request.url?.startsWith("/v2") === true) {
        response.writeHead(401, { "www-authenticate": realm }).end();
      } else if (request.method === "HEAD") response.end();
      else Readable.from(pieces).pipe(response);
    });
    await t.throwsAsync(remoteImage(image(registry.port), { platform, timeoutMs: 60_000 }));
    t.true(pieces.taken > 0 && pieces.taken < 50, String(pieces.taken));
  }
});

test("a registry manifest with many elements in few bytes is not parsed", async (t) => {
  const platform = { os: "linux", architecture: "amd64", variant: "" };
  const type = "application/vnd.oci.image.index.v1+json";
  for (const [lists, message] of [
    [40_000, /cannot be reached/],
    [4, /but not for linux/],
  ] as const) {
    await using registry = await serve((_request, response) => {
      const json = `{"manifests":[],"more":[${Array(lists).fill("[]").join(",")}]}`;
      response.writeHead(200, { "content-type": type }).end(json);
    });
    await t.throwsAsync(
      remoteImage(`127.0.0.1:${registry.port}/svc/app:1`, { platform, timeoutMs: 60_000 }),
      {
        message,
      },
    );
  }
});

test("a resolved project of more than two mebibytes is rejected", async (t) => {
  using thread = new YamlThread({ threadUrl: programs.settingsThread });
  const read = (text: string) =>
    readResolved(text, "compose.yaml", (document, bounds) => thread.read(document, bounds, 0));
  await t.throwsAsync(read(`a: ${"b".repeat(2 * mib)}`), { message: /^compose.yaml: / });
  await t.throwsAsync(read(`a: [${"b,".repeat(60_000)}]`), { message: /100000 YAML tokens/ });
  t.like(await read("a: b"), { a: "b" });
});

// dockerode's requests on a socket, as the engine receives them.

interface FakeEngine extends AsyncDisposable {
  readonly socketPath: string;
  /** Such as `POST /v1.41/volumes/create {"Name":"x"}`. */
  readonly requests: string[];
}

async function startFake(
  answer: (request: IncomingMessage, response: ServerResponse) => void,
): Promise<FakeEngine> {
  const directory = await mkdtemp(join(tmpdir(), "svc-fake-engine-"));
  const socketPath = join(directory, "engine.sock");
  const requests: string[] = [];
  const server = createServer((request, response) => {
    void text(request).then((body) => {
      requests.push(`${request.method ?? ""} ${request.url ?? ""} ${body}`);
      answer(request, response);
    });
  }).listen(socketPath);
  await once(server, "listening");
  return {
    socketPath,
    requests,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await rm(directory, { recursive: true });
    },
  };
}

function client(socketPath: string, signal: AbortSignal = new AbortController().signal): Docker {
  return new Docker({ modem: new ScopedModem({ socketPath, version: "1.41", signal }) } as object);
}

const ok = (_request: IncomingMessage, response: ServerResponse): void => void response.end("{}");

test("the definition of a container is in the body of the request, and in no URL", async (t) => {
  await using engine = await startFake((_request, response) => response.writeHead(201).end('{"Id":"x"}'));
  await client(engine.socketPath).createContainer({
    name: "web",
    Image: "busybox",
    Env: ["PASSWORD=secret"],
  });
  t.deepEqual(engine.requests, [
    'POST /v1.41/containers/create?name=web {"Image":"busybox","Env":["PASSWORD=secret"]}',
  ]);
});

test("queries of reads and removals are in the URL, and bodies are not", async (t) => {
  await using engine = await startFake(({ method }, response) =>
    method === "GET" ? response.end("[]") : response.writeHead(204).end(),
  );
  const docker = client(engine.socketPath);
  await docker.listContainers({ all: true, filters: { label: ["a=b"] } });
  await docker.getVolume("data").remove({ force: true });
  t.deepEqual(engine.requests, [
    "GET /v1.41/containers/json?all=true&filters=%7B%22label%22%3A%5B%22a%3Db%22%5D%7D ",
    "DELETE /v1.41/volumes/data?force=true ",
  ]);
});

test.serial("the environment does not select the engine", async (t) => {
  await using engine = await startFake(ok);
  const before = process.env["DOCKER_HOST"];
  process.env["DOCKER_HOST"] = "tcp://127.0.0.1:1";
  try {
    await client(engine.socketPath).info();
  } finally {
    if (before === undefined) delete process.env["DOCKER_HOST"];
    else process.env["DOCKER_HOST"] = before;
  }
  t.deepEqual(engine.requests, ["GET /v1.41/info? "]);
});

for (const name of ["../../info", "x?force=1", "x%2fy", "", "."]) {
  test(`${JSON.stringify(name)} is not a valid name, and sends no request`, async (t) => {
    await using engine = await startFake(ok);
    await t.throwsAsync(client(engine.socketPath).getContainer(name).start(), {
      code: "invalid_argument",
      message: /is not a valid name for the container engine/,
    });
    t.deepEqual(engine.requests, []);
  });
}

test("a rejection has the engine's own message", async (t) => {
  await using engine = await startFake((_request, response) =>
    response.writeHead(409).end('{"message":"it is\\n in use"}'),
  );
  const error = await t.throwsAsync(client(engine.socketPath).getImage("x").remove(), {
    instanceOf: EngineRejection,
    message: "it is in use",
  });
  t.is(error.statusCode, 409);
});

test("a response has a size limit", async (t) => {
  const piece = Buffer.alloc(1024 * 1024, "x");
  await using engine = await startFake((_request, response) => {
    const more = (): void => {
      while (response.write(piece));
      response.once("drain", more);
    };
    more();
  });
  await t.throwsAsync(client(engine.socketPath).info(), { message: /more than 67108864 bytes/ });
});

for (const isStream of [false, true]) {
  test(`the end of its scope ends ${isStream ? "a stream" : "an answer"} that has begun`, async (t) => {
    await using engine = await startFake((_request, response) => void response.write("{"));
    const scope = new AbortController();
    const docker = client(engine.socketPath, scope.signal);
    const reading = isStream ? docker.getEvents({}).then(async (events) => text(events)) : docker.info();
    while (engine.requests.length === 0) await new Promise(setImmediate);
    scope.abort();
    await t.throwsAsync(reading, { name: "AbortError" });
  });
}

// The app that owns an object on the engine, and labels that prove nothing.

const ours = ownershipIn("ours", ["earlier"]);
const attribution = createAttribution({
  ownership: ours,
  appIds: ["web", "my.app", "my-app", "earlier"],
});
/** As svc labeled objects before proofs existed. */
const earlier = (app: string, store = "ours") => ({ "svc.app": app, "svc.store": store });

for (const [title, kind, labels, names, owner] of [
  ["without labels", "container", {}, ["svc-web-1"], undefined],
  ["with a proof", "container", ours.labels("container", "web"), [], "web"],
  ["with a proof of another kind", "container", ours.labels("image", "web"), ["svc-web-1"], undefined],
  [
    "with another app's proof",
    "container",
    { ...ours.labels("container", "my-app"), "svc.app": "web" },
    ["svc-web-1"],
    undefined,
  ],
  [
    "with an empty proof",
    "container",
    { ...earlier("earlier"), "svc.proof": "" },
    ["svc-earlier"],
    undefined,
  ],
  ["with the proof of a removed app", "container", ours.labels("container", "gone"), [], undefined],
  ["with another store's proof", "volume", ownershipIn("theirs").labels("volume", "web"), [], undefined],
  ["with the store's ID but no proof", "container", earlier("web"), ["svc-web-1"], undefined],
  ["in an app's compose project", "container", { "com.docker.compose.project": "svc-web" }, [], undefined],
  ["of an earlier app, named by svc", "container", earlier("earlier"), ["/svc-earlier-web-1"], "earlier"],
  [
    "of an earlier app that compose is replacing",
    "container",
    earlier("earlier"),
    ["0123456789ab_svc-earlier-web-1"],
    "earlier",
  ],
  [
    "of an earlier app, named by the engine",
    "container",
    earlier("earlier"),
    ["happy_sutherland"],
    undefined,
  ],
  [
    "of an earlier app of another store",
    "container",
    earlier("earlier", "theirs"),
    ["svc-earlier"],
    undefined,
  ],
  ["of an earlier app", "volume", earlier("earlier"), [], "earlier"],
  ["of an earlier app, tagged by svc", "image", earlier("earlier"), ["svc.local/earlier:1"], "earlier"],
  ["of an earlier app, tagged by a registry", "image", earlier("earlier"), ["nginx:1"], undefined],
] as const satisfies [string, ObjectKind, Record<string, string>, string[], string | undefined][]) {
  test(`a ${kind} ${title} belongs to ${owner ?? "nobody"}`, (t) =>
    t.is(attribution(kind, { labels, names }), owner));
}

const ids = fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,63}$/);

test("compose accepts the names of projects", (t) => {
  fc.assert(fc.property(ids, (id) => /^[a-z0-9][a-z0-9_-]*$/.test(ours.projectOf(id))));
  t.pass();
});

test("no two apps share the name of a project, and no service has the name of another app's container", (t) => {
  const parts = fc.array(fc.stringMatching(/^[a-z0-9]{1,4}$/), { minLength: 2, maxLength: 4 });
  const separators = fc.constantFrom("-", "_", ".");
  const property = fc.property(parts, separators, separators, (words, one, other) => {
    const names = words.slice(1).map((_, at) => {
      const [id, service] = [words.slice(0, at + 1).join(one), words.slice(at + 1).join(other)];
      return [`${ours.projectOf(id)}-${service}-1`, `${ours.projectOf(id)}_${service}`];
    });
    return new Set(names.flat()).size === 2 * names.length;
  });
  fc.assert(property);
  t.not(ours.projectOf("org.shop"), ours.projectOf("org-shop"));
});

test("the digest form of an ID with a dot is not the project of another app", (t) => {
  const known = ownershipIn("ours", ["org.shop"]);
  const asId = known.projectOf("org.shop").slice("svc-".length);
  t.not(known.projectOf(asId), known.projectOf("org.shop"));
});

test("an app from before proofs existed keeps its names", (t) => {
  t.is(ours.projectOf("earlier"), "svc-earlier");
  t.regex(ours.networkOf("earlier"), /^svc-earlier-[0-9a-f]{8}$/);
  t.regex(ours.projectOf("later"), /^svc-later-[0-9a-f]{12}$/);
});

test("another store gives the same app other names", (t) => {
  t.not(ours.projectOf("web"), ownershipIn("theirs").projectOf("web"));
  t.not(ours.networkOf("web"), ownershipIn("theirs").networkOf("web"));
});

test("only reserved labels of an image are blanked", (t) => {
  const labels = { "svc.app": "x", "com.docker.compose.project": "y", "org.example": "z", svcs: "1" };
  t.deepEqual(blankedLabels(labels), { "svc.app": "", "com.docker.compose.project": "" });
  t.deepEqual(blankedLabels(null), {});
  t.true(isReservedLabel("com.docker.stack.namespace"));
});
