/** The app that owns an object on the engine, and labels that prove nothing. */
import test from "ava";
import fc from "fast-check";
import { blankedLabels, isReservedLabel } from "../../src/engine/attribution.ts";
import { createAttribution, type ObjectKind } from "../../src/engine/ownership.ts";
import { ownershipIn } from "../support/ownership.ts";

const ours = ownershipIn("ours", ["earlier"]);
const attribution = createAttribution({
  ownership: ours,
  appIds: ["web", "my.app", "my-app", "earlier"],
});
/** As svc labeled objects before proofs existed. */
const earlier = (app: string, store = "ours") => ({ "svc.app": app, "svc.store": store });

for (const [title, kind, labels, names, owner] of [
  ["without labels", "container", {}, ["svc-web-1"], undefined],
  ["with a proof", "container", ours.labels("container", "web"), [], "web"],
  ["with a proof of another kind", "container", ours.labels("image", "web"), ["svc-web-1"], undefined],
  [
    "with another app's proof",
    "container",
    { ...ours.labels("container", "my-app"), "svc.app": "web" },
    ["svc-web-1"],
    undefined,
  ],
  [
    "with an empty proof",
    "container",
    { ...earlier("earlier"), "svc.proof": "" },
    ["svc-earlier"],
    undefined,
  ],
  ["with the proof of a removed app", "container", ours.labels("container", "gone"), [], undefined],
  ["with another store's proof", "volume", ownershipIn("theirs").labels("volume", "web"), [], undefined],
  ["with the store's ID but no proof", "container", earlier("web"), ["svc-web-1"], undefined],
  ["in an app's compose project", "container", { "com.docker.compose.project": "svc-web" }, [], undefined],
  ["of an earlier app, named by svc", "container", earlier("earlier"), ["/svc-earlier-web-1"], "earlier"],
  [
    "of an earlier app that compose is replacing",
    "container",
    earlier("earlier"),
    ["0123456789ab_svc-earlier-web-1"],
    "earlier",
  ],
  [
    "of an earlier app, named by the engine",
    "container",
    earlier("earlier"),
    ["happy_sutherland"],
    undefined,
  ],
  [
    "of an earlier app of another store",
    "container",
    earlier("earlier", "theirs"),
    ["svc-earlier"],
    undefined,
  ],
  ["of an earlier app", "volume", earlier("earlier"), [], "earlier"],
  ["of an earlier app, tagged by svc", "image", earlier("earlier"), ["svc.local/earlier:1"], "earlier"],
  ["of an earlier app, tagged by a registry", "image", earlier("earlier"), ["nginx:1"], undefined],
] as const satisfies [string, ObjectKind, Record<string, string>, string[], string | undefined][]) {
  test(`a ${kind} ${title} belongs to ${owner ?? "nobody"}`, (t) =>
    t.is(attribution(kind, { labels, names }), owner));
}

const ids = fc.stringMatching(/^[a-z0-9][a-z0-9._-]{0,63}$/);

test("compose accepts the names of projects", (t) => {
  fc.assert(fc.property(ids, (id) => /^[a-z0-9][a-z0-9_-]*$/.test(ours.projectOf(id))));
  t.pass();
});

test("no two apps share the name of a project, and no service has the name of another app's container", (t) => {
  const parts = fc.array(fc.stringMatching(/^[a-z0-9]{1,4}$/), { minLength: 2, maxLength: 4 });
  const separators = fc.constantFrom("-", "_", ".");
  const property = fc.property(parts, separators, separators, (words, one, other) => {
    const names = words.slice(1).map((_, at) => {
      const [id, service] = [words.slice(0, at + 1).join(one), words.slice(at + 1).join(other)];
      return [`${ours.projectOf(id)}-${service}-1`, `${ours.projectOf(id)}_${service}`];
    });
    return new Set(names.flat()).size === 2 * names.length;
  });
  fc.assert(property);
  t.not(ours.projectOf("org.shop"), ours.projectOf("org-shop"));
});

test("the digest form of an ID with a dot is not the project of another app", (t) => {
  const known = ownershipIn("ours", ["org.shop"]);
  const asId = known.projectOf("org.shop").slice("svc-".length);
  t.not(known.projectOf(asId), known.projectOf("org.shop"));
});

test("an app from before proofs existed keeps its names", (t) => {
  t.is(ours.projectOf("earlier"), "svc-earlier");
  t.regex(ours.networkOf("earlier"), /^svc-earlier-[0-9a-f]{8}$/);
  t.regex(ours.projectOf("later"), /^svc-later-[0-9a-f]{12}$/);
});

test("another store gives the same app other names", (t) => {
  t.not(ours.projectOf("web"), ownershipIn("theirs").projectOf("web"));
  t.not(ours.networkOf("web"), ownershipIn("theirs").networkOf("web"));
});

test("only reserved labels of an image are blanked", (t) => {
  const labels = { "svc.app": "x", "com.docker.compose.project": "y", "org.example": "z", svcs: "1" };
  t.deepEqual(blankedLabels(labels), { "svc.app": "", "com.docker.compose.project": "" });
  t.deepEqual(blankedLabels(null), {});
  t.true(isReservedLabel("com.docker.stack.namespace"));
});
