/** Streams that are silent for long: the daemon sends keep-alives, and nginx in front of it does not close the response. */
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { access, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { toBinary, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import test, { type ExecutionContext } from "ava";
import { AppLogsSchema, AppService } from "../../gen/svc/v1/app_pb.ts";
import { ScheduleRunSchema, ScheduleService } from "../../gen/svc/v1/schedule_pb.ts";
import { EventSchema, EventService } from "../../gen/svc/v1/event_pb.ts";
import { keepAliveHeader } from "../../src/lib/keep-alive.ts";
import { defaultStreamKeepAliveMs } from "../../src/server/rpc/running-calls.ts";
import { openConsole } from "../console/support/socket-console.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writePackage } from "../support/packages.ts";

const timeoutMs = 60_000;
const config = "[api.limits]\nstream_keep_alive_ms = 300\n";
const nginx = "/usr/sbin/nginx";
const hasNginx = await access(nginx).then(
  () => true,
  () => false,
);
const nginxTest = hasNginx ? test : test.skip;
const why = hasNginx ? "" : " (skipped: no nginx)";

/** Events of an app that has none: the stream starts, and is silent then. */
async function quietEvents(
  daemon: TestDaemon,
  port = daemon.port,
): Promise<ReadableStreamDefaultReader<string>> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/events?app_id=quiet`, {
    headers: { authorization: `Bearer ${daemon.token}` },
    signal: AbortSignal.timeout(timeoutMs),
  });
  assert.equal(response.status, 200);
  assert.ok(response.body);
  return response.body.pipeThrough(new TextDecoderStream()).getReader();
}

async function readFor(reader: ReadableStreamDefaultReader<string>, ms: number): Promise<string> {
  const endMs = performance.now() + ms;
  let text = "";
  while (performance.now() < endMs) {
    const { done, value } = await reader.read();
    if (done) throw new Error(`the stream ended after ${JSON.stringify(text)}`);
    text += value;
  }
  return text;
}

test("a silent stream of JSON lines sends empty lines", async (t) => {
  await using daemon = await startDaemon({ config });
  const events = await quietEvents(daemon);
  const text = await readFor(events, 1_500);
  await events.cancel();
  t.true(text.split("\n").filter((line) => line === "").length >= 4, text);
  for (const line of text.split("\n").filter((line) => line !== "")) t.notThrows(() => void JSON.parse(line));
});

for (const protocol of ["connect", "grpc"] as const) {
  test(`a silent stream sends empty messages only to clients that ignore them: ${protocol}`, async (t) => {
    await using daemon = await startDaemon({ config });
    const ignore: Interceptor = (next) => (request) => {
      request.header.set(keepAliveHeader, "1");
      return next(request);
    };
    const received = async (interceptors: Interceptor[]): Promise<string[]> => {
      const authorize: Interceptor = (next) => (request) => {
        request.header.set("authorization", `Bearer ${daemon.token}`);
        return next(request);
      };
      const options = {
        baseUrl: `http://127.0.0.1:${daemon.port}`,
        interceptors: [authorize, ...interceptors],
      };
      const transport =
        protocol === "grpc"
          ? createGrpcTransport(options)
          : createConnectTransport({ ...options, httpVersion: "1.1" });
      const kinds: string[] = [];
      const stream = createClient(EventService, transport).streamEvents(
        { appId: "quiet" },
        { signal: AbortSignal.timeout(2_000) },
      );
      try {
        for await (const { kind } of stream) kinds.push(kind);
      } catch {
        // The signal ends the stream.
      }
      return kinds;
    };
    t.deepEqual(await received([]), ["begin"]);
    const [first, ...rest] = await received([ignore]);
    t.is(first, "begin");
    t.true(rest.length >= 3 && rest.every((kind) => kind === ""), String(rest.length));
  });
}

