/** Images of regular users: no spelling reaches another user's image, and health checks are limited. */
import { SvcError } from "../../../src/errors.ts";
import type { UserObjects } from "../../../src/runtimes/containers/user-objects.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, sharedFixture, startApp } from "../../runtimes/support/container-tests.ts";
import { DockerFixture, nobody } from "../../runtimes/support/docker-fixture.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import { freePort } from "../../support/packages.ts";

// No spelling of `image:` reaches another user's image; Dockerfiles have their own test.

const fixtureNow = sharedFixture();

/** Each of these names an image that was built for another user. */
async function spellings({ engine }: DockerFixture): Promise<string[]> {
  const id = await engine.images.build("svc.local/others:1");
  return [
    id,
    id.slice(0, "sha256:".length + 12),
    id.toUpperCase().replace("SHA", "sha"),
    "svc.local/others:1",
  ];
}

dockerTest(
  `a user's package cannot name an image by its ID, or one that svc built${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    for (const image of await spellings(fixture)) {
      const app = await fixture.app("nosy", `docker: { image: "${image}" }`);
      t.is((await failureOf(fixture.runtime.prepare(app, {}))).reason, "denied", image);
    }
  },
);

dockerTest(
  `a user's build cannot use a base image with ONBUILD, or set the proxy of others' builds${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    await engine.images.build("svc/trigger-base:1", { triggers: ["RUN true"] });
    await engine.images.build("svc/plain-base:1");
    const build = (base: string, args = "") =>
      fixture.app("built-on", `docker: { build: { args: {${args}} } }`, {
        files: { Dockerfile: `FROM ${base}\nCMD ["/bin/sleep", "3600"]\n` },
      });
    const failure = await failureOf(runtime.prepare(await build("svc/trigger-base:1"), {}));
    t.is(failure.reason, "denied", failure.message);
    t.regex(failure.message, /svc\/trigger-base:1 has ONBUILD instructions/);
    const proxied = await build("svc/plain-base:1", ' https_proxy: "http://127.0.0.1:1" ');
    t.is((await failureOf(runtime.prepare(proxied, {}))).reason, "denied");
    const messages: string[] = [];
    await runtime.prepare(await build("svc/plain-base:1"), {
      onProgress: ({ message }) => messages.push(message),
    });
    t.regex(messages.join("\n"), /FROM sha256:[0-9a-f]{64}/);
  },
);

dockerTest(
  `a user's build cannot copy from an image through its own stage's name${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    await engine.images.build("svc/plain-base:3");
    const id = await engine.images.build("topsecret:latest", { files: { "etc/key": "the-secret" } });
    const beginning = id.slice("sha256:".length, "sha256:".length + 4);
    // The engine accepts stage names that begin with a letter.
    for (const stage of ["topsecret", ...(/^[a-f]/.test(beginning) ? [beginning] : [])]) {
      const messages: string[] = [];
      const app = await fixture.app("nosy-stage", "docker: { build: {} }", {
        files: {
          Dockerfile: `FROM svc/plain-base:3 AS ${stage}\nCOPY --from=${stage} /etc/key /key\nRUN cat /key\n`,
        },
      });
      const failure = await failureOf(
        runtime.prepare(app, { onProgress: ({ message }) => messages.push(message) }),
      );
      t.like(failure, { reason: "denied" }, failure.message);
      t.notRegex(messages.join("\n"), /the-secret/);
    }
  },
);

dockerTest(
  `a user's build copies from an earlier stage, and from an image by its checked ID${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const id = await fixture.engine.images.build("svc/plain-base:4", { files: { "etc/note": "hello" } });
    const app = await fixture.app("copying", "docker: { build: {} }", {
      files: {
        Dockerfile:
          "FROM svc/plain-base:4 AS early\nFROM svc/plain-base:4\nCOPY --from=early /etc/note /a\nCOPY --from=0 /etc/note /b\nCOPY --from=svc/plain-base:4 /etc/note /c\nRUN cat /a /b /c\n",
      },
    });
    const messages: string[] = [];
    await fixture.runtime.prepare(app, { onProgress: ({ message }) => messages.push(message) });
    t.true(messages.some((message) => message.includes(`COPY --from=${id} /etc/note /c`)));
    t.regex(messages.join("\n"), /hellohellohello|hello\nhello\nhello/);
  },
);

