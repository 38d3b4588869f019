/** HTTP jobs against real servers; names resolve as each test sets. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import test from "ava";
import { SvcError } from "../../../src/errors.ts";
import { createHttpAction } from "../../../src/scheduler/actions/http.ts";
import type { JobAction } from "../../../src/scheduler/jobs/job.ts";
import { ownAddress } from "../support/own-address.ts";
import { act, type ActOptions } from "../support/act.ts";
import { AddressPolicy } from "../../../src/scheduler/actions/address-policy.ts";

interface Seen {
  method: string;
  url: string;
  headers: IncomingMessage["headers"];
  body: string;
}

interface TestServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly seen: Seen[];
}

async function serve(answer: RequestListener): Promise<TestServer> {
  const seen: Seen[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const { method = "", url = "", headers } = request;
      seen.push({ method, url, headers, body: Buffer.concat(chunks).toString() });
      answer(request, response);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const ok: RequestListener = (_request, response) => response.end("fine");
const redirect =
  (status: number, location: string): RequestListener =>
  (_request, response) =>
    response.writeHead(status, { location }).end();

/** Every name resolves to the given addresses, in turn. */
function resolver(...answers: string[][]) {
  const asked: string[] = [];
  return {
    asked,
    lookup: (hostname: string) => {
      const addresses = answers[Math.min(asked.length, answers.length - 1)] ?? [];
      asked.push(hostname);
      return Promise.resolve(
        addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 })),
      );
    },
  };
}

function call(fields: Omit<JobAction, "type">, options: ActOptions & { addresses?: string[][] } = {}) {
  const { addresses = [["127.0.0.1"]], ...rest } = options;
  return act(createHttpAction(resolver(...addresses)), { type: "http", ...fields }, rest);
}

const user = { ownerUid: 1000, isRoot: false };

test("method, headers and body arrive; the response is the output", async (t) => {
  await using server = await serve(ok);
  const headers = { Authorization: "Bearer s3cret", "X-Mark": "here" };
  const result = await call({ url: `${server.url}/hook?x=1`, method: "POST", headers, body: '{"a":"ä"}' });
  t.deepEqual(result, { httpStatus: 200, isTruncated: false, output: "fine" });
  t.like(server.seen[0], { method: "POST", url: "/hook?x=1", body: '{"a":"ä"}' });
  t.like(server.seen[0]?.headers, {
    authorization: "Bearer s3cret",
    "x-mark": "here",
    "content-length": "10",
    host: `127.0.0.1:${server.port}`,
  });
});

for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]) {
  test(method, async (t) => {
    await using server = await serve(ok);
    t.is((await call({ url: server.url, method })).output, method === "HEAD" ? "" : "fine");
    t.is(server.seen[0]?.method, method);
    t.is(server.seen[0]?.body, "");
  });
}

for (const [status, isFailure] of [
  [204, false],
  [304, false],
  [399, false],
  [400, true],
  [404, true],
  [500, true],
] as const) {
  test(`status ${status} is ${isFailure ? "a failure" : "none"}`, async (t) => {
    await using server = await serve((_request, response) => response.writeHead(status).end());
    const { httpStatus, error } = await call({ url: server.url });
    t.is(httpStatus, status);
    t.is(error, isFailure ? `${server.url} responded with status ${status}` : undefined);
  });
}

test("the first 64 KiB of an endless body are retained", async (t) => {
  await using server = await serve((_request, response) => {
    const more = (): void => void response.write("x".repeat(10_000), (error) => error ?? setImmediate(more));
    more();
  });
  const result = await call({ url: server.url });
  t.true(result.isTruncated);
  t.is(result.output.length, 64 * 1024);
});

test("a response that its server cuts off keeps its status and the received part", async (t) => {
  await using server = await serve((_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("begun", () => response.destroy());
  });
  const cut = await call({ url: server.url });
  t.like(cut, { httpStatus: 200, output: "begun" });
  t.regex(cut.error ?? "", /sent an incomplete response/);
});

test("a secret that is cut off at the end of the retained body is masked, too", async (t) => {
  const key = "s3cr3t-token-0123456789";
  await using server = await serve((request, response) =>
    response.end(`${"x".repeat(64 * 1024 - 12)}${String(request.headers["x-key"])}${"y".repeat(100)}`),
  );
  const { output, isTruncated } = await call({ url: server.url, headers: { "X-Key": key } });
  t.true(isTruncated);
  t.is(output.slice(-8), "xxxxx***");
  t.false(output.includes("s3"));
});

test("a server that uses another protocol fails the run", async (t) => {
  const server = createTcpServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () =>
      socket.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
    );
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const error = await t.throwsAsync(call({ url: `http://127.0.0.1:${port}` }), { instanceOf: SvcError });
  t.is(error.code, "unavailable");
  t.regex(error.message, /the connection closed without a response/);
  server.close();
});