test("silent streams send a keep-alive within 30 s by default", async (t) => {
  await using daemon = await startDaemon();
  const directory = join(daemon.dir, "package");
  await writePackage(directory, await freePort());
  const { id } = await daemon.client(AppService).installApp({ spec: directory });
  await daemon.client(AppService).startApp({ id });
  const stop = new AbortController();
  t.teardown(() => stop.abort());
  const options = { signal: stop.signal, headers: { [keepAliveHeader]: "1" } };
  const startedMs = performance.now();
  const untilEmpty = async <D extends DescMessage>(
    type: D,
    messages: AsyncIterable<MessageShape<D>>,
  ): Promise<boolean> => {
    for await (const message of messages) {
      // The first message of a stream may be empty, too.
      const isLate = performance.now() - startedMs > defaultStreamKeepAliveMs / 2;
      if (isLate && toBinary(type, message).length === 0) return true;
    }
    return false;
  };
  const received = (["connect", "grpc"] as const).flatMap((protocol) => [
    untilEmpty(EventSchema, daemon.client(EventService, protocol).streamEvents({ appId: "quiet" }, options)),
    untilEmpty(AppLogsSchema, daemon.client(AppService, protocol).streamAppLogs({ id }, options)),
    untilEmpty(ScheduleRunSchema, daemon.client(ScheduleService, protocol).followScheduleRuns({}, options)),
  ]);
  const events = await quietEvents(daemon);
  const empty = (async () => {
    for (let text = ""; !text.includes("\n\n"); text += (await events.read()).value ?? "");
    return true;
  })();
  t.true((await Promise.all([...received, empty])).every(Boolean));
  const seconds = (performance.now() - startedMs) / 1_000;
  t.true(seconds < 35, `${seconds} s; 30 s are promised, and a busy host delays it`);
});

/** Starts nginx with the configuration that people paste, but with a shorter timeout. @returns its port */
async function startNginx(t: ExecutionContext, daemon: TestDaemon): Promise<number> {
  const dir = join(daemon.dir, "nginx");
  await mkdir(dir);
  const port = await freePort();
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${dir}/${name};`,
  );
  await writeFile(
    join(dir, "nginx.conf"),
    `daemon off; master_process off; pid ${dir}/pid; error_log ${dir}/errors;
events {}
http {
  access_log off; ${paths.join(" ")}
  map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
  server {
    listen 127.0.0.1:${port};
    gzip on; gzip_types application/x-ndjson application/json;
    location / {
      proxy_pass http://127.0.0.1:${daemon.port}; proxy_http_version 1.1; proxy_read_timeout 4s;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;
    }
  }
}
`,
  );
  const child = spawn(nginx, ["-p", dir, "-c", "nginx.conf"], { stdio: "inherit" });
  t.teardown(() => child.kill("SIGKILL"));
  await eventually(() => fetch(`http://127.0.0.1:${port}/healthz`), timeoutMs);
  return port;
}

nginxTest(`events, the page, a console and an upload work through nginx${why}`, async (t) => {
  await using daemon = await startDaemon({ config });
  const dir = join(daemon.dir, "web");
  await writePackage(dir, await freePort(), { manifest: "console: { exec: [sh, -i] }\n" });
  const apps = daemon.client(AppService);
  await apps.installApp({ spec: dir });
  const port = await startNginx(t, daemon);

  const events = await quietEvents(daemon, port);
  t.true((await readFor(events, 8_000)).includes("begin"));
  await events.cancel();

  const page = await fetch(`http://127.0.0.1:${port}/`);
  t.is(page.status, 200);
  t.regex(await page.text(), /<script/);

  const { token } = await apps.issueConsoleToken({ appId: "web", session: "attach" });
  const origin = `http://127.0.0.1:${port}`;
  const console = await openConsole(
    { port },
    { appId: "web", session: "attach", token, headers: { origin } },
  );
  await console.shows(/[#$] /);
  console.type("echo through-$((40+2))\n");
  await console.shows("through-42");
  console.socket.close();

  const upload = await fetch(`http://127.0.0.1:${port}/v1/files/content?path=${daemon.dir}/uploaded`, {
    method: "PUT",
    headers: { authorization: `Bearer ${daemon.token}`, "content-type": "application/octet-stream" },
    body: Buffer.alloc(900_000, "a"),
  });
  t.is(upload.status, 200, await upload.text());
  t.is(
    execFileSync("wc", ["-c", join(daemon.dir, "uploaded")], { encoding: "utf8" }).split(" ")[0],
    "900000",
  );
});

nginxTest(`without keep-alives, nginx closes a silent stream${why}`, async (t) => {
  await using daemon = await startDaemon();
  const port = await startNginx(t, daemon);
  const events = await quietEvents(daemon, port);
  await t.throwsAsync(Promise.race([readFor(events, 30_000), delay(30_000)]));
});
