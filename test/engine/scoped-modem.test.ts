/** dockerode's requests on a socket, as the engine receives them. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import test from "ava";
import Docker from "dockerode";
import { EngineRejection } from "../../src/engine/engine-errors.ts";
import { ScopedModem } from "../../src/engine/scoped-modem.ts";

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
