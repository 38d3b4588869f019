/**
 * The instructions, images and descriptions that a regular user's Dockerfile may contain. `build` of a compose
 * service, as compose v2 and 1.29 print it.
 */
import test from "ava";
import { SvcError } from "../../src/errors.ts";
import {
  requireNamedByTriggers,
  requireNamedImages,
  withImageIds,
} from "../../src/runtimes/docker/dockerfile-images.ts";
import { requireBoundedMetadata } from "../../src/runtimes/docker/dockerfile-metadata.ts";
import { requireClassicSyntax, withoutNewerFlags } from "../../src/runtimes/docker/newer-syntax.ts";
import {
  requireNoTriggers,
  restrictDockerfile,
  withStageLabels,
} from "../../src/runtimes/docker/user-dockerfile.ts";
import type { JsonObject, JsonValue } from "../../src/lib/json.ts";
import {
  buildClaims,
  readBuild,
  relativeTo,
  requireInPackage,
  type ServiceBuild,
} from "../../src/runtimes/compose/service-build.ts";

// The allowed instructions in a regular user's Dockerfile, and the file that is built instead.

const rejected: [name: string, line: string][] = [
  ["a label of svc", "LABEL svc.app=victim"],
  ["a label of compose", 'LABEL a="b" com.docker.compose.project="svc-victim"'],
  ["a label of a swarm", "LABEL com.docker.swarm.service.id=1"],
  ["a label of a stack", "LABEL com.docker.stack.namespace=1"],
  ["the old form of a label", "LABEL svc.app victim"],
  ["a label in quotes", 'LABEL "svc.app"=victim'],
  ["a label in two pairs of quotes", "LABEL s''vc.app=victim"],
  ["a label with an escape", "LABEL sv\\c.app=victim"],
  ["a label on two lines", "LABEL a=b \\\n  svc.app=victim"],
  ["a label split between two lines", "LABEL a=b sv\\\nc.app=victim"],
  ["a label behind an escaped quote", 'LABEL a="\\" svc.app=victim b="'],
  ["a label behind a space of another kind", "LABEL a=b\u2003svc.app=victim"],
  ["a label behind a next line", "LABEL a=b\u0085svc.app=victim"],
  ["a label in small letters", "label svc.app=victim"],
  ["a variable in the name of a label", "LABEL ${NAME}=victim"],
  ["a variable in the name of a later label", "LABEL a=b s${NAME}=victim"],
  ["a variable in the old form", "LABEL $NAME victim"],
  ["a trigger", "ONBUILD RUN true"],
  ["a label in a trigger", "ONBUILD LABEL svc.app=victim"],
  ["a URL in a trigger", "ONBUILD ADD http://127.0.0.1/ /x"],
  ["a URL", "ADD http://127.0.0.1/x /x"],
  ["a URL as JSON", 'ADD ["http://127.0.0.1/x", "/x"]'],
  ["a URL behind a flag", "ADD --chown=1:1 https://127.0.0.1/x /x"],
  ["a repository", "ADD git@example.org:a/b.git /x"],
  ["an archive", "ADD rootfs.tar.xz /"],
  ["an archive as JSON", 'ADD ["a.tgz", "/"]'],
  ["a range of exposed ports above the bound", "EXPOSE 1-65535/tcp"],
  ["exposed ports above the bound on two lines", "EXPOSE 2000-2300\nEXPOSE 3000-3300/udp"],
  ["a variable as an exposed port", "ENV P=1-65535\nEXPOSE $P"],
  ["a variable of another stage as an exposed port", "ENV P=80\nFROM busybox:1\nEXPOSE $P"],
  ["a variable as an exposed port on continued lines", "ENV P=80\nEXPOSE \\\n$P"],
  [
    "a variable that grows with each line as an exposed port",
    `ENV A0=1\n${Array.from({ length: 40 }, (_, n) => `ENV A${n + 1}=$A${n}$A${n}$A${n}$A${n}`).join("\n")}\nEXPOSE $A40`,
  ],
  ["an exposed port in quotes", 'EXPOSE "1-6"5535'],
  ["exposed ports on continued lines", "expose 1-\\\n65535"],
  ["volumes above the bound", `VOLUME ${Array.from({ length: 65 }, (_, n) => `/v${n}`).join(" ")}`],
  [
    "volumes above the bound as JSON",
    `VOLUME ${JSON.stringify(Array.from({ length: 65 }, (_, n) => `/v${n}`))}`,
  ],
  ["ADD on two lines", "A\\\nDD a /b"],
];
for (const [name, line] of rejected) {
  test(`a user's Dockerfile is rejected with ${name}`, (t) => {
    const error = t.throws(() => restrictDockerfile(`FROM busybox:1\n${line}\n`));
    t.like(error, { reason: "denied" });
  });
}

