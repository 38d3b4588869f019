/** Digests from real registries, and from ones that require tokens or misbehave. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import type { ImageInspectInfo } from "dockerode";
import fc from "fast-check";
import {
  formatImageReference,
  isLoopbackHost,
  parseImageReference,
} from "../../src/engine/image-reference.ts";
import { parseChallenge } from "../../src/engine/registry-auth.ts";
import { remoteImage } from "../../src/engine/registry-client.ts";
import { isInsecureRegistry } from "../../src/engine/registry-security.ts";
import { transportFor } from "../../src/engine/registry-transport.ts";
import { SvcError, type ErrorCode } from "../../src/errors.ts";
import { describeImage } from "../../src/runtimes/docker/image-freshness.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { registryUser } from "../support/docker-registry.ts";
import { dockerTest, needsDocker, sharedEngine } from "../support/docker-test.ts";
import { nextEvent } from "../support/eventually.ts";

const shared = sharedEngine();
const platform = { os: "linux", architecture: "amd64", variant: "" };
const credentials = { username: registryUser.name, password: registryUser.password };

dockerTest(`a public registry returns the last pushed image${needsDocker}`, async (t) => {
  const { host } = await shared().registry();
  const tag = `${host}/svc/app:1`;
  for (const version of ["one", "two"]) {
    await shared().images.build(tag, { files: { version } });
    const digest = await shared().images.push(tag);
    t.deepEqual(await remoteImage(tag, { platform }), { digest, platformDigest: digest });
    t.is((await remoteImage(`${host}/svc/app@${digest}`, { platform })).digest, digest);
  }
  const error = await t.throwsAsync(remoteImage(`${host}/svc/other:1`, { platform }), {
    instanceOf: SvcError,
  });
  t.is(error.code, "not_found");
});

dockerTest(`a registry with a password requires it${needsDocker}`, async (t) => {
  const { host } = await shared().registry(registryUser);
  const tag = `${host}/svc/app:1`;
  await shared().images.build(tag);
  const digest = await shared().images.push(tag, registryUser);
  t.is((await remoteImage(tag, { platform, credentials })).digest, digest);
  for (const wrong of [undefined, { ...credentials, password: "wrong" }]) {
    const error = await t.throwsAsync(remoteImage(tag, { platform, credentials: wrong }), {
      instanceOf: SvcError,
    });
    t.is(error.code, "permission_denied");
    t.false(error.message.includes("wrong"));
  }
});

interface FakeRegistry extends AsyncDisposable {
  host: string;
  requests: string[];
}

/** A registry that responds as the test sets. */
async function fakeRegistry(
  answer: (request: IncomingMessage, response: ServerResponse, host: string) => void,
): Promise<FakeRegistry> {
  const requests: string[] = [];
  const server: Server = createServer((request, response) => {
    requests.push(
      `${request.method ?? ""} ${request.url ?? ""} ${request.headers.authorization ?? ""}`.trim(),
    );
    answer(request, response, host);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    host,
    requests,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await nextEvent(server, "close");
    },
  };
}

const digestOf = (text: string): string => `sha256:${createHash("sha256").update(text).digest("hex")}`;
const entry = (os: string, architecture: string, variant: string | undefined, text: string) => ({
  digest: digestOf(text),
  platform: { os, architecture, ...(variant !== undefined && { variant }) },
});
const index = JSON.stringify({
  schemaVersion: 2,
  manifests: [
    entry("unknown", "unknown", undefined, "attestation"),
    entry("linux", "arm", "v6", "arm v6"),
    entry("linux", "arm", "v7", "arm v7"),
    entry("linux", "amd64", undefined, "amd64"),
    entry("linux", "arm64", "v8", "arm64"),
  ],
});
const indexType = "application/vnd.oci.image.index.v1+json";

test("with an index, the platform's own image is included", async (t) => {
  await using registry = await fakeRegistry((request, response) => {
    response.writeHead(200, { "content-type": indexType, "docker-content-digest": digestOf(index) });
    response.end(request.method === "HEAD" ? "" : index);
  });
  const ask = (architecture: string, variant: string) =>
    remoteImage(`${registry.host}/app`, { platform: { os: "linux", architecture, variant } });
  t.deepEqual(await ask("amd64", ""), { digest: digestOf(index), platformDigest: digestOf("amd64") });
  t.is((await ask("arm", "v7")).platformDigest, digestOf("arm v7"));
  t.is((await ask("arm64", "")).platformDigest, digestOf("arm64"));
  const error = await t.throwsAsync(ask("riscv64", ""), { instanceOf: SvcError });
  t.is(error.code, "not_found");
  t.regex(error.message, /not for linux\/riscv64$/);
});

