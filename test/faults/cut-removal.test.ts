/** A removal that the end of the daemon cuts short is gone on with by the next one, and never left as a failed app. */
import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { AppService } from "../../gen/svc/v1/app_pb.ts";
import { startDaemon } from "../support/daemon.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { startEngine } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";
import { writeFiles } from "../support/packages.ts";

/** For a machine that does much else. */
const settleMs = 90_000;

dockerTest(
  `a removal that takes longer than the daemon waits is brought to its end${needsDocker}`,
  async (t) => {
    t.timeout(240_000);
    await using engine = await startEngine();
    await engine.images.build("svc/deaf:1", {
      cmd: ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 3600 & wait; done"],
    });
    await using daemon = await startDaemon({ config: engine.config });
    const apps = daemon.client(AppService);
    await writeFiles(join(daemon.dir, "deaf"), {
      "svc.yaml": `id: deaf
name: Deaf
version: "1.0.0"
stop: { grace: 8s }
docker: { image: "svc/deaf:1" }
`,
    });
    await apps.installApp({ spec: join(daemon.dir, "deaf") });
    await apps.startApp({ id: "deaf" });
    void apps.removeApp({ id: "deaf" }).catch(() => undefined);
    await eventually(async () => assert.equal((await apps.getApp({ id: "deaf" })).operation?.kind, "remove"));

    await daemon.restart();

    await eventually(async () => assert.deepEqual((await apps.listApps({})).apps, []), settleMs);
    t.deepEqual((await engine.request("GET", "/containers/json?all=1")).expect(200), []);
    t.deepEqual(await readdir(join(daemon.storeDir, "apps")), []);
  },
);
