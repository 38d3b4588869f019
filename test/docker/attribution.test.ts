/** Which app owns what, by labels and compose project. */
import test from "ava";
import { appLabels, composeProjectOf, createAttribution } from "../../src/docker/attribution.ts";

const attribution = createAttribution({ storeId: "ours", appIds: ["web", "my.app", "my-app"] });
const project = (name: string) => ({ "com.docker.compose.project": name });

for (const [title, labels, owner] of [
  ["nothing", {}, undefined],
  ["our labels", appLabels("web", "ours"), "web"],
  ["our labels of an app that is gone", appLabels("gone", "ours"), undefined],
  ["another installation's labels", appLabels("web", "theirs"), undefined],
  ["an app's label without a store", { "svc.app": "web" }, undefined],
  ["an app's compose project", project("svc-web"), "web"],
  [
    "an app's compose project, another installation's",
    { ...project("svc-web"), "svc.store": "theirs" },
    undefined,
  ],
  ["an app's compose project, ours", { ...project("svc-web"), "svc.store": "ours" }, "web"],
  ["a project that is like an app's", project("web"), undefined],
  ["a project of an app that is gone", project("svc-gone"), undefined],
  ["a project of an app with a dot", project(composeProjectOf("my.app")), "my.app"],
  ["a project of an app with a hyphen", project("svc-my-app"), "my-app"],
] as const) {
  test(`${title}: ${owner ?? "nobody's"}`, (t) => t.is(attribution(labels), owner));
}

test("compose takes the names of projects", (t) => {
  for (const id of ["a", "a.b", "a_b-c", "9.9"]) t.regex(composeProjectOf(id), /^[a-z0-9][a-z0-9_-]*$/);
});
