/** Builds of typical compose files on a real engine: root's with BuildKit, regular users' without. */
import assert from "node:assert/strict";
import test from "ava";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { failureOf, forever, sharedFixture } from "../runtimes/support/container-tests.ts";
import { DockerFixture } from "../runtimes/support/docker-fixture.ts";
import { composeGenerations } from "../support/compose-generations.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";
import { whyNoDocker } from "../support/docker.ts";
import { eventually } from "../support/eventually.ts";

const fixtureNow = sharedFixture();
const second = composeGenerations.find(({ isClassic }) => !isClassic)!;
const skipped = needsDocker || second.missing;
const runTest = second.missing === "" ? dockerTest : test.skip;
let shared: DockerFixture | undefined;
if (whyNoDocker === undefined && second.missing === "") {
  test.before(async () => {
    shared = await DockerFixture.create(fixtureNow().engine, { dirs: second.dirs });
  });
  test.after.always(() => shared?.[Symbol.asyncDispose]());
}

type Files = Readonly<Record<string, string>>;

const manifest = "compose: { file: compose.yaml }";
const show = (path: string): string => `CMD ["/bin/sh", "-c", "cat ${path}; ${forever}"]\n`;

function fixture(): DockerFixture {
  assert.ok(shared !== undefined);
  return shared;
}

/** The minor API version of the engine; Docker 23.0 has 42. */
async function apiMinor(): Promise<number> {
  const version = (await fixture().engine.request("GET", "/version")).expect(200) as { ApiVersion: string };
  return Number(version.ApiVersion.split(".")[1]);
}

/** Starts the project, and requires these lines in its output. */
async function requireRuns(
  id: string,
  files: Files,
  lines: readonly string[],
  uid = 0,
  more = "",
): Promise<string[]> {
  const { compose } = fixture();
  const app: RunnableApp = await fixture().app(id, `${manifest}${more}`, { uid, files });
  const progress: string[] = [];
  await compose.prepare(app, { onProgress: ({ message }) => progress.push(message) });
  await compose.start(app);
  await eventually(async () => {
    const texts = (await compose.logs(app, { tail: 50 })).lines.map(({ text }) => text);
    for (const line of lines) assert.ok(texts.includes(line), `${line} is missing in ${texts.join("\n")}`);
  });
  await compose.stop(app);
  await compose.remove(app);
  return progress;
}

const beside: Files = {
  "app/f": "from the context\n",
  "docker/app.Dockerfile": `FROM svc/shell:1\nARG EDITION=unset\nARG INHERITED=default\nCOPY f /f\nRUN ls -a / | grep -c dockerfile- >> /f; echo $EDITION $INHERITED >> /f\n${show("/f")}`,
  "compose.yaml": `services:
  app:
    build:
      context: ./app
      dockerfile: ../docker/app.Dockerfile
      args: [EDITION=free, INHERITED]
      no_cache: true
      tags: ["x:y"]
      platforms: [linux/${process.arch === "arm64" ? "arm64" : "amd64"}]
      extra_hosts: ["h:127.0.0.1"]
  side:
    build:
      context: .
      dockerfile_inline: |
        FROM svc/shell:1
        RUN echo inline > /o
        ${show("/o").trim()}
`,
};

for (const [owner, uid] of [
  ["root", 0],
  ["a regular user", 65_534],
] as const) {
  runTest(
    `a Dockerfile beside the context and one in the compose file build for ${owner}${skipped}`,
    async (t) => {
      const files =
        uid === 0
          ? beside
          : { ...beside, "compose.yaml": beside["compose.yaml"]!.replace(/ +extra_hosts.*\n/, "") };
      const lines = ["app | from the context", "app | 0", "app | free default", "side | inline"];
      const progress = await requireRuns(`beside-${uid}`, files, lines, uid);
      t.true(
        progress.includes('service "app": svc names the image itself, without "tags"'),
        progress.join("\n"),
      );
    },
  );
}