composeTest(`a service of a user's project cannot, either${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  for (const image of await spellings(fixture)) {
    const files = { "compose.yaml": `services:\n  web:\n    image: "${image}"\n` };
    const app = await fixture.app("nosy-project", "compose: { file: compose.yaml }", { files });
    t.is((await failureOf(fixture.compose.prepare(app, {}))).reason, "denied", image);
  }
});

dockerTest(
  `an image with too much metadata is not a user's to build, and is removed${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    await engine.images.build("svc/wordy-base:1", { labels: { base: "a".repeat(100_000) } });
    const app = await fixture.app("wordy", "docker: { build: {} }", {
      files: { Dockerfile: `FROM svc/wordy-base:1\nLABEL own=${"a".repeat(40_000)}\n` },
    });
    const error = await failureOf(runtime.prepare(app, {}));
    t.is(error.reason, "denied", error.message);
    t.regex(error.message, /^the image svc\.local\/wordy:\w+ is \d+ bytes long/);
    const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=wordy"] }));
    t.deepEqual((await engine.request("GET", `/images/json?filters=${label}`)).expect(200), []);
  },
);

dockerTest(`a user's build beyond the limit of images is removed${needsDocker}`, async (t) => {
  const { engine } = fixtureNow();
  await engine.images.build("svc/plain-base:2");
  const asked: string[] = [];
  const userObjects = {
    requireImages: (ownerUid: number, _imageId: string, reference: string) => {
      asked.push(`${ownerUid} ${reference.slice(0, reference.indexOf(":"))}`);
      return Promise.reject(new SvcError("too_many", "one more"));
    },
  } as unknown as UserObjects;
  await using fixture = await DockerFixture.create(engine, { userObjects });
  const files = { Dockerfile: "FROM svc/plain-base:2\nLABEL a=b\n" };
  const app = await fixture.app("one-more", "docker: { build: {} }", { files });
  t.is((await failureOf(fixture.runtime.prepare(app, {}))).reason, "too_many");
  t.deepEqual(asked, [`${nobody} svc.local/one-more`]);
  const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=one-more"] }));
  t.deepEqual((await engine.request("GET", `/images/json?filters=${label}`)).expect(200), []);
});

const manyPorts = Array.from({ length: 300 }, (_, at) => `${2000 + at}/tcp`);
const tooManyPorts = Array.from({ length: 600 }, (_, at) => `${2000 + at}/tcp`);

dockerTest(`a user can neither run nor build on an image with too many ports${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { engine, runtime } = fixture;
  await engine.images.build("svc/many-ports:1", { ports: tooManyPorts });
  const run = await fixture.app("exposing", 'docker: { image: "svc/many-ports:1" }');
  const built = await fixture.app("exposing-base", "docker: { build: {} }", {
    files: { Dockerfile: "FROM svc/many-ports:1\nRUN true\n" },
  });
  for (const app of [run, built]) {
    const { reason, message } = await failureOf(startApp(runtime, app));
    t.is(reason, "denied", message);
    t.regex(message, /^the image svc\/many-ports:1 exposes 600 ports, more than 512/);
  }
});

dockerTest(`a user's build is removed if it adds too many ports to its base${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const { engine, runtime } = fixture;
  await engine.images.build("svc/some-ports:1", { ports: manyPorts });
  const app = await fixture.app("adding-ports", "docker: { build: {} }", {
    files: { Dockerfile: "FROM svc/some-ports:1\nEXPOSE 3000-3299\n" },
  });
  const { reason, message } = await failureOf(runtime.prepare(app, {}));
  t.is(reason, "denied", message);
  t.regex(message, /^the image svc\.local\/adding-ports:\w+ exposes 600 ports/);
  const label = encodeURIComponent(JSON.stringify({ label: ["svc.app=adding-ports"] }));
  t.deepEqual((await engine.request("GET", `/images/json?filters=${label}`)).expect(200), []);
});

dockerTest(`a user cannot run an image with too many volumes${needsDocker}`, async (t) => {
  const fixture = fixtureNow();
  const volumes = Array.from({ length: 65 }, (_, at) => `/v${at}`);
  await fixture.engine.images.build("svc/many-volumes:1", { volumes });
  const app = await fixture.app("mounting", 'docker: { image: "svc/many-volumes:1" }');
  const { reason, message } = await failureOf(startApp(fixture.runtime, app));
  t.is(reason, "denied", message);
  t.regex(message, /has 65 volumes, more than 64/);
});

