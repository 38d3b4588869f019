/** Limits of a regular user's services on a swarm. A real engine makes the plans, and is in no swarm. */
import test from "ava";
import type { ImageInspectInfo } from "dockerode";
import { requireBoundedService } from "../../../src/runtimes/swarm/service-image.ts";
import { usageOfService } from "../../../src/runtimes/swarm/swarm-usage.ts";
import { composeTest, needsCompose } from "../../runtimes/support/compose-test.ts";
import { failureOf, sharedFixture } from "../../runtimes/support/container-tests.ts";
import { DockerFixture } from "../../runtimes/support/docker-fixture.ts";
import { dockerTest, needsDocker } from "../../support/docker-test.ts";
import type { RunnableApp, Placement } from "../../../src/runtimes/runnable-app.ts";
import type { StackPlan, Stacks } from "../../../src/runtimes/swarm/stack-plan.ts";

const fixtureNow = sharedFixture();
const placement: Placement = { replicas: 1, ports: "host" };
const files = {
  Dockerfile: "FROM svc/shell:1\nHEALTHCHECK --interval=10ms CMD true\n",
  "compose.yaml": "services: { web: { build: . } }\n",
  "calm.yaml": "services: { web: { build: ., healthcheck: { interval: 2s } } }\n",
};

async function planOf(stacks: Stacks, app: RunnableApp): Promise<StackPlan> {
  const placed = { ...app, placement };
  await stacks.prepare(placed, {});
  return stacks.plan(placed, "node");
}

dockerTest(
  `on a swarm an image of a user checks its health at most once per second${needsDocker}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("eager", "docker: { build: {} }", { files });
    const error = await failureOf(planOf(fixture.stacks.docker, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /^the image svc\.local\/eager:\w+ checks its health every 0\.01s/);
    const calm = "docker: { build: {} }\nhealth: { exec: [/bin/true], interval: 2s }";
    await t.notThrowsAsync(planOf(fixture.stacks.docker, await fixture.app("calm", calm, { files })));
    const roots = await fixture.app("roots", "docker: { build: {} }", { files, uid: 0 });
    await t.notThrowsAsync(planOf(fixture.stacks.docker, roots));
  },
);

composeTest(
  `on a swarm an image of a user's project checks its health at most once per second${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const app = await fixture.app("eager-project", "compose: { file: compose.yaml }", { files });
    const error = await failureOf(planOf(fixture.stacks.compose, app));
    t.is(error.reason, "denied");
    t.regex(error.message, /checks its health every 0\.01s/);
    const calm = await fixture.app("calm-project", "compose: { file: calm.yaml }", { files });
    await t.notThrowsAsync(planOf(fixture.stacks.compose, calm));
  },
);

test("an interval that a swarm does not accept from the package does not replace the interval of the image", (t) => {
  const second = 1_000_000_000;
  const local = {
    Config: { Healthcheck: { Test: ["CMD", "true"], StartInterval: second / 100 } },
  } as ImageInspectInfo;
  const planned = (Healthcheck: object) => ({
    image: "web:1",
    spec: {
      ...{ Name: "web", Labels: {}, Mode: { Replicated: { Replicas: 1 } } },
      TaskTemplate: { ContainerSpec: { Healthcheck: { ...Healthcheck } } },
    },
  });
  const user = { ownerUid: 1 };
  t.throws(() => requireBoundedService(user, planned({ Interval: 2 * second }), local), {
    message: /0\.01s/,
  });
  t.notThrows(() => requireBoundedService(user, planned({ StartInterval: 2 * second }), local));
});

test("on a swarm an image of a user has at most 32 KiB of labels and commands", (t) => {
  const spec = {
    ...{ Name: "web", Labels: {}, TaskTemplate: { ContainerSpec: {} } },
    Mode: { Replicated: { Replicas: 3 } },
  };
  const service = { image: "web:1", spec };
  const local = { Config: { Labels: { note: "<".repeat(6_000) } } } as unknown as ImageInspectInfo;
  t.throws(() => requireBoundedService({ ownerUid: 1 }, service, local), {
    message: /^the labels and commands of the image web:1 are 36\d+ bytes long, more than 32768/,
  });
  t.notThrows(() => requireBoundedService({ ownerUid: 0 }, service, local));
});

