/** Builds of root's packages with the engine's BuildKit, which the engine of the tests has. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { failureOf, forever, sharedFixture } from "../../runtimes/support/container-tests.ts";
import { DockerFixture, type AppOptions } from "../../runtimes/support/docker-fixture.ts";
import { registryUser } from "../../support/docker-registry.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { eventually } from "../../support/eventually.ts";

const fixtureNow = sharedFixture();
const architecture =
  ({ x64: "amd64", arm64: "arm64" } as Record<string, string>)[process.arch] ?? process.arch;

interface Build {
  readonly name: string;
  readonly files: Readonly<Record<string, string>>;
  readonly manifest?: string;
  /** The output of the app. */
  readonly lines: readonly string[];
}

const show = (path: string): string => `CMD ["/bin/sh", "-c", "cat ${path}; ${forever}"]\n`;

const builds: readonly Build[] = [
  {
    name: "mounts of caches, other stages and memory",
    files: {
      "input.txt": "from the context\n",
      Dockerfile: `FROM svc/shell:1 AS other
RUN echo from a stage > /made
FROM svc/shell:1
RUN --mount=type=cache,target=/c --mount=type=bind,source=input.txt,target=/i \\
    --mount=type=bind,from=other,source=/made,target=/made --mount=type=tmpfs,target=/t \\
    touch /c/x /t/y && cat /i /made > /o
${show("/o; ls -d /c/x /t/y 2>/dev/null")}`,
    },
    lines: ["from the context", "from a stage"],
  },
  {
    name: "the platform's arguments",
    files: {
      Dockerfile: `FROM --platform=$BUILDPLATFORM svc/shell:1\nARG TARGETOS TARGETARCH\nRUN echo $TARGETOS/$TARGETARCH > /o\n${show("/o")}`,
    },
    lines: [`linux/${architecture}`],
  },
  {
    name: "COPY with --link and --chmod",
    files: {
      run: "#!/bin/sh\necho executed\n",
      Dockerfile: `FROM svc/shell:1\nCOPY --link --chmod=755 run /run.sh\nRUN /run.sh > /o\n${show("/o")}`,
    },
    lines: ["executed"],
  },
  {
    name: "a base image whose name contains arguments",
    files: {
      Dockerfile: `ARG KIND=wrong\nARG KIND=shell\nARG BASE=svc/\${KIND}\nFROM "\${BASE}:1"\nRUN echo built > /o\n${show("/o")}`,
    },
    lines: ["built"],
  },
  {
    name: "a stage as target, with an argument of the manifest",
    files: {
      Dockerfile: `FROM svc/shell:1 AS first\nARG NAME\nRUN echo $NAME > /o\n${show("/o")}FROM svc/shell:1\nRUN exit 5\n`,
    },
    manifest: "docker: { build: { target: first, args: { NAME: given } } }",
    lines: ["given"],
  },
  {
    name: "an ignore file of the Dockerfile",
    files: {
      "keep.txt": "",
      "drop.txt": "",
      ".dockerignore": "keep.txt\n",
      Dockerfile: `FROM svc/shell:1\nCOPY *.txt /files/\nRUN ls /files > /o\n${show("/o")}`,
      "Dockerfile.dockerignore": "drop.txt\n",
    },
    lines: ["keep.txt"],
  },
  {
    name: "an exception below an ignored directory",
    files: {
      "a/drop": "",
      "a/b/keep": "",
      ".dockerignore": "a\n!a/b\n",
      Dockerfile: `FROM svc/shell:1\nCOPY . /files\nRUN find /files/a | sort > /o\n${show("/o")}`,
    },
    lines: ["/files/a", "/files/a/b", "/files/a/b/keep"],
  },
  {
    name: "the stable frontend that no registry provides",
    files: {
      Dockerfile: `# syntax=docker/dockerfile:1\nFROM svc/shell:1\nRUN echo read > /o\n${show("/o")}`,
    },
    lines: ["read"],
  },
];

const root = (files: Readonly<Record<string, string>>, more: AppOptions = {}): AppOptions => ({
  uid: 0,
  files,
  ...more,
});
const plain = "docker: { build: {} }";

for (const [at, { name, files, manifest = plain, lines }] of builds.entries()) {
  dockerTest(`BuildKit builds ${name}${needsDocker}`, async (t) => {
    const { runtime, app } = await prepared(`kit-${at}`, manifest, root(files));
    await runtime.start(app);
    await eventually(async () => {
      const { lines: seen } = await runtime.logs(app, { tail: 100 });
      assert.deepEqual(
        seen.map(({ text }) => text),
        lines,
      );
    });
    await runtime.stop(app);
    t.true((await runtime.remove(app)) >= 0);
  });
}

async function prepared(id: string, manifest: string, options: AppOptions) {
  const fixture = fixtureNow();
  const app = await fixture.app(id, manifest, options);
  const progress: string[] = [];
  await fixture.runtime.prepare(app, { onProgress: ({ message }) => progress.push(message) });
  return { runtime: fixture.runtime, app, progress };
}

