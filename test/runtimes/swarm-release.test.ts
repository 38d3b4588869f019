/** What tells a service of a swarm from what another version would make of it. */
import test from "ava";
import type { HandedFile } from "../../src/runtimes/swarm/handed-files.ts";
import { withRelease } from "../../src/runtimes/swarm/stack-plan.ts";
import { releaseLabel } from "../../src/runtimes/stuck-containers.ts";
import { manifestOf } from "./support/fixture.ts";

test("a service that is handed another file is another one", (t) => {
  const spec = {
    Name: "web",
    Labels: {},
    TaskTemplate: { ContainerSpec: { Image: "web:1" } },
    Mode: { Replicated: { Replicas: 1 } },
  };
  const app = { version: "1", manifest: manifestOf(["true"]), settings: {} };
  const release = (content: HandedFile["content"]): string | undefined =>
    withRelease(app, spec, [{ kind: "configs", path: "/etc/web.conf", content }]).Labels[releaseLabel];
  t.is(release("a"), release(Buffer.from("a")));
  t.not(release("a"), release("b"));
  t.not(release(Buffer.from([0xff])), release(Buffer.from([0xfe])));
});
