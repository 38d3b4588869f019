/** A compose project, from the checkout to what is run: when the engine is asked whether it is there. */
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import type { RunCommandOptions } from "../../src/identity/identity.ts";
import type { Runtime } from "../../src/packages/manifest.ts";
import { ComposeProjects, type ComposeProjectsOptions } from "../../src/runtimes/compose/compose-project.ts";
import type { RunnableApp } from "../../src/runtimes/runtime.ts";
import { policyDirectory, type PolicyDirectory } from "./support/policy-app.ts";

function projectIn(place: PolicyDirectory): RunnableApp {
  const app = place.app(0);
  const runtime = { kind: "compose", file: "compose.yaml", profiles: [], env: {} } satisfies Runtime;
  return { ...app, manifest: { ...app.manifest, runtime } };
}

test("an engine that hangs is found out while compose looks at the checkout, not after it", async (t) => {
  await using place = await policyDirectory();
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
  await t.throwsAsync(projects.resolve(projectIn(place)), { message: "enough is known" });
  t.deepEqual(done, ["engine", "checkout"]);
});

for (const isHung of [true, false]) {
  test(`compose is ${isHung ? "" : "not "}ended when the engine ${isHung ? "hangs" : "is away"}`, async (t) => {
    await using place = await policyDirectory();
    const found = Promise.withResolvers<never>();
    const run = async (_user: unknown, _args: unknown, { signal }: RunCommandOptions): Promise<never> => {
      found.reject(new SvcError("unavailable", "the engine"));
      await found.promise.catch(() => undefined);
      await new Promise(setImmediate);
      signal?.throwIfAborted();
      throw new Error("compose goes on");
    };
    const projects = new ComposeProjects({
      identities: { as: () => Promise.resolve({ readFile: () => Buffer.from(""), stat: () => undefined }) },
      events: { verify: () => found.promise, isHung },
      yaml: { read: () => Promise.resolve({ value: {} }) },
      command: { run },
    } as unknown as ComposeProjectsOptions);
    await t.throwsAsync(projects.resolve(projectIn(place)), {
      message: isHung ? "the engine" : "compose goes on",
    });
  });
}