runTest(
  `a build has the network, shared memory, limits and hosts that the file sets${skipped}`,
  async (t) => {
    const files = {
      Dockerfile: `FROM svc/shell:1\nRUN ls /sys/class/net | xargs > /o; df -k /dev/shm | tail -1 | tr -s ' ' | cut -d' ' -f2 >> /o; ulimit -n >> /o; grep h.example /etc/hosts | tr '\\t' ' ' >> /o\n${show("/o")}`,
      "compose.yaml": `services:
  app:
    build: { context: ., network: none, shm_size: 100m, extra_hosts: ["h.example:10.9.8.7"], ulimits: { nofile: 123 } }
`,
    };
    const isOld = (await apiMinor()) < 42;
    const limits = isOld ? [] : ["app | 102400", "app | 123"];
    const progress = await requireRuns("settings", files, [
      "app | lo",
      "app | 10.9.8.7 h.example",
      ...limits,
    ]);
    const warning = "this engine ignores shm_size and ulimits in build; upgrade to Docker 23.0 or newer";
    t.is(progress.includes(warning), isOld, progress.join("\n"));
  },
);

runTest(`a build in the host's network needs a permission${skipped}`, async (t) => {
  const files = {
    Dockerfile: `FROM svc/shell:1\nRUN ls /sys/class/net | wc -l > /o\n${show("/o")}`,
    "compose.yaml": "services: { app: { build: { context: ., network: host } } }\n",
  };
  const app = await fixture().app("hosts-network", manifest, { uid: 0, files });
  const error = await failureOf(fixture().compose.prepare(app, {}));
  t.regex(error.message, /the build of service "app" uses the host's network.*host_network/);
});

runTest(
  `a build reads secrets from a file and from .env, and no layer contains them${skipped}`,
  async (t) => {
    const files = {
      ".env": "TOKEN=from-dotenv\n",
      "s.txt": "from-file",
      Dockerfile: `FROM svc/shell:1\nRUN --mount=type=secret,id=file --mount=type=secret,id=variable cat /run/secrets/file /run/secrets/variable | md5sum > /o; ls /run/secrets | wc -l >> /o\nRUN cat /run/secrets/file >> /o || echo gone >> /o\n${show("/o")}`,
      "compose.yaml": `services:
  app:
    build: { context: ., secrets: [file, variable] }
secrets: { file: { file: ./s.txt }, variable: { environment: TOKEN } }
`,
    };
    const { createHash } = await import("node:crypto");
    const sum = createHash("md5").update("from-filefrom-dotenv").digest("hex");
    await requireRuns("secrets", files, [`app | ${sum}  -`, "app | 2", "app | gone"]);
    t.pass();
  },
);

runTest(`an image that another service builds is the base of a build with BuildKit${skipped}`, async (t) => {
  const files = {
    "base/Dockerfile": "FROM svc/shell:1\nRUN echo of the base > /o\n",
    "app/Dockerfile": `FROM own/base:1\nRUN --mount=type=bind,from=own/base:1,source=/o,target=/x cat /x >> /o\n${show("/o")}`,
    "compose.yaml": `services:
  app: { build: ./app }
  base: { build: ./base, image: "own/base:1", command: ["/bin/sh", "-c", "${forever}"] }
`,
  };
  await requireRuns("own-base", files, ["app | of the base"]);
  t.pass();
});

runTest(
  `a build uses an additional context, or its error names the engine version that it needs${skipped}`,
  async (t) => {
    const files = {
      "extra/f": "from the other context\n",
      "app/Dockerfile": `FROM svc/shell:1\nCOPY --from=extra f /f\n${show("/f")}`,
      "compose.yaml":
        "services: { app: { build: { context: ./app, additional_contexts: { extra: ./extra } } } }\n",
    };
    const running = requireRuns("further", files, ["app | from the other context"]);
    if ((await apiMinor()) >= 42) await t.notThrowsAsync(running);
    else t.regex((await failureOf(running)).message, /context "extra" needs the engine 23\.0/);
  },
);

for (const [key, value] of [
  ["network", "host"],
  ["shm_size", "64m"],
  ["ulimits", "{ nofile: 100 }"],
] as const) {
  runTest(`a regular user's build may not set ${key}${skipped}`, async (t) => {
    const files = {
      Dockerfile: "FROM svc/shell:1\n",
      "compose.yaml": `services: { app: { build: { context: ., ${key}: ${value} } } }\n`,
    };
    const app = await fixture().app("users", manifest, { files });
    const error = await failureOf(fixture().compose.prepare(app, {}));
    t.is(error.code, "permission_denied");
    t.regex(error.message, /network|shm_size|ulimits/);
  });
}