test("each task of a swarm counts toward the engine's listing", (t) => {
  const spec = {
    ...{ Name: "web", Labels: {}, Mode: { Replicated: { Replicas: 3 } } },
    TaskTemplate: { ContainerSpec: { Labels: { note: "<".repeat(1_000) } } },
  };
  // The swarm lists the ended tasks of each slot, too.
  t.true(usageOfService(spec).descriptionBytes > 5 * 3 * 6_000);
});

composeTest(
  `the files of a user's services on a swarm count toward the user's limits${needsCompose}`,
  async (t) => {
    const fixture = fixtureNow();
    const project = (files: number): Record<string, string> => {
      const names = Array.from({ length: files }, (_, at) => `c${at}`);
      return {
        "compose.yaml": JSON.stringify({
          services: Object.fromEntries(
            ["web", "more"].map((name) => [name, { image: "svc/shell:1", configs: names }]),
          ),
          configs: Object.fromEntries(names.map((name) => [name, { file: "./large" }])),
        }),
        large: "x".repeat(900_000),
      };
    };
    const manifest = "compose: { file: compose.yaml }";
    const app = await fixture.app("large", manifest, { files: project(2) });
    const plan = await planOf(fixture.stacks.compose, app);
    const uses = plan.steps.flat().map(({ spec }) => usageOfService(spec).descriptionBytes);
    t.is(uses.length, 2);
    for (const bytes of uses) t.true(bytes > 1_800_000 && bytes < 1_850_000, String(bytes));

    const huge = await fixture.app("huge", manifest, { files: project(10) });
    const error = await failureOf(planOf(fixture.stacks.compose, huge));
    t.is(error.reason, "denied");
    t.regex(error.message, /files of app "huge" are larger than 8388608 bytes in total/);
  },
);