/** How a local image compares with the registry's. @param insecure hosts that the engine considers insecure */
async function freshnessOf(
  reference: string,
  { id, digest }: { id: string; digest: string },
  insecure: readonly string[] = [],
) {
  const name = reference.replace(/:1$/, "");
  const local = {
    Id: id,
    RepoDigests: [`${name}@${digest}`],
    Os: "linux",
    Architecture: "amd64",
    Config: {},
  };
  const { freshness } = await describeImage(
    {
      images: {
        usable: () => Promise.resolve(local as ImageInspectInfo),
        requireRegistry: () => undefined,
      },
      transportOf: (host) => Promise.resolve({ isInsecure: insecure.includes(host) }),
      credentialsOf: () => Promise.resolve(undefined),
    },
    { ownerUid: 0 } as RunnableApp,
    reference,
    { checkRemote: true },
  );
  return freshness;
}

test("an index with a change of another platform has the same image for this one", async (t) => {
  const manifestOf = (config: string): string =>
    JSON.stringify({ schemaVersion: 2, config: { digest: digestOf(config) } });
  const own = manifestOf("own config");
  const indexWith = (other: string): string =>
    JSON.stringify({
      manifests: [entry("linux", "amd64", undefined, own), entry("linux", "arm64", "v8", manifestOf(other))],
    });
  const shown = { index: indexWith("first") };
  await using registry = await fakeRegistry((request, response) => {
    const isOwn = request.url?.endsWith(digestOf(own)) === true;
    const type = isOwn ? "application/vnd.oci.image.manifest.v1+json" : indexType;
    response.writeHead(200, { "content-type": type });
    response.end(request.method === "HEAD" ? "" : isOwn ? own : shown.index);
  });
  const ask = (known: string[]): ReturnType<typeof remoteImage> =>
    remoteImage(`${registry.host}/app`, { platform, known });
  const pulled = digestOf(shown.index);
  t.deepEqual(await ask([pulled]), { digest: pulled, platformDigest: digestOf(own) });
  shown.index = indexWith("second");
  t.deepEqual(await ask([pulled]), {
    digest: digestOf(shown.index),
    platformDigest: digestOf(own),
    configDigest: digestOf("own config"),
  });

  const freshness = (id: string, digest: string) => freshnessOf(`${registry.host}/app`, { id, digest });
  t.is(await freshness(digestOf("own config"), pulled), "current");
  t.is(await freshness(digestOf("old config"), digestOf(own)), "current", "pulled by the image's own digest");
  t.is(await freshness(digestOf("old config"), pulled), "outdated");
});

test("an insecure registry is contacted over unverified TLS, otherwise in plain text", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-insecure-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  const subject = ["-subj", "/CN=registry.example", "-days", "1", "-nodes", "-newkey", "rsa:2048"];
  await promisify(execFile)("openssl", ["req", "-x509", ...subject, "-keyout", key, "-out", cert]);
  const answer = (_request: IncomingMessage, response: ServerResponse): void => {
    response.setHeader("content-type", "application/vnd.oci.image.manifest.v1+json");
    response.writeHead(200, { "docker-content-digest": digestOf("app") }).end();
  };
  const servers = [
    createTlsServer({ key: await readFile(key), cert: await readFile(cert) }, answer),
    createServer(answer),
  ];
  for (const server of servers) {
    // The name is not a loopback name, for which plain text is always used.
    server.listen(0, "0.0.0.0");
    await once(server, "listening");
    t.teardown(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const reference = `${hostname()}:${port}/app:1`;
    const refused = await t.throwsAsync(remoteImage(reference, { platform }), { instanceOf: SvcError });
    t.is(refused.code, "unavailable");
    t.is(
      (await remoteImage(reference, { platform, transport: { isInsecure: true } })).digest,
      digestOf("app"),
    );
    const local = { id: digestOf("config"), digest: digestOf("app") };
    t.is(await freshnessOf(reference, local), "unknown");
    t.is(await freshnessOf(reference, local, [`${hostname()}:${port}`]), "current");
  }
});

