/** A compose project, from the checkout to what is run: when the engine is asked whether it is there. */
import test from "ava";
import type { Runtime } from "../../src/packages/manifest.ts";
import { ComposeProjects, type ComposeProjectsOptions } from "../../src/runtimes/compose/compose-project.ts";
import { policyDirectory } from "./support/policy-app.ts";

test("an engine that hangs is found out while compose looks at the checkout, not after it", async (t) => {
  await using place = await policyDirectory();
  const app = place.app(0);
  const done: string[] = [];
  const projects = new ComposeProjects({
    identities: {
      as: () => {
        done.push("checkout");
        return Promise.reject(new Error("enough is known"));
      },
    },
    events: {
      verify: () => {
        done.push("engine");
        return Promise.reject(new Error("the engine hangs"));
      },
    },
  } as unknown as ComposeProjectsOptions);
  const runtime = { kind: "compose", file: "compose.yaml", profiles: [], env: {} } satisfies Runtime;
  const running = { ...app, manifest: { ...app.manifest, runtime } };
  await t.throwsAsync(projects.resolve(running), { message: "enough is known" });
  t.deepEqual(done, ["engine", "checkout"]);
});