test("a response that takes too long is canceled with the run", async (t) => {
  await using server = await serve((_request, response) => response.writeHead(200).write("begun"));
  const stop = AbortSignal.timeout(300);
  const startMs = performance.now();
  await t.throwsAsync(call({ url: server.url }, { signal: stop }), { name: "TimeoutError" });
  t.true(performance.now() - startMs < 5_000);
});

test("a job cannot set headers that frame the message", async (t) => {
  await using server = await serve(ok);
  const headers = { "Transfer-Encoding": "chunked", "Content-Length": "9999", Connection: "keep-alive" };
  t.is((await call({ url: server.url, method: "POST", headers, body: "four" })).output, "fine");
  t.like(server.seen[0], { body: "four" });
  t.like(server.seen[0]?.headers, { "content-length": "4", connection: "close" });
});

test("proxies of the environment are not used", async (t) => {
  await using server = await serve(ok);
  const names = ["HTTP_PROXY", "http_proxy", "NODE_USE_ENV_PROXY"];
  for (const name of names) process.env[name] = name.startsWith("NODE") ? "1" : "http://127.0.0.1:1";
  t.teardown(() => {
    for (const name of names) Reflect.deleteProperty(process.env, name);
  });
  t.is((await call({ url: server.url })).output, "fine");
});

test("an unreachable server is named without path, query and credentials", async (t) => {
  const error = await t.throwsAsync<SvcError>(call({ url: "http://me:pass@127.0.0.1:1/a?key=k3y" }), {
    instanceOf: SvcError,
  });
  t.regex(error.message, /^http:\/\/127\.0\.0\.1:1 cannot be reached: .*ECONNREFUSED/);
  t.notRegex(error.message, /pass|k3y/);
});

for (const [status, method, then] of [
  [301, "POST", "GET"],
  [302, "POST", "GET"],
  [303, "PUT", "GET"],
  [307, "POST", "POST"],
  [308, "PUT", "PUT"],
  [302, "GET", "GET"],
  [303, "HEAD", "HEAD"],
] as const) {
  test(`${status} after ${method} is followed by ${then}`, async (t) => {
    await using server = await serve((request, response) =>
      request.url === "/" ? redirect(status, "/next")(request, response) : response.end("there"),
    );
    const body = method === "GET" || method === "HEAD" ? "" : "body";
    await call({
      url: server.url,
      method,
      body,
      headers: { "Content-Type": "text/plain", "X-Key": "secret" },
    });
    t.like(server.seen[1], { method: then, url: "/next", body: then === method ? body : "" });
    t.is(server.seen[1]?.headers["x-key"], "secret", "the same origin may get it");
    t.is(server.seen[1]?.headers["content-type"], then === method ? "text/plain" : undefined);
  });
}

test("ten redirects are followed, the eleventh is not", async (t) => {
  const server = await serve((request, response) => {
    const step = Number(request.url?.slice(1));
    if (step === 0) response.end("there");
    else redirect(302, `/${step - 1}`)(request, response);
  });
  await using _server = server;
  t.is((await call({ url: `${server.url}/10` })).output, "there");
  const result = await call({ url: `${server.url}/11` });
  t.is(result.error, `more than 10 redirects, the last one from ${server.url}`);
  t.is(result.httpStatus, 302);
});

test("another origin gets no secret, and the first one gets none after it", async (t) => {
  await using home = await serve((request, response) => {
    if (request.url === "/") redirect(307, `http://elsewhere.test:${other.port}/`)(request, response);
    else response.end("back");
  });
  await using other = await serve((_request, response) => {
    response.writeHead(307, { location: `${home.url}/back` }).end();
  });
  const secrets = { Authorization: "Bearer s3cret", Cookie: "id=s3cret", "X-Api-Key": "s3cret" };
  const headers = { ...secrets, Accept: "text/plain" };
  t.is((await call({ url: home.url, headers })).output, "back");
  for (const { headers: sent } of [other.seen[0]!, home.seen[1]!]) {
    t.notRegex(JSON.stringify(sent), /s3cret/);
    t.is(sent.accept, "text/plain");
  }
  t.is(home.seen[0]?.headers.authorization, "Bearer s3cret");
});

test("a server that echoes the headers does not bring their values into the output", async (t) => {
  await using server = await serve((request, response) => response.end(JSON.stringify(request.headers)));
  const headers = {
    Authorization: "Bearer s3cret-token",
    "X-Key": "0ther-s3cret",
    Accept: "application/json",
  };
  const { output } = await call({ url: server.url, headers });
  t.notRegex(output, /s3cret/);
  t.regex(output, /"authorization":"\*\*\*"/);
  t.regex(output, /application\/json/);
});