for (const line of [
  "LABEL maintainer=me description='see svc.example.org for svc' \\\n  org.opencontainers.image.version=$VERSION",
  "LABEL com.docker.extension.api.version=1",
  "LABEL maintainer John Doe",
  "RUN echo LABEL svc.app=1",
  "EXPOSE 80 443/tcp 2000-2509/udp",
  'VOLUME ["/data", "/cache"]\nVOLUME /log $OTHER',
]) {
  test(`a user's Dockerfile may have ${line}`, (t) => {
    const text = `FROM busybox:1\n${line}\n`;
    t.is(restrictDockerfile(text), text);
  });
}

test("EXPOSE is built with the values of its stage's variables", (t) => {
  t.is(
    restrictDockerfile(
      "FROM busybox:1\nARG PORT=3000\nENV OTHER 53\nexpose $PORT ${OTHER}/udp ${NONE:-80}\nRUN x\n",
    ),
    "FROM busybox:1\nARG PORT=3000\nENV OTHER 53\nEXPOSE 3000 53/udp 80\nRUN x\n",
  );
});

test("ADD is built as COPY, which downloads and unpacks nothing", (t) => {
  t.is(
    restrictDockerfile('FROM busybox:1\nADD --chown=1:1 a \\\n  b /c\n  add ["$X", "/d"]\nRUN echo ADD\n'),
    'FROM busybox:1\nCOPY --chown=1:1 a \\\n  b /c\n  COPY ["$X", "/d"]\nRUN echo ADD\n',
  );
});

test("each stage blanks the reserved labels of its base image", (t) => {
  const text = "ARG A=1\nFROM a:1 AS one\nRUN x\nFROM \\\n  b:2\nFROM one\n";
  const labels = new Map([
    [0, ["com.docker.compose.project", "maintainer"]],
    [1, ["svc.builder", 'svc.odd"=', "svc.app"]],
  ]);
  t.is(
    withStageLabels(text, labels, { name: "svc.builder", value: "7" }),
    'ARG A=1\nFROM a:1 AS one\nLABEL "com.docker.compose.project"="" "svc.builder"="7"\nRUN x\nFROM \\\n  b:2\nLABEL "svc.app"="" "svc.builder"="7"\nFROM one\nLABEL "svc.builder"="7"\n',
  );
});

test("a base image with ONBUILD is rejected", (t) => {
  t.like(
    t.throws(() => requireNoTriggers("a:1", ["RUN x"])),
    { reason: "denied" },
  );
  t.notThrows(() => requireNoTriggers("a:1", []));
});

// No spelling in a Dockerfile reaches another user's image.

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

// How long the descriptions of the images may get that a regular user's Dockerfile creates.

const kib = 1024;
const long = "a".repeat(kib);
const lines = (count: number, line: (index: number) => string): string =>
  Array.from({ length: count }, (_, index) => line(index)).join("\n");

const base = { environment: [`BASE=${"b".repeat(8 * kib)}`], descriptionBytes: 10 * kib };
const args = { GIVEN: "g".repeat(8 * kib) };

const tooLong: [name: string, text: string][] = [
  ["a variable that doubles", `ENV A=${long}\n${lines(16, () => "ENV A=$A$A")}`],
  ["a variable in braces that doubles", `ENV A=${long}\n${lines(16, () => "ENV A=${A}${A:-$A}")}`],
  ["a variable in the old form that doubles", `ENV A ${long}\n${lines(16, () => "ENV A $A $A")}`],
  ["a quoted variable that doubles", `ENV A=${long}\n${lines(16, () => 'ENV A="$A B=$A"')}`],
  ["two variables that double in turn", `ENV A=${long}\n${lines(10, () => "ENV B=$A$A A=$A$A\nENV A=$B$B")}`],
  ["an argument that doubles", `ARG A=${long}\n${lines(16, () => "ARG A=$A$A")}`],
  ["a variable with a quoted name", `ENV A=${long}\n${lines(16, () => 'ENV "A"=$A$A')}`],
  ["a variable with an escaped name", `ENV A=${long}\n${lines(16, () => "ENV \\A=$A$A")}`],
  ["a variable whose name is in another one", `ENV N=A A=${long}\n${lines(16, () => "ENV $N=$A$A")}`],
  ["a variable with a number as its name", `ENV 1=${long}\n${lines(16, () => "ENV 1=$1$1")}`],
  ["a variable with letters beyond ASCII", `ENV é=${long}\n${lines(16, () => "ENV é=$é$é")}`],
  ["text that is replaced in a variable", `ENV A=${long}\nLABEL a=\${A/a/${long}}`],
  ["many labels of one variable", `ENV A=${long}\nLABEL ${lines(200, (n) => `l${n}=$A \\`)}\n x=1`],
  ["a variable of the base image, often", `LABEL ${lines(20, (n) => `l${n}=$BASE \\`)}\n x=1`],
  ["an argument that the build sets, often", `ARG GIVEN\nLABEL ${lines(20, (n) => `l${n}=$GIVEN \\`)}\n x=1`],
  ["commands that repeat long arguments", `ARG GIVEN\n${lines(20, (n) => `RUN echo ${n}`)}`],
  ["paths of a long variable", `ENV A=${long}\n${lines(150, () => "COPY a $A")}`],
  ["many instructions", lines(257, (n) => `ENV A=${n}`)],
  ["many steps on long labels", `LABEL a=${long.repeat(60)}\n${lines(80, (n) => `ENV A=${n}`)}`],
];
for (const [name, text] of tooLong) {
  test(`a user's Dockerfile is rejected with ${name}`, (t) => {
    const error = t.throws(() => requireBoundedMetadata(`FROM base:1\n${text}\n`, args, [base]));
    t.like(error, { reason: "denied" });
  });
}