test("the engine's certificates of a registry are trusted", async (t) => {
  const dir = await mkdtemp(join(tmpdir(), "svc-certificates-"));
  t.teardown(() => rm(dir, { recursive: true }));
  const [key, cert] = [join(dir, "key.pem"), join(dir, "cert.pem")];
  const subject = ["-subj", "/CN=registry.example", "-addext", `subjectAltName=DNS:${hostname()}`];
  const kind = ["-days", "1", "-nodes", "-newkey", "rsa:2048", "-keyout", key, "-out", cert];
  await promisify(execFile)("openssl", ["req", "-x509", ...subject, ...kind]);
  const server = createTlsServer({ key: await readFile(key), cert: await readFile(cert) }, (_, response) => {
    response.setHeader("content-type", "application/vnd.oci.image.manifest.v1+json");
    response.writeHead(200, { "docker-content-digest": digestOf("app") }).end();
  });
  server.listen(0, "0.0.0.0");
  await once(server, "listening");
  t.teardown(() => void server.close());
  const host = `${hostname()}:${(server.address() as AddressInfo).port}`;
  const ask = async () => {
    const transport = await transportFor(host, {}, dir);
    return remoteImage(`${host}/app:1`, { platform, transport });
  };
  await t.throwsAsync(ask(), { message: /cannot be reached/ });
  await mkdir(join(dir, host));
  await copyFile(cert, join(dir, host, "ca.crt"));
  t.is((await ask()).digest, digestOf("app"));
});

for (const status of [205, 600, 999]) {
  test(`a registry that returns status ${status} is not available`, async (t) => {
    await using registry = await fakeRegistry((_request, response) => {
      response.writeHead(status).end("text");
    });
    for (const name of ["app:1", `app@${digestOf("app")}`])
      await t.throwsAsync(remoteImage(`${registry.host}/${name}`, { platform, timeoutMs: 2_000 }), {
        message: /^the registry \S+ (?:cannot be reached|responded with status|returned)/,
      });
  });
}

test("svc asks the engine's mirrors first, without credentials, and then the registry", async (t) => {
  const answerWith =
    (status: number) =>
    (_request: IncomingMessage, response: ServerResponse): void => {
      const headers = { "content-type": "application/vnd.oci.image.manifest.v1+json" };
      response.writeHead(status, { ...headers, "docker-content-digest": digestOf("app") }).end();
    };
  await using registry = await fakeRegistry(answerWith(200));
  for (const [status, asked] of [
    [200, 0],
    [404, 1],
    [401, 1],
  ] as const) {
    await using mirror = await fakeRegistry(answerWith(status));
    registry.requests.length = 0;
    const engine = {
      RegistryConfig: { IndexConfigs: { [registry.host]: { Mirrors: [`http://${mirror.host}/`] } } },
    };
    const transport = await transportFor(registry.host, engine);
    t.is(
      (await remoteImage(`${registry.host}/app:1`, { platform, credentials, transport })).digest,
      digestOf("app"),
    );
    t.deepEqual(mirror.requests, ["HEAD /v2/app/manifests/1"]);
    t.is(registry.requests.length, asked);
  }
});

test("the engine's proxy is used, except for a registry of this host", async (t) => {
  await using proxy = await fakeRegistry((_request, response) => {
    const headers = { "content-type": "application/vnd.oci.image.manifest.v1+json" };
    response.writeHead(200, { ...headers, "docker-content-digest": digestOf("app") }).end();
  });
  const engine = { HttpProxy: `http://${proxy.host}`, NoProxy: "direct.example" };
  const transport = {
    ...(await transportFor("registry.example", engine)),
    mirrors: ["http://mirror.example/"],
  };
  t.is((await remoteImage("registry.example/app:1", { platform, transport })).digest, digestOf("app"));
  t.deepEqual(proxy.requests, ["HEAD http://mirror.example/v2/app/manifests/1"]);
  t.is((await transportFor("127.0.0.1:5000", engine)).proxies, undefined);
});

const engineSays = {
  InsecureRegistryCIDRs: ["127.0.0.0/8", "10.9.0.0/16"],
  IndexConfigs: { "docker.io": { Secure: true }, "registry.example:5000": { Secure: false } },
};
const insecure: [host: string, expected: boolean][] = [
  ["docker.io", false],
  ["registry.example:5000", true],
  ["registry.example", false],
  ["127.0.0.1:5000", true],
  ["localhost:5000", true],
  ["10.9.1.1:5000", true],
  ["10.8.1.1:5000", false],
];
for (const [host, expected] of insecure) {
  test(`${host} is ${expected ? "insecure" : "secure"} in the engine's configuration`, async (t) => {
    t.is(await isInsecureRegistry(host, engineSays), expected);
    if (!host.startsWith("127.") && host !== "localhost:5000") t.false(await isInsecureRegistry(host, {}));
  });
}