dockerTest(`BuildKit gets contents of every kind and size unchanged${needsDocker}`, async (t) => {
  const large = "0123456789abcdef".repeat(400_000);
  const long = `${"d".repeat(120)}/${"e".repeat(120)}`;
  const { runtime, app, progress } = await prepared(
    "contents",
    plain,
    root({
      [long]: "long\n",
      "large file": large,
      empty: "",
      "-dash": "dash\n",
      "a/b": "b",
      "a.b": "ab",
      "ä/ö": "umlaut\n",
      Dockerfile: `FROM svc/shell:1\nCOPY . /f\nRUN cd /f; wc -c < "large file"; cat ${long} ./-dash ä/ö; md5sum < "large file"\n`,
    }),
  );
  t.true(progress.includes(String(large.length)), progress.join("\n"));
  for (const line of ["long", "dash", "umlaut"]) t.true(progress.includes(line), line);
  t.true((await runtime.remove(app)) > 0);
});

dockerTest(`BuildKit uses a base image that svc pulled with root's login${needsDocker}`, async (t) => {
  const { engine } = fixtureNow();
  const { host } = await engine.registry(registryUser);
  const base = `${host}/svc/private:1`;
  await engine.images.build(base, { files: { secret: "private content\n" } });
  await engine.images.push(base, registryUser);
  await engine.images.remove(base);
  const login = { username: registryUser.name, password: registryUser.password };
  await using fixture = await DockerFixture.create(engine, { credentialsOf: () => Promise.resolve(login) });
  const files = { Dockerfile: `FROM ${base}\nRUN --mount=type=tmpfs,target=/t cat /secret\n` };
  const app = await fixture.app("private-base", plain, root(files));
  const progress: string[] = [];
  await fixture.runtime.prepare(app, { onProgress: ({ message }) => progress.push(message) });
  t.true(progress.includes("private content"), progress.join("\n"));
  await fixture.runtime.remove(app);
});

dockerTest(`a failed BuildKit build reports its last output and its exit code${needsDocker}`, async (t) => {
  const options = root({ Dockerfile: "FROM svc/shell:1\nRUN echo here it comes; exit 4\n" });
  const error = await failureOf(prepared("failing", plain, options));
  t.is(error.reason, "build_failed");
  t.like(error.payload, { exitCode: 4 });
  t.true((error.payload as { lastLines: string[] }).lastLines.includes("here it comes"));
});

dockerTest(`a step of BuildKit ends when its build is canceled${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const app = await fixture.app(
    "endless",
    plain,
    root({ Dockerfile: "FROM svc/shell:1\nRUN echo begun; sleep 4321\n" }),
  );
  const canceled = new AbortController();
  const building = fixture.runtime.prepare(app, {
    signal: canceled.signal,
    onProgress: ({ message }) => {
      if (message === "begun") canceled.abort(new Error("enough"));
    },
  });
  await t.throwsAsync(building, { message: "enough" });
  await eventually(async () => assert.deepEqual(await Promise.resolve(sleepers()), []), 20_000);
});

function sleepers(): string[] {
  return execFileSync("ps", ["-eo", "args"], { encoding: "utf8" })
    .split("\n")
    .filter((line) => line === "sleep 4321");
}

dockerTest(
  `a here-document builds, or its error names the line and the engine version that it needs${needsDocker}`,
  async (t) => {
    const options = root({ Dockerfile: `FROM svc/shell:1\nRUN <<E\necho first > /o\nE\n${show("/o")}` });
    const { ApiVersion } = (await fixtureNow().engine.request("GET", "/version")).expect(200) as {
      ApiVersion: string;
    };
    const building = prepared("document", plain, options);
    if (Number(ApiVersion.split(".")[1]) >= 42) await t.notThrowsAsync(building);
    else
      t.regex((await failureOf(building)).message, /^line 2 of the Dockerfile has a here-document, .* 23\.0/);
  },
);

for (const [what, line] of [
  ["a mount", "RUN --mount=type=cache,target=/c true"],
  ["a mode", "COPY --chmod=755 Dockerfile /x"],
  ["a here-document", "RUN <<E\ntrue\nE"],
] as const) {
  dockerTest(
    `a regular user's build names the line that needs BuildKit: ${what}${needsDocker}`,
    async (t) => {
      const files = { Dockerfile: `FROM svc/shell:1\n\n${line}\n` };
      const error = await failureOf(prepared("users", plain, { files }));
      t.is(error.reason, "build_failed");
      t.regex(error.message, /^line 3 of the Dockerfile has .* regular users have no BuildKit/);
    },
  );
}

dockerTest(`a regular user's build gets the platform's arguments${needsDocker}`, async (t) => {
  const files = {
    Dockerfile:
      "FROM --platform=$BUILDPLATFORM svc/shell:1\nARG TARGETARCH\nCOPY --link Dockerfile /x\nRUN echo arch=$TARGETARCH\n",
  };
  const { progress } = await prepared("arch", plain, { files });
  t.true(progress.includes(`arch=${architecture}`), progress.join("\n"));
});
