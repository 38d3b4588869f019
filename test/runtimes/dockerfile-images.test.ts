/** Images of others are reached by no spelling in a Dockerfile (threat 55). */
import test from "ava";
import { requireNamedImages } from "../../src/runtimes/docker/dockerfile-images.ts";

const refused: [name: string, text: string, args?: Record<string, string>][] = [
  ["two digits of an id", "FROM 9c"],
  ["twelve digits", "FROM 9c0123456789"],
  ["a whole id", `FROM sha256:${"9c".repeat(32)}`],
  ["the beginning of a whole id", "FROM sha256:9c"],
  ["after a platform", "FROM --platform=linux/amd64 9c AS base"],
  ["in small letters", "from 9c"],
  ["on two lines", "FROM \\\n  # a comment\n  9c"],
  ["on two lines with another escape", "# escape=`\nFROM `\n9c"],
  ["cut in two", "FROM 9\\\nc"],
  ["in quotes", 'FROM "9c"'],
  ["with an escape", "FROM \\9c"],
  ["a default", "ARG BASE=9c\nFROM $BASE"],
  ["a default in quotes", 'ARG A=1 BASE="9c"\nFROM ${BASE}'],
  ["an argument", "ARG BASE=busybox\nFROM ${BASE}", { BASE: "9c" }],
  ["a default in the place", "FROM ${BASE:-9c}"],
  ["put together", "ARG A=9\nFROM ${A}c"],
  ["another form of expansion", "FROM ${BASE:+9c}"],
  ["copied from", "FROM busybox:1\nCOPY --from=9c /a /b"],
  ["copied from, behind a flag", "FROM busybox:1\nCOPY --chown=1:1 --from=9c /a /b"],
  ["copied from a stage that is not there", "FROM busybox:1\nCOPY --from=9 /a /b"],
  ["copied from later", "FROM busybox:1\nONBUILD COPY --from=9c /a /b"],
  ["in a later stage", "FROM busybox:1\nFROM 9c"],
  ["what svc built", "FROM svc.local/other:0123456789abcdef"],
  ["copied from what svc built", "FROM busybox:1\nCOPY --from=svc.local/other:0123 /a /b"],
];
for (const [name, text, args = {}] of refused) {
  test(`refused: an id, ${name}`, (t) => {
    t.like(
      t.throws(() => requireNamedImages(text, args)),
      { reason: "denied" },
    );
  });
}

const allowed: [name: string, text: string, args?: Record<string, string>][] = [
  ["a name", "FROM busybox"],
  ["a tag", "FROM 9c:1"],
  ["a registry", "FROM 127.0.0.1:5000/team/web:2 AS base\nFROM base"],
  ["a digest of a name", `FROM busybox@sha256:${"9c".repeat(32)}`],
  ["nothing", "FROM scratch"],
  ["a stage whose name is an id", "FROM busybox:1 AS 9c\nFROM 9c\nCOPY --from=9c /a /b"],
  ["a stage by its number", "FROM busybox:1\nFROM busybox:1\nCOPY --from=0 /a /b"],
  ["an argument", "ARG VERSION=1\nFROM busybox:${VERSION}-musl", { VERSION: "2" }],
  ["what is no instruction of it", "FROM busybox:1\nRUN echo FROM 9c --from=9c\nLABEL a=b"],
];
for (const [name, text, args = {}] of allowed) {
  test(`allowed: ${name}`, (t) => {
    t.notThrows(() => requireNamedImages(text, args));
  });
}