for (const user of [undefined, credentials]) {
  test(`a token is fetched ${user ? "with" : "without"} a password, only for reading this image`, async (t) => {
    await using registry = await fakeRegistry((request, response, host) => {
      const url = new URL(request.url ?? "", `http://${host}`);
      if (url.pathname === "/token") {
        const scope = `${url.searchParams.get("service") ?? ""} ${url.searchParams.get("scope") ?? ""}`;
        return void response.end(JSON.stringify({ token: Buffer.from(scope).toString("base64url") }));
      }
      if (request.headers.authorization?.startsWith("Bearer ") !== true) {
        const scope = "repository:team/app:pull,push";
        response.setHeader(
          "www-authenticate",
          `Bearer realm="http://${host}/token",service="the registry",scope="${scope}"`,
        );
        return void response.writeHead(401).end();
      }
      response.setHeader("content-type", "application/vnd.oci.image.manifest.v1+json");
      response.writeHead(200, { "docker-content-digest": digestOf("app") }).end();
    });
    const { digest } = await remoteImage(`${registry.host}/team/app:1`, { platform, credentials: user });
    t.is(digest, digestOf("app"));
    const basic = user && ` Basic ${Buffer.from(`${user.username}:${user.password}`).toString("base64")}`;
    const token = Buffer.from("the registry repository:team/app:pull").toString("base64url");
    t.deepEqual(registry.requests, [
      "HEAD /v2/team/app/manifests/1",
      `GET /token?service=the+registry&scope=repository%3Ateam%2Fapp%3Apull${basic ?? ""}`,
      `HEAD /v2/team/app/manifests/1 Bearer ${token}`,
    ]);
  });
}

const odd: Readonly<
  Record<string, { answer: Parameters<typeof fakeRegistry>[0]; code: ErrorCode; words: RegExp }>
> = {
  "is rate-limiting requests": {
    answer: (_request, response) => void response.writeHead(429).end(),
    code: "unavailable",
    words: /try again later$/,
  },
  "is broken": {
    answer: (_request, response) => void response.writeHead(500).end(),
    code: "unavailable",
    words: /responded with status 500$/,
  },
  "never responds": {
    answer: () => undefined,
    code: "unavailable",
    words: /did not respond within 0.5 s$/,
  },
  "refers to an unsafe token server": {
    answer: (_request, response) =>
      void response.writeHead(401, { "www-authenticate": 'Bearer realm="http://169.254.169.254/x"' }).end(),
    code: "unavailable",
    words: /unsafe token server$/,
  },
  "redirects to an unsafe address": {
    answer: (_request, response) =>
      void response.writeHead(307, { location: "http://169.254.169.254/x" }).end(),
    code: "unavailable",
    words: /unsafe URL$/,
  },
  "redirects in circles": {
    answer: (request, response) => void response.writeHead(307, { location: request.url }).end(),
    code: "unavailable",
    words: /more than 3 times$/,
  },
  "responds without end": {
    answer: (request, response) => {
      response.writeHead(200, { "content-type": indexType });
      if (request.method === "HEAD") return void response.end();
      const more = (): void => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
      };
      response.on("drain", more);
      more();
    },
    code: "unavailable",
    words: /cannot be reached$/,
  },
  "returns another image than the requested one": {
    answer: (request, response) => {
      response.writeHead(200, { "content-type": indexType });
      response.end(request.method === "HEAD" ? "" : index);
    },
    code: "unavailable",
    words: /another image/,
  },
};

for (const [title, { answer, code, words }] of Object.entries(odd)) {
  test(`a registry that ${title}`, async (t) => {
    await using registry = await fakeRegistry(answer);
    const timeoutMs = title === "never responds" ? 500 : 10_000;
    const reference = `${registry.host}/app@${digestOf("wanted")}`;
    const error = await t.throwsAsync(remoteImage(reference, { platform, timeoutMs }), {
      instanceOf: SvcError,
    });
    t.is(error.code, code);
    t.regex(error.message, words);
  });
}

test("a caller who disconnects gets an error", async (t) => {
  await using registry = await fakeRegistry(() => undefined);
  const caller = new AbortController();
  const asked = remoteImage(`${registry.host}/app`, { platform, signal: caller.signal });
  caller.abort();
  t.is((await t.throwsAsync(asked, { instanceOf: SvcError })).code, "canceled");
});

