/** No spelling in a Dockerfile reaches another user's image. */
import test from "ava";
import {
  requireNamedByTriggers,
  requireNamedImages,
  withImageIds,
} from "../../src/runtimes/docker/dockerfile-images.ts";

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
  ["copied from the name of its own stage", "FROM busybox:1 AS d\nCOPY --from=d /a /b"],
  ["copied from an image named as its own stage", "FROM busybox:1 AS secret\nCOPY --from=Secret /a /b"],
  ["copied from the number of its own stage", "FROM busybox:1\nCOPY --from=0 /a /b"],
  ["copied from its own stage after another", "FROM busybox:1 AS a\nFROM a AS d\nCOPY --from=d /a /b"],
  // Text that the engine reads differently than it looks.
  ["behind two backslashes, which continue nothing", "FROM busybox:1\nRUN echo \\\\\nFROM 9c"],
  ["behind a backslash and a no-break space", "FROM busybox:1\nRUN echo \\\u00a0\nFROM 9c"],
  ["behind an escape that comes too late", "# a comment\n# escape=`\nFROM busybox:1\nRUN echo `\nFROM 9c"],
  ["behind an escape after an empty line", "\n# escape=`\nFROM busybox:1\nRUN echo `\nFROM 9c"],
  ["behind an escape with a no-break space", "#\u00a0escape=`\nFROM busybox:1\nRUN echo `\nFROM 9c"],
  ["behind a next line (U+0085)", "FROM busybox:1\n\u0085FROM 9c"],
  ["after a stage of its name in a here-document", "FROM busybox:1\nRUN <<E\nFROM a AS abc\nE\nFROM abc"],
  ["after a here-document whose end continues", "FROM busybox:1\nRUN <<'E\\'\nE\\\nFROM 9c"],
  ["after a here-document behind an expansion", "FROM busybox:1\nRUN ${A:+b}<<E\nFROM a AS abc\nE\nFROM abc"],
  ["of an argument that is unset again", "ARG A=busybox:1\nARG A\nFROM ${A:-9c}"],
  ["of an argument whose name is in quotes", 'ARG "A"=9c\nFROM ${A:-busybox:1}'],
  ["of an argument behind a next line", "ARG B=1\u0085A=9c\nFROM ${A:-busybox:1}"],
  ["copied from, with an escape in the flag", "FROM busybox:1\nCOPY --fr\\om=9c /a /b"],
  ["copied from, with quotes in the flag", 'FROM busybox:1\nCOPY --fr"om"=9c /a /b'],
  ["copied from, behind half a letter", "FROM busybox:1\nCOPY --chown=\u00e0--from=9c /a /b"],
  ["what svc built", "FROM svc.local/other:0123456789abcdef"],
  ["copied from what svc built", "FROM busybox:1\nCOPY --from=svc.local/other:0123 /a /b"],
];
for (const [name, text, args = {}] of refused) {
  test(`rejected: an ID, ${name}`, (t) => {
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
  ["arguments, plainly", 'ARG A=busybox B="1"\nARG C\nFROM ${A}:${B}'],
  ["shifts and here-strings", 'FROM busybox:1\nRUN echo $((1<<2)) && cat <<<"x"'],
  ["another escape on its first line", "# escape=`\nFROM busybox:1\nRUN a `\n  b"],
  ["letters of all kinds", "FROM busybox:1\n# na\u00efve\u00a0\nRUN echo \u00fc\u00a0x \\\n  y"],
  ["text that is not an instruction", "FROM busybox:1\nRUN echo FROM 9c --from=9c\nLABEL a=b"],
];
for (const [name, text, args = {}] of allowed) {
  test(`allowed: ${name}`, (t) => {
    t.notThrows(() => requireNamedImages(text, args));
  });
}

for (const trigger of [
  "COPY --from=9c /a /b",
  'COPY --fr"om"=9c /a /b',
  "COPY --from=svc.local/other:0123 /a /b",
]) {
  test(`rejected: ${trigger} of a base image, which would run in derived builds`, (t) => {
    t.like(
      t.throws(() => requireNamedByTriggers("evil:1", [trigger])),
      { reason: "denied" },
    );
  });
}

test("allowed: triggers of a base image with only their own files and stages", (t) => {
  t.notThrows(() =>
    requireNamedByTriggers("node:onbuild", ["COPY . /app", "COPY --from=0 /a /b", "RUN make"]),
  );
});

test("an image that COPY names is replaced by its ID, and nothing else of the instruction changes", (t) => {
  const text =
    'FROM b:2 AS a\nFROM b:2\nCOPY --from=a /x /y\nCOPY --chown=1:1 \\\n# --from=c:3\n\t--FROM=c:3 ["/a  b", "/ --from=c:3"]\nONBUILD COPY --from=c:3 /x /y\nRUN x';
  const ids = new Map([
    ["b:2", "sha256:22"],
    ["c:3", "sha256:33"],
  ]);
  t.is(
    withImageIds(text, requireNamedImages(text, {}), ids),
    'FROM sha256:22 AS a\nFROM sha256:22\nCOPY --from=a /x /y\nCOPY --chown=1:1 \t--from=sha256:33 ["/a  b", "/ --from=c:3"]\n\n\nONBUILD COPY --from=c:3 /x /y\nRUN x',
  );
});

test("images replace their names, line by line", (t) => {
  const text =
    "ARG A=busybox\nFROM --platform=linux/amd64 \\\n# a comment\n  ${A}:1 AS base\nRUN x\nFROM base\nFROM b:2";
  const ids = new Map([
    ["busybox:1", "sha256:11"],
    ["b:2", "sha256:22"],
  ]);
  t.is(
    withImageIds(text, requireNamedImages(text, {}), ids),
    "ARG A=busybox\nFROM --platform=linux/amd64 sha256:11 AS base\n\n\nRUN x\nFROM base\nFROM sha256:22",
  );
});