composeTest(`a swarm restarts the tasks of a user at most every ten seconds${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const delayOf = async (id: string, manifest: string, stacks: Stacks, uid: number): Promise<unknown> => {
    const files = { "compose.yaml": 'services: { web: { image: "svc/shell:1" } }' };
    const restart = "restart: { policy: always, delay: 100ms, max_attempts: 0 }";
    const app = await fixture.app(id, `${manifest}\n${restart}`, { uid, files });
    const { steps } = await planOf(stacks, app);
    const spec = steps[0]?.[0]?.spec.TaskTemplate as { RestartPolicy?: { Delay: number } } | undefined;
    return spec?.RestartPolicy?.Delay;
  };
  for (const [kind, manifest] of [
    ["docker", 'docker: { image: "svc/shell:1" }'],
    ["compose", "compose: { file: compose.yaml }"],
  ] as const) {
    t.is(await delayOf(`users-${kind}`, manifest, fixture.stacks[kind], 1), 10e9);
    t.is(await delayOf(`roots-${kind}`, manifest, fixture.stacks[kind], 0), 100e6);
  }
});

test("on a swarm an image of a user has at most as many volumes as a container of this host", (t) => {
  const volumes = Object.fromEntries(Array.from({ length: 1_000 }, (_, at) => [`/volume-${at}`, {}]));
  const local = { Config: { Volumes: volumes } } as ImageInspectInfo;
  const spec = {
    ...{ Name: "web", Labels: {}, TaskTemplate: { ContainerSpec: {} } },
    Mode: { Replicated: { Replicas: 1 } },
  };
  const service = { image: "web:1", spec };
  t.throws(() => requireBoundedService({ ownerUid: 1 }, service, local), { message: /volumes/ });
  t.notThrows(() => requireBoundedService({ ownerUid: 0 }, service, local));
});

composeTest(`a user's service reserves nothing on a swarm node${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const project = `services:
  web:
    image: "svc/shell:1"
    deploy: { resources: { limits: { cpus: "1" }, reservations: { cpus: "64", memory: 64G } } }
  soft: { image: "svc/shell:1", mem_reservation: 64g }
`;
  const resources = async (id: string, uid: number): Promise<unknown[]> => {
    const app = await fixture.app(id, "compose: { file: compose.yaml }", {
      ...{ uid, files: { "compose.yaml": project } },
    });
    const { steps } = await planOf(fixture.stacks.compose, app);
    return steps
      .flat()
      .map(({ spec }) => (spec.TaskTemplate["Resources"] as { Reservations?: object }).Reservations);
  };
  t.deepEqual(await resources("greedy", 1), [undefined, undefined]);
  const bytes = 64 * 1024 ** 3;
  const roots = await resources("reserved", 0);
  t.true(roots.some((each) => JSON.stringify(each) === JSON.stringify({ MemoryBytes: bytes })));
  t.true(
    roots.some((each) => JSON.stringify(each) === JSON.stringify({ NanoCPUs: 64e9, MemoryBytes: bytes })),
  );
});

dockerTest(`the limits of a user apply to starts on a swarm${needsDocker}`, async (t) => {
  const { engine } = fixtureNow();
  const { status, text } = await engine.request("POST", "/swarm/init", {
    ...{ ListenAddr: "127.0.0.1:0", AdvertiseAddr: "127.0.0.1" },
  });
  if (status !== 200) {
    t.log(`skipped: the engine starts no swarm: ${text.trim()}`);
    t.pass();
    return;
  }
  const start = async (limits: object): Promise<string> => {
    await using fixture = await DockerFixture.create(engine, { limits });
    const port = "ports: [{ name: http, default: 18080, container_port: 8080, address: 0.0.0.0 }]";
    const app = await fixture.app("wide", `docker: { image: "svc/shell:1" }\n${port}`);
    const error = await failureOf(fixture.swarm.start({ ...app, placement: { replicas: 2, ports: "host" } }));
    t.is(error.reason, "too_many");
    return error.message;
  };
  t.regex(await start({ maxContainersPerUser: 1 }), /needs 2 containers.*max_containers_per_user is 1/);
  t.regex(
    await start({ maxPublishedPortsPerUser: 1 }),
    /needs 2 published ports.*max_published_ports_per_user is 1/,
  );
  t.regex(await start({ maxNetworksPerUser: 0 }), /max_networks_per_user is 0/);
  t.deepEqual((await engine.request("GET", "/services")).expect(200), []);
});

composeTest(`templates in a user's service stay plain text on a swarm${needsCompose}`, async (t) => {
  const fixture = fixtureNow();
  const text = "{{.Service.Labels}} {{{.Node.Hostname}}";
  const planned = async (id: string, manifest: string, stacks: Stacks, uid = 1) => {
    const files = {
      "compose.yaml": JSON.stringify({
        services: { web: { image: "svc/shell:1", hostname: "{{.Task.ID}}", environment: { TEXT: text } } },
      }),
    };
    const { steps } = await planOf(stacks, await fixture.app(id, manifest, { uid, files }));
    return (steps[0]?.[0]?.spec.TaskTemplate["ContainerSpec"] ?? {}) as { Env: string[]; Hostname?: string };
  };
  const docker = `docker: { image: "svc/shell:1", env: { TEXT: "${text}" } }`;
  const compose = "compose: { file: compose.yaml }";
  const plain = 'TEXT={{"{{"}}.Service.Labels}} {{"{{"}}{.Node.Hostname}}';
  t.true((await planned("plain", docker, fixture.stacks.docker)).Env.includes(plain));
  const web = await planned("plain-project", compose, fixture.stacks.compose);
  t.true(web.Env.includes(plain));
  t.is(web.Hostname, '{{"{{"}}.Task.ID}}');
  const roots = await planned("expanded", docker, fixture.stacks.docker, 0);
  t.true(roots.Env.includes(`TEXT=${text}`));
});