composeTest(`a user's service cannot run an image with too many ports${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  await fixture.engine.images.build("svc/many-ports:2", { ports: tooManyPorts });
  const files = { "compose.yaml": "services: { web: { image: svc/many-ports:2 } }\n" };
  const app = await fixture.app("exposing-project", "compose: { file: compose.yaml }", { files });
  const { reason, message } = await failureOf(startApp(fixture.compose, app));
  t.is(reason, "denied", message);
  t.regex(message, /svc\/many-ports:2 exposes 600 ports/);
});

dockerTest(
  `an image that is too large for a user's app remains on the host for the other users${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { engine, runtime } = fixture;
    const tag = `${(await engine.registry()).host}/wordy:1`;
    await engine.images.build(tag, { labels: { l: "a".repeat(200_000) } });
    await engine.images.push(tag);
    const app = await fixture.app("wordy-pull", `docker: { image: "${tag}" }`);
    const { reason, message } = await failureOf(runtime.prepare(app, {}));
    t.is(reason, "denied", message);
    t.is((await engine.request("GET", `/images/${tag}/json`)).status, 200);
    await engine.images.remove(tag);
    t.is((await failureOf(runtime.prepare(app, {}))).reason, "denied");
    t.is((await engine.request("GET", `/images/${tag}/json`)).status, 404, "the app's own pull is removed");
  },
);

// A user's image is confirmed with its registry first, root's is pulled at once.
for (const [whose, uid] of [
  ["a user's", nobody],
  ["root's", 0],
] as const) {
  dockerTest(`${whose} image whose registry is unreachable is unavailable${needsDocker}`, async (t) => {
    const fixture = fixtureNow();
    const image = `127.0.0.1:${await freePort()}/away:1`;
    const app = await fixture.app(`away-${uid}`, `docker: { image: "${image}" }`, { uid });
    const failure = await failureOf(fixture.runtime.prepare(app, {}));
    t.like(failure, { reason: "source_failed", code: "unavailable" });
    t.regex(failure.message, /127\.0\.0\.1:\d+\/away:1 (?:cannot be pulled|is not available): .*refused/i);
  });
}

// Health checks of regular users' images.

const files = {
  Dockerfile: "FROM svc/shell:1\nHEALTHCHECK --interval=10ms CMD true\n",
  "long/Dockerfile": `FROM svc/shell:1\nHEALTHCHECK CMD true ${"a".repeat(4_096)}\n`,
  "compose.yaml": "services: { web: { build: . } }\n",
  "calm.yaml": "services: { web: { build: ., healthcheck: { interval: 2s } } }\n",
  "off.yaml": "services: { web: { build: ., healthcheck: { disable: true } } }\n",
};

dockerTest(
  `an image of a user checks its health at most once per second, with a short command${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const { runtime } = fixture;
    const app = await fixture.app("eager", "docker: { build: {} }", { files });
    const error = await failureOf(startApp(runtime, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /^the image svc\.local\/eager:\w+ checks its health every 0\.01s/);
    const long = await fixture.app("long", "docker: { build: { context: long } }", { files });
    t.regex((await failureOf(startApp(runtime, long))).message, /has a health check of \d+ bytes \("test"\)/);
    const calm = await fixture.app(
      "calm",
      "docker: { build: {} }\nhealth: { exec: [/bin/true], interval: 2s }",
      { files },
    );
    await startApp(runtime, calm);
    t.is(runtime.status("calm")?.state, "RUNNING");
    await runtime.stop(calm);
    await runtime.remove(calm);
  },
);

composeTest(
  `an image of a user's service checks its health at most once per second${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("eager-project", "compose: { file: compose.yaml }", { files });
    const error = await failureOf(startApp(fixture.compose, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /checks its health every 0\.01s/);
    for (const name of ["calm", "off"]) {
      const other = await fixture.app(`${name}-project`, `compose: { file: ${name}.yaml }`, { files });
      await startApp(fixture.compose, other);
      t.is(fixture.compose.status(other.id)?.state, "RUNNING");
      await fixture.compose.stop(other);
      await fixture.compose.remove(other);
    }
  },
);