for (const url of [
  "http://127.0.0.1",
  "http://127.1",
  "http://2130706433",
  "http://0x7f000001",
  "http://0x7f.1",
  "http://017700000001",
  "http://0177.0.0.1",
  "http://0",
  "http://0.0.0.0",
  "http://[::1]",
  "http://[::]",
  "http://[::ffff:127.0.0.1]",
  "http://[::ffff:7f00:1]",
  "http://[64:ff9b::7f00:1]",
  "http://[fe80::1]",
  "http://169.254.169.254",
  "http://2852039166",
  "http://１２７.0.0.1",
  "http://localhost",
  "http://metadata.test",
]) {
  test(`a regular user's job does not reach ${url}`, async (t) => {
    await using server = await serve(ok);
    const addresses = url.includes("metadata") ? [["169.254.169.254"]] : [["127.0.0.1"]];
    const error = await t.throwsAsync<SvcError>(
      call({ url: `${url}:${server.port}` }, { ...user, addresses }),
      { instanceOf: SvcError },
    );
    t.is(error.code, "permission_denied");
    t.deepEqual(server.seen, []);
  });
}

test("one blocked address among allowed ones is enough", async (t) => {
  const addresses = [["203.0.113.1", "127.0.0.1"]];
  const error = await t.throwsAsync<SvcError>(call({ url: "http://mixed.test" }, { ...user, addresses }));
  t.is(
    error.message,
    "mixed.test (127.0.0.1) is the host itself or its own network, which only root's jobs may call",
  );
});

test("a redirect does not lead a regular user's job to the host", async (t) => {
  await using inner = await serve(ok);
  // The outer server represents an internet host: its name resolves to an address of this host that is not blocked.
  const address = ownAddress();
  if (address === undefined) {
    t.pass("this host has only a loopback address");
    return;
  }
  const server = createServer(redirect(302, `${inner.url}/secret`)).listen(0, address);
  t.teardown(() => server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const error = await t.throwsAsync<SvcError>(
    call({ url: `http://outer.test:${port}` }, { ...user, addresses: [[address], ["127.0.0.1"]] }),
  );
  t.is(error.code, "permission_denied");
  t.deepEqual(inner.seen, []);
});

test("a name is looked up once, and the connection goes to the checked address", async (t) => {
  await using server = await serve(ok);
  // The second result is what a rebinding server returns for a repeated lookup.
  const names = resolver(["127.0.0.1"], ["192.0.2.1"]);
  const action = createHttpAction(names);
  const { output } = await act(action, { type: "http", url: `http://rebinding.test:${server.port}` });
  t.is(output, "fine");
  t.deepEqual(names.asked, ["rebinding.test"]);
  t.is(server.seen[0]?.headers.host, `rebinding.test:${server.port}`);
});

for (const [what, url] of [
  ["no http URL", "ftp://x.test/"],
  ["no URL", "http://"],
] as const) {
  test(`${what} is rejected`, async (t) => {
    const error = await t.throwsAsync<SvcError>(call({ url }));
    t.is(error.message, "the url is not a valid http:// or https:// URL");
  });
}

test("a redirect to another scheme is rejected", async (t) => {
  await using server = await serve(redirect(302, "file:///etc/passwd"));
  const error = await t.throwsAsync<SvcError>(call({ url: server.url }));
  t.is(error.message, `${server.url} redirects to something that is not a valid http:// or https:// URL`);
});

test("a short header value does not garble the text of a response", async (t) => {
  const body = "all data arrived at a database";
  await using server = await serve((_request, response) => response.end(body));
  const { output } = await call({ url: server.url, headers: { "X-Key": "data", "X-Short": "a" } });
  t.is(output, "all *** arrived at a database");
});

const policy = new AddressPolicy();

for (const address of [
  "127.0.0.1",
  "127.255.255.254",
  "0.0.0.0",
  "0.1.2.3",
  "169.254.169.254",
  "169.254.0.1",
  "100.100.100.200",
  "192.0.0.192",
  "224.0.0.1",
  "255.255.255.255",
  "::",
  "::1",
  "0:0:0:0:0:0:0:1",
  "::ffff:127.0.0.1",
  "::ffff:7f00:1",
  "::FFFF:169.254.169.254",
  "::127.0.0.1",
  "::ffff:0:127.0.0.1",
  "64:ff9b::127.0.0.1",
  "64:ff9b::a9fe:a9fe",
  "64:ff9b:1:7f00:0:100::",
  "2002:7f00:1::",
  "2002:a9fe:a9fe::1",
  "2001::1",
  "fe80::1",
  "fe80::1%lo",
  "febf::1",
  "fec0::1",
  "ff02::1",
  "fd00:ec2::254",
]) {
  test(`blocked: ${address}`, (t) => t.true(policy.isBlocked(address)));
}

for (const address of [
  "1.1.1.1",
  "10.0.0.1",
  "172.16.0.1",
  "192.168.1.1",
  "128.0.0.1",
  "169.253.255.255",
  "2606:4700::1111",
  "fd00::1",
  "::ffff:1.1.1.1",
  "64:ff9b::1.1.1.1",
  "2002:101:101::1",
]) {
  test(`allowed: ${address}`, (t) => t.false(policy.isBlocked(address)));
}