const shortEnough: [name: string, text: string][] = [
  ["a path that grows", lines(60, (n) => `ENV PATH=/opt/${n}/bin:$PATH`)],
  ["variables that extend each other", lines(60, (n) => `ENV A=/a/${n} B=$A/b C=$B/c`)],
  ["a long script", `RUN ${lines(500, (n) => `echo "$A$B$C" >> /log-${n} && \\`)}\n true`],
  [
    "commands that use variables of the shell",
    lines(200, () => 'RUN for f in $(ls); do echo "$f $1 ${f%.c}"; done'),
  ],
  ["a default with a path", "WORKDIR ${HOME:-/usr/local/app}"],
  ["many labels", lines(60, (n) => `LABEL org.example.label-${n}="some text of $VERSION"`)],
];
for (const [name, text] of shortEnough) {
  test(`a user's Dockerfile is accepted with ${name}`, (t) => {
    const plain = { environment: ["PATH=/usr/local/bin:/usr/bin:/bin"], descriptionBytes: 3 * kib };
    t.notThrows(() =>
      requireBoundedMetadata(`FROM base:1\nARG VERSION=1\n${text}\n`, { VERSION: "2" }, [plain]),
    );
  });
}

const run = (part: string, length = 65_536): string => part.repeat(Math.floor(length / part.length));
const manyPairs = Array.from({ length: 9_000 }, (_, index) => `a${index}=1`).join(" ");
const slow: readonly (readonly [title: string, text: string])[] = [
  ["a run of carriage returns", `FROM a\nRUN ${run("\r")}x\n`],
  ["a run of spaces and tabs", `FROM a\nRUN ${run("\t ")}x\n`],
  ["a long name of an argument", `ARG ${run("a")}!\nFROM a\n`],
  ["arguments that double", `${"ARG A=$A$A\n".repeat(40).replace("$A$A", "abcdefgh")}FROM $A\n`],
  ["an image of many arguments", `ARG A=${"a".repeat(4_096)}\nFROM ${run("$A", 262_144)}\n`],
  ["many triggers", `FROM a\n${run("ONBUILD ")}RUN x\n`],
  ["many flags", `FROM a\nCOPY ${run("--link \\\n")}a b\n`],
  ["many variables", `FROM a\nENV ${manyPairs}\n`],
  ["many ports", `FROM a\nEXPOSE ${run("1 ", 262_144)}\n`],
];
for (const [title, text] of slow) {
  test(`a Dockerfile with ${title} does not block the daemon`, (t) => {
    const checks = [
      () => requireClassicSyntax(text, "a reason"),
      () => withoutNewerFlags(text, "linux/amd64"),
      () => restrictDockerfile(text),
      () => requireNamedImages(text, {}),
      () => requireBoundedMetadata(text, {}, []),
    ];
    const before = process.cpuUsage();
    for (const check of checks) {
      try {
        check();
      } catch (error) {
        t.true(error instanceof SvcError, String(error));
      }
    }
    const { user, system } = process.cpuUsage(before);
    t.true(user + system < 1_500_000, `${user + system} µs of CPU time`);
  });
}

// `build` of a compose service, as compose v2 and 1.29 print it.

const directory = "/apps/a/repo";

function read(build: JsonValue, secrets: JsonObject = {}): ServiceBuild {
  return {
    ...readBuild("web", build, {
      file: "compose.yaml",
      secrets,
      builtTag: (name) => `svc.local/a-${name}:1`,
    }),
    isRepeated: false,
  };
}

const at = (more: JsonObject): JsonObject => ({ context: `${directory}/app`, ...more });