for (const [header, expected] of [
  ['Basic realm="x"', { scheme: "basic" }],
  [
    'Bearer realm="https://a/t",service="s",scope="repository:a:pull,push"',
    { realm: "https://a/t", service: "s" },
  ],
  ['bearer realm="https://a/t"', { scheme: "bearer", realm: "https://a/t", service: "", scope: "" }],
  ['Bearer service="s", realm="https://a/t?x=1,2"', { realm: "https://a/t?x=1,2" }],
  ['Negotiate, Bearer realm="https://a/t"', { scheme: "bearer" }],
  ["Bearer", undefined],
  ["", undefined],
] as const) {
  test(`challenge: ${header || "none"}`, (t) => {
    const challenge: object | undefined = parseChallenge(header);
    t.like({ challenge }, { challenge: expected });
  });
}

// Names of images in all spellings.

const sha = `sha256:${"0a".repeat(32)}`;

for (const [text, whole] of [
  ["nginx", "docker.io/library/nginx:latest"],
  ["nginx:1.27-alpine", "docker.io/library/nginx:1.27-alpine"],
  ["team/web", "docker.io/team/web:latest"],
  ["docker.io/nginx", "docker.io/library/nginx:latest"],
  ["index.docker.io/team/web:2", "docker.io/team/web:2"],
  ["ghcr.io/team/web:2", "ghcr.io/team/web:2"],
  ["localhost/web", "localhost/web:latest"],
  ["localhost:5000/web", "localhost:5000/web:latest"],
  ["127.0.0.1:5000/a/b/c:v1", "127.0.0.1:5000/a/b/c:v1"],
  ["[::1]:5000/web:1", "[::1]:5000/web:1"],
  ["Registry/web", "Registry/web:latest"],
  [`nginx@${sha}`, `docker.io/library/nginx@${sha}`],
  [`ghcr.io/a/b:1@${sha}`, `ghcr.io/a/b:1@${sha}`],
  ["a__b/c-d.e_f", "docker.io/a__b/c-d.e_f:latest"],
] as const) {
  test(`${text} is ${whole}`, (t) => {
    const reference = parseImageReference(text);
    t.is(formatImageReference(reference), whole);
    t.deepEqual(parseImageReference(whole), reference);
  });
}

for (const text of [
  "",
  " ",
  "Nginx",
  "nginx:",
  "nginx:a b",
  "nginx@sha256:short",
  `nginx@md5:${"0".repeat(32)}`,
  "nginx@",
  "/nginx",
  "a//b",
  "a/../b",
  "-a",
  "a_-b",
  "https://ghcr.io/a/b",
  "ghcr.io/",
  "ghcr.io:99999999/a",
  `nginx:${"a".repeat(129)}`,
  "a/".repeat(200) + "a",
  "user@host/web",
  "nginx\n",
  "nginx?x",
]) {
  test(`${JSON.stringify(text.slice(0, 40))} is not a valid name`, (t) => {
    const error = t.throws(() => parseImageReference(text), { instanceOf: SvcError });
    t.is(error.code, "invalid_argument");
  });
}

test("a completed name parses to the same reference, and fits into a URL's path", (t) => {
  const part = fc.stringMatching(/^[a-z0-9]{1,8}([._-][a-z0-9]{1,4}){0,2}$/);
  const host = fc.constantFrom("team/", "localhost/", "registry.example:5000/", "127.0.0.1:1/");
  const tag = fc.oneof(fc.constant(""), fc.stringMatching(/^:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}$/));
  fc.assert(
    fc.property(host, fc.array(part, { minLength: 1, maxLength: 4 }), tag, (registry, parts, end) => {
      const reference = parseImageReference(`${registry}${parts.join("/")}${end}`);
      t.deepEqual(parseImageReference(formatImageReference(reference)), reference);
      t.is(new URL(`http://x/v2/${reference.repository}/`).pathname, `/v2/${reference.repository}/`);
    }),
  );
});

for (const [host, expected] of [
  ["localhost:5000", true],
  ["127.0.0.1", true],
  ["127.9.9.9:1", true],
  ["[::1]:5000", true],
  ["127.0.0.1.example.com", false],
  ["localhost.example.com", false],
  ["10.0.0.1:5000", false],
] as const) {
  test(`${host} is ${expected ? "" : "not "}on this host`, (t) => t.is(isLoopbackHost(host), expected));
}
