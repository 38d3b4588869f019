/** Limits on the images and volumes of users, as the engine lists them. */
import test from "ava";
import type Dockerode from "dockerode";
import { UserObjects } from "../../src/runtimes/containers/user-objects.ts";
import { ownershipIn } from "../support/ownership.ts";

const uid = 1000;
const other = 1001;
const ownership = ownershipIn("test");
/** In the engine's list, every character has six bytes. */
const text = (kib: number): string => "\u2028".repeat((kib * 1024) / 6);

interface Listed {
  readonly id: string;
  readonly note?: string;
  /** The app that it was built or created for. */
  readonly appId?: string;
  readonly pulledFor?: readonly number[];
}

function objectsOver(listed: readonly Listed[]): UserObjects {
  const labelsOf = (kind: "image" | "volume", { note = "", appId }: Listed) => ({
    ...{ note },
    ...(appId !== undefined && ownership.labels(kind, appId)),
  });
  const docker = {
    listImages: async () =>
      listed.map((each) => ({
        ...{ Id: each.id, RepoTags: [`svc.local/${each.id}:1`], Labels: labelsOf("image", each) },
      })),
    listVolumes: async () => ({
      Volumes: listed.map((each) => ({ Name: each.id, Labels: labelsOf("volume", each) })),
    }),
  };
  const owners = new Map([
    ["mine", uid],
    ["theirs", other],
    ["roots", 0],
  ]);
  return new UserObjects({
    engine: { call: (_what, work) => work(docker as unknown as Dockerode, new AbortController().signal) },
    ownership,
    ownerOf: (appId) => owners.get(appId),
    pulled: () => new Map(listed.map(({ id, pulledFor = [] }) => [id, pulledFor])),
  });
}

const many = (count: number, each: Omit<Listed, "id">): Listed[] =>
  Array.from({ length: count }, (_, at) => ({ ...each, id: `each-${at}` }));

for (const [what, listed, refused] of [
  [
    "256 images that were pulled",
    many(256, { pulledFor: [uid] }),
    /your apps have 256, .* at most 256 images/,
  ],
  ["256 images that were built", many(256, { appId: "mine" }), /your apps have 256, .* at most 256 images/],
  ["255 images", many(255, { pulledFor: [uid] }), undefined],
  ["images of others", [...many(300, { pulledFor: [other] }), ...many(300, { appId: "roots" })], undefined],
  [
    "images with long labels",
    many(33, { pulledFor: [uid], note: text(126) }),
    /list your images with \d+ bytes/,
  ],
  [
    "images of all users with long labels",
    many(130, { pulledFor: [other], note: text(126) }),
    /list all users' images with \d+ bytes, more than 16777216/,
  ],
  ["images of root with long labels", many(300, { note: text(126) }), undefined],
] as const) {
  test(`a user beside ${what} ${refused === undefined ? "gets" : "does not get"} another image`, async (t) => {
    const objects = objectsOver(listed);
    const required = objects.requireImages(uid, "new", "web:1");
    if (refused === undefined) return t.notThrowsAsync(required);
    const error = await t.throwsAsync(required, { message: refused });
    return t.like(error, { reason: "too_many" });
  });
}

test("an existing image counts once", async (t) => {
  await t.notThrowsAsync(objectsOver(many(256, { pulledFor: [uid] })).requireImages(uid, "each-1", "web:1"));
});

for (const [what, listed, missing, refused] of [
  ["its own long labels", [], Array.from({ length: 20 }, () => ({ note: text(126) })), /list your volumes/],
  ["long labels of earlier ones", many(17, { appId: "mine", note: text(126) }), [{}], /list your volumes/],
  ["long labels of others", many(70, { appId: "theirs", note: text(126) }), [{}], /list all users' volumes/],
  ["long labels of root's", many(70, { appId: "roots", note: text(126) }), [{}], undefined],
] as const) {
  test(`volumes with ${what} are ${refused === undefined ? "created" : "rejected"}`, async (t) => {
    const required = objectsOver(listed).requireVolumes("mine", missing);
    if (refused === undefined) return t.notThrowsAsync(required);
    return t.like(await t.throwsAsync(required, { message: refused }), { reason: "too_many" });
  });
}
