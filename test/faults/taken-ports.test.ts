/**
 * An app whose port is in use keeps its desired state, even if the engine hangs while svc checks whether the app itself
 * uses the port.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { freePort, writeFiles } from "../support/packages.ts";

const script = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";
const manifest = `id: web
name: Web
version: "1.0.0"
settings: { type: object, properties: { port: { type: integer } }, required: [port] }
ports: [{ name: http, setting: port, container_port: 8080 }]
docker: { image: "svc/box:latest", entrypoint: [/bin/sh, -c], command: [${JSON.stringify(script)}] }
`;

/** The delay of the next retry of a start that has failed again: the engine's return does not wait for it. */
const nextTryMs = 12_000;
/** Above the duration of a start on a busy host, and below that delay. */
const startMs = 10_000;

dockerTest(`an app runs as soon as its port is free and its engine is back${needsDocker}`, async (t) => {
  t.timeout(240_000);
  await using engine = await startEngine();
  await engine.images.build("svc/box:latest");
  await using daemon = await startDaemon({ config: engine.config });
  const apps = daemon.client(AppService);
  const port = await freePort();
  await writeFiles(join(daemon.dir, "web"), { "svc.yaml": manifest });
  await apps.installApp({ spec: join(daemon.dir, "web"), settings: { port } });
  await apps.startApp({ id: "web" });
  await daemon.kill();
  const containers = (await engine.request("GET", "/containers/json")).expect(200) as { Id: string }[];
  for (const { Id } of containers) (await engine.request("POST", `/containers/${Id}/kill`)).expect(204);
  const stranger = createServer().listen(port);
  await once(stranger, "listening");
  try {
    await daemon.restart();
    const why = `port ${port} is in use by process ${process.pid} (node); use another one: svc `;
    await eventually(async () => {
      const { state, stateReason } = await apps.getApp({ id: "web" });
      assert.equal(state, "FAILED");
      assert.ok(stateReason.startsWith(why), stateReason);
    }, 60_000);
    await engine.pause();
    await eventually(async () => {
      const { nextRestartAt } = await apps.getApp({ id: "web" });
      assert.ok(nextRestartAt !== undefined && timestampMs(nextRestartAt) - Date.now() > nextTryMs);
    }, 60_000);
  } finally {
    stranger.close();
  }
  engine.resume();
  const backMs = performance.now();
  await eventually(async () => assert.equal((await apps.getApp({ id: "web" })).state, "RUNNING"), 60_000);
  const tookMs = performance.now() - backMs;
  t.true(tookMs < startMs, `${Math.round(tookMs)} ms`);
});
