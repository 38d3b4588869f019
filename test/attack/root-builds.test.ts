/** Attacks of a package that root installs on the builds of root's other packages, which share the engine's BuildKit. */
import { createDockerEngine } from "../../src/engine/engine.ts";
import { chooseEntries } from "../../src/packages/build-context/chosen-entries.ts";
import { BuildLines } from "../../src/runtimes/docker/build-output.ts";
import { buildClassic } from "../../src/runtimes/docker/classic-build.ts";
import { forever, sharedFixture } from "../runtimes/support/container-tests.ts";
import { dockerTest, needsDocker } from "../support/docker-test.ts";

const fixtureNow = sharedFixture();
const plain = "docker: { build: {} }";
const command = `CMD ["/bin/sh", "-c", "${forever}"]\n`;

/** The build's progress. */
async function built(
  id: string,
  dockerfile: string,
  manifest = plain,
  files: Readonly<Record<string, string>> = {},
): Promise<string[]> {
  const fixture = fixtureNow();
  const { runtime } = fixture;
  const app = await fixture.app(id, manifest, { uid: 0, files: { Dockerfile: dockerfile, ...files } });
  const progress: string[] = [];
  try {
    await runtime.prepare(app, { onProgress: ({ message }) => progress.push(message) });
  } finally {
    await runtime.remove(app);
  }
  return progress;
}

dockerTest(
  `a step does not use what another package's proxy sent to the same step${needsDocker}`,
  async (t) => {
    const dockerfile = `FROM svc/shell:1\nRUN echo "got $HTTP_PROXY" > /o\n`;
    const proxied = "docker: { build: { args: { HTTP_PROXY: 'http://proxy.example:1' } } }";
    const first = await built("proxy-1", `${dockerfile}RUN echo 1; cat /o\n${command}`, proxied);
    t.true(first.includes("got http://proxy.example:1"), first.join("\n"));
    const second = await built("proxy-2", `${dockerfile}RUN echo 2; cat /o\n${command}`);
    t.true(second.includes("got "), second.join("\n"));
  },
);

dockerTest(
  `on an engine without BuildKit, a step does not use what another package's proxy sent to the same step${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    await using client = createDockerEngine({ socket: fixture.engine.socket });
    const { Id: baseId } = await client.call("find the base image", (docker) =>
      docker.getImage("svc/shell:1").inspect(),
    );
    const outputOf = async (id: string, args: Readonly<Record<string, string>>): Promise<string[]> => {
      const app = await fixture.app(id, plain, { uid: 0, files: { Dockerfile: "" } });
      const output: string[] = [];
      await buildClassic(client, {
        ...{ userHelper: await fixture.userHelpers.as(0), root: app.directory, context: "repo", args },
        dockerfile: "Dockerfile",
        text: `FROM svc/shell:1\nRUN echo "got $HTTP_PROXY" > /o\nRUN cat /o # ${id}\n`,
        ...{ tag: `svc/${id}:1`, labels: fixture.ownership.labels("image", id), platform: "linux/amd64" },
        chooseEntries: (choice) => Promise.resolve(chooseEntries(choice)),
        lines: new BuildLines((line) => output.push(line)),
        signal: AbortSignal.timeout(60_000),
        base: async () => ({
          ...{ id: baseId, name: "svc/shell:1", triggers: [], labels: [] },
          ...{ environment: [], descriptionBytes: 0 },
        }),
      });
      return output;
    };
    const first = await outputOf("classic-1", { HTTP_PROXY: "http://proxy.example:1" });
    t.true(first.includes("got http://proxy.example:1"), first.join("\n"));
    const second = await outputOf("classic-2", { HTTP_PROXY: "http://proxy.example:2" });
    t.true(second.includes("got http://proxy.example:2"), second.join("\n"));
  },
);

dockerTest(`a cache mount has no files of another package's cache${needsDocker}`, async (t) => {
  const step = (n: number): string =>
    `FROM svc/shell:1\nRUN --mount=type=cache,id=common,target=/c echo "sees $(ls /c)"; touch /c/of-${n}\n${command}`;
  await built("mount-1", step(1));
  const second = await built("mount-2", step(2));
  t.true(second.includes("sees "), second.join("\n"));
});

dockerTest(`BuildKit reads an ignore file with hundreds of patterns${needsDocker}`, async (t) => {
  const patterns = Array.from({ length: 450 }, (_, n) => `dropped-${n}/**/${"x".repeat(150)}`);
  const ignore = [...patterns, "drop", ""].join("\n");
  const progress = await built(
    "patterns",
    `FROM svc/shell:1\nCOPY . /files\nRUN echo /files/*\n${command}`,
    plain,
    {
      ".dockerignore": ignore,
      drop: "",
      keep: "",
    },
  );
  t.true(
    progress.some((line) => /\/keep/.test(line) && !/\/drop/.test(line)),
    progress.join("\n"),
  );
});
