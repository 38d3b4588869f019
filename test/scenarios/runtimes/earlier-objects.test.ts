/** Projects that an svc without proofs started survive an upgrade, with their names and data. */
import assert from "node:assert/strict";
import { EngineOwnership, type ObjectKind } from "../../../src/engine/ownership.ts";
import { dockerTest, needsDocker, sharedEngine } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";
import { ownershipIn } from "../../support/ownership.ts";
import { searchPath } from "../../support/search-path.ts";
import { composeTest, hostSearchPath, needsCompose } from "../../runtimes/support/compose-test.ts";
import { forever, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";

const engineNow = sharedEngine();

/** Labels objects as svc did before proofs existed. */
class EarlierOwnership extends EngineOwnership {
  override labels(kind: ObjectKind, appId: string): Record<string, string> {
    const { "svc.proof": _, ...labels } = super.labels(kind, appId);
    return labels;
  }
}

function earlierOwnership(): EngineOwnership {
  return new EarlierOwnership({ storeId: "test", key: "none", isUnverified: () => true });
}

interface Listed {
  readonly Names: string[];
  readonly Labels: Record<string, string>;
  readonly State: string;
}

async function containersOf({ engine }: DockerFixture, id: string): Promise<Listed[]> {
  const filters = encodeURIComponent(JSON.stringify({ label: [`svc.app=${id}`] }));
  return (await engine.request("GET", `/containers/json?all=1&filters=${filters}`)).expect(200) as Listed[];
}

for (const [which, id, dirs] of [
  ["compose", "kept.one", searchPath],
  ["the host's own compose", "kept.two", hostSearchPath],
] as const) {
  composeTest(
    `a project survives an upgrade to proofs and keeps its volume: ${which}${needsCompose}`,
    async (t) => {
      await engineNow().images.build("svc/shell:1");
      const script = `echo once >> /rows/seen; ${forever}`;
      const file = `services: { db: { image: "svc/shell:1", command: ["/bin/sh", "-c", ${JSON.stringify(script)}], volumes: ["rows:/rows"] } }
volumes: { rows: {} }
`;
      await using before = await DockerFixture.create(engineNow(), { dirs, ownership: earlierOwnership() });
      const app = await before.app(id, "compose: { file: compose.yaml }", {
        files: { "compose.yaml": file },
      });
      await startApp(before.compose, app);
      const [old] = await containersOf(before, id);
      t.false("svc.proof" in (old?.Labels ?? {}));

      const { store } = before;
      const ownership = ownershipIn("test", [id]);
      await using after = await DockerFixture.create(engineNow(), { dirs, store, ownership });
      const { compose } = after;
      t.is(await compose.adopt(app), "running");
      await eventually(() => assert.equal(compose.status(id)?.state, "RUNNING"));
      t.deepEqual(await compose.volumes.list(id), { own: ["rows"], shared: [] });
      await compose.stop(app);
      await compose.start(app);
      const [made, ...others] = await containersOf(after, id);
      t.deepEqual(others, []);
      t.like(made, { Names: old?.Names, State: "running" });
      t.is(ownership.ownerOf("container", { labels: made?.Labels }), id, "it has a proof now");
      const [name] = (await compose.volumes.all(id)).map(({ Name }) => Name);
      t.is(name, `${ownership.projectOf(id)}_rows`);
      t.deepEqual(
        after.log.filter((line) => line.startsWith("removing a container")),
        [],
      );
      await compose.stop(app);
      t.true((await compose.remove(app)) > 0);
      t.deepEqual(await containersOf(after, id), []);
    },
  );
}

dockerTest(
  `a container survives an upgrade to proofs and is stopped and removed${needsDocker}`,
  async (t) => {
    await engineNow().images.build("svc/shell:1");
    const manifest = `docker: { image: "svc/shell:1", command: [/bin/sh, -c, ${JSON.stringify(forever)}] }`;
    await using before = await DockerFixture.create(engineNow(), { ownership: earlierOwnership() });
    const app = await before.app("single", manifest);
    await startApp(before.runtime, app);

    const { store } = before;
    await using after = await DockerFixture.create(engineNow(), {
      store,
      ownership: ownershipIn("test", ["single"]),
    });
    t.is(await after.runtime.adopt(app), "running");
    await after.runtime.stop(app);
    await after.runtime.start(app);
    t.like(after.runtime.status("single"), { state: "RUNNING" });
    t.is((await containersOf(after, "single")).length, 1);
    await after.runtime.stop(app);
    await after.runtime.remove(app);
    t.deepEqual(await containersOf(after, "single"), []);
  },
);