const settings: readonly (readonly [name: string, build: JsonObject, settings: object])[] = [
  ["no_cache", { no_cache: true }, { noCache: true }],
  ["no_cache that is off", { no_cache: false }, {}],
  ["a platform", { platforms: ["linux/arm64"] }, { platform: "linux/arm64" }],
  ["several platforms with the host's", { platforms: ["linux/amd64", "linux/arm64"] }, {}],
  ["the default network", { network: "default" }, {}],
  ["no network", { network: "none" }, { network: "none" }],
  ["bytes of shared memory as text", { shm_size: "67108864" }, { shmBytes: 67_108_864 }],
  ["shared memory with a unit", { shm_size: "64m" }, { shmBytes: 67_108_864 }],
  ["hosts of compose v2", { extra_hosts: ["h=127.0.0.1"] }, { extraHosts: ["h=127.0.0.1"] }],
  ["hosts with a colon", { extra_hosts: ["h:::1"] }, { extraHosts: ["h=::1"] }],
  [
    "hosts by name",
    { extra_hosts: { h: ["10.0.0.1", "10.0.0.2"] } },
    { extraHosts: ["h=10.0.0.1", "h=10.0.0.2"] },
  ],
  ["a limit", { ulimits: { nofile: 100 } }, { ulimits: ["nofile=100:100"] }],
  ["a limit of compose v2", { ulimits: { nofile: { single: 100 } } }, { ulimits: ["nofile=100:100"] }],
  ["two limits", { ulimits: { nofile: { soft: 1, hard: 2 } } }, { ulimits: ["nofile=1:2"] }],
  [
    "additional contexts",
    { additional_contexts: { a: `${directory}/x`, b: "docker-image://busybox:1", c: "service:base" } },
    {
      contexts: { a: `${directory}/x` },
      remoteContexts: { b: "docker-image://busybox:1", c: "docker-image://svc.local/a-base:1" },
    },
  ],
];

for (const [name, build, expected] of settings) {
  test(`a build has ${name}`, (t) => {
    t.deepEqual(read(at(build)).settings, expected);
  });
}

test("arguments without a value keep the Dockerfile's default", (t) => {
  t.deepEqual(read(at({ args: { A: "1", B: null, C: "" } })).args, { A: "1", C: "" });
  t.deepEqual(read(at({ args: ["A=1", "B"] })).args, { A: "1" });
});

test("a Dockerfile may be beside the context, or in the compose file", (t) => {
  const beside = read(at({ dockerfile: "../docker/app.Dockerfile" }));
  t.is(beside.dockerfile, "../docker/app.Dockerfile");
  t.notThrows(() => requireInPackage("compose.yaml", beside, directory));
  t.is(read(at({ dockerfile_inline: "FROM a\n" })).inline, "FROM a\n");
});

test("secrets are files of the package or values", (t) => {
  const build = read(at({ secrets: ["a", { source: "b", target: "renamed" }] }), {
    a: { file: `${directory}/s.txt` },
    b: { content: "value" },
  });
  t.deepEqual(
    relativeTo("/apps/a", build).settings.secrets,
    new Map<string, object>([
      ["a", { file: "repo/s.txt" }],
      ["renamed", { value: "value" }],
    ]),
  );
});

for (const [what, build, secrets = {}] of [
  ["the build context", { context: "/etc" }],
  ["the Dockerfile", at({ dockerfile: "/etc/passwd" })],
  ['the context "x"', at({ additional_contexts: { x: "/etc" } })],
  ['the secret "s"', at({ secrets: ["s"] }), { s: { file: "/etc/shadow" } }],
] as [string, JsonObject, JsonObject?][]) {
  test(`${what} may not be outside the package`, (t) => {
    const { message: seen } = t.throws(() =>
      requireInPackage("compose.yaml", read(build, secrets), directory),
    );
    t.true(seen.includes(`${what} is outside the package`), seen);
  });
}

test("the host's network is a permission, and other networks are rejected", (t) => {
  t.is(buildClaims(read(at({ network: "host" }))).requirements[0]?.permission, "host_network");
  t.deepEqual(buildClaims(read(at({ network: "none" }))).requirements, []);
  t.throws(() => read(at({ network: "container:other" })), {
    message: /cannot use the network "container:other"; use "host" or "none"/,
  });
});

for (const [key, value] of [
  ["ssh", ["default"]],
  ["privileged", true],
  ["entitlements", ["security.insecure"]],
  ["unknown", 1],
  ["platforms", ["linux/s390x", "linux/ppc64le"]],
] as const) {
  test(`"${key}" in build is rejected by its name`, (t) => {
    t.throws(() => read(at({ [key]: value as JsonValue })), { message: new RegExp(`"${key}"`) });
  });
}
