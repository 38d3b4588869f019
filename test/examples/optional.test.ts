/** What `npm start` says that this machine lacks. */
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "ava";
import { missing } from "../../.ci/optional.ts";

test.serial("Docker is looked for where DOCKER_HOST says, as the daemon does", async (t) => {
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
