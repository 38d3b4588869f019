/** A compose project from the checkout to its run: when the engine is probed, and when compose's output is used. */
import { throws } from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdir, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { parseSubnet } from "../../src/engine/subnets.ts";
import { SvcError } from "../../src/errors.ts";
import type { JsonObject } from "../../src/lib/json.ts";
import type { CopiedFiles } from "../../src/run-as/file-copies.ts";
import type { UserHelpers } from "../../src/run-as/user-helpers.ts";
import type { RunCommandOptions, CommandResult } from "../../src/run-as/user-helper-types.ts";
import type { Runtime } from "../../src/packages/manifest/manifest.ts";
import { YamlThread } from "../../src/packages/manifest/yaml-thread.ts";
import { ComposeProjects, type ComposeProjectsOptions } from "../../src/runtimes/compose/compose-project.ts";
import { readResolved } from "../../src/runtimes/compose/compose-document.ts";
import { durationSecs } from "../../src/runtimes/compose/compose-values.ts";
import { ConfigCache } from "../../src/runtimes/compose/config-cache.ts";
import { withInlineFiles } from "../../src/runtimes/compose/inline-files.ts";
import { projectClaims } from "../../src/runtimes/compose/project-claims.ts";
import { requireFewParts } from "../../src/runtimes/compose/project-size.ts";
import type { Bind } from "../../src/runtimes/containers/container-policy.ts";
import { holdMounts } from "../../src/runtimes/containers/mount-points.ts";
import { makeMountTargets } from "../../src/runtimes/containers/mount-targets.ts";
import type { RunnableApp } from "../../src/runtimes/runnable-app.ts";
import { isRoot, needsRoot } from "../support/daemon.ts";
import { programs } from "../support/programs.ts";
import { nobody, policyDirectory, type PolicyDirectory } from "./support/policy-app.ts";
import { ComposeImages, type ComposeImagesOptions } from "../../src/runtimes/compose/compose-images.ts";
import { ownershipIn } from "../support/ownership.ts";
import type { UserHelper } from "../../src/run-as/user-helper.ts";
import type { OperationOptions } from "../../src/engine/engine.ts";
import { ComposeCommand } from "../../src/runtimes/compose/compose-command.ts";

const rootTest = isRoot ? test : test.skip;

function projectIn(place: PolicyDirectory): RunnableApp {
  const app = place.app(0);
  const runtime = { kind: "compose", file: "compose.yaml", profiles: [], env: {} } satisfies Runtime;
  return { ...app, manifest: { ...app.manifest, runtime } };
}

test("an engine that hangs is detected while compose reads the checkout, not after it", async (t) => {
  await using place = await policyDirectory();
  const done: string[] = [];
  const projects = new ComposeProjects({
    userHelpers: {
      as: () => {
        done.push("checkout");
        return Promise.reject(new Error("enough is known"));
      },
    },
    events: {
      verify: () => {
        done.push("engine");
        return Promise.reject(new Error("the engine hangs"));
      },
    },
  } as unknown as ComposeProjectsOptions);
  await t.throwsAsync(projects.resolve(projectIn(place)), { message: "enough is known" });
  t.deepEqual(done, ["engine", "checkout"]);
});

for (const isHung of [true, false]) {
  test(`compose is ${isHung ? "" : "not "}ended when the engine ${isHung ? "hangs" : "is away"}`, async (t) => {
    await using place = await policyDirectory();
    const found = Promise.withResolvers<never>();
    const run = async (_user: unknown, _args: unknown, { signal }: RunCommandOptions): Promise<never> => {
      found.reject(new SvcError("unavailable", "the engine"));
      await found.promise.catch(() => undefined);
      await new Promise(setImmediate);
      signal?.throwIfAborted();
      throw new Error("compose continues");
    };
    const projects = new ComposeProjects({
      userHelpers: {
        as: () => Promise.resolve({ readFile: () => Buffer.from(""), stat: () => undefined }),
        isolate: (_uid: number, copied: CopiedFiles) => place.userHelpers.isolate(nobody, copied),
      },
      events: { verify: () => found.promise, isUnresponsive: isHung },
      yaml: { read: () => Promise.resolve({ value: {} }) },
      command: {
        ...{ run, isClassic: () => Promise.resolve(false) },
        fingerprint: () => Promise.resolve("2.0.0"),
      },
      ownership: { projectOf: (id: string) => `svc-${id}` },
    } as unknown as ComposeProjectsOptions);
    await t.throwsAsync(projects.resolve(projectIn(place)), {
      message: isHung ? "the engine" : "compose continues",
    });
  });
}

rootTest(`an error of an old compose about a name explains what to do${needsRoot}`, async (t) => {
  await using place = await policyDirectory();
  using yaml = new YamlThread({ threadUrl: programs.settingsThread });
  await writeFile(join(place.dir, "repo/compose.yaml"), "name: shop\nservices: { web: { image: a } }\n");
  const stderr =
    "The Compose file './compose.yaml' is invalid because:\n'name' does not match any of the regexes: '^x-'\n";
  const command = {
    run: () => Promise.resolve({ exitCode: 1, stdout: "", stderr }),
    isClassic: () => Promise.resolve(true),
    fingerprint: () => Promise.resolve("1.29.2"),
  };
  const projects = new ComposeProjects(projectOptions(place, yaml, command));
  await t.throwsAsync(projects.resolve(projectIn(place)), {
    message: /^compose\.yaml: this docker-compose is too old for "name" at the top: delete that line/,
  });
});

const many = (count: number): string[] => Array.from({ length: count }, (_, at) => `p${at}`);
const each = (count: number, value: unknown): object =>
  Object.fromEntries(many(count).map((name) => [name, value]));

/** Projects with thousands of these blocked the daemon for minutes. */
const tooMany: readonly [what: string, max: { user: number; root: number }, of: (count: number) => object][] =
  [
    ["services", { user: 128, root: 1_024 }, (count) => ({ services: each(count, { image: "a" }) })],
    [
      "mounts",
      { user: 64, root: 512 },
      (count) => ({
        services: {
          web: { image: "a", volumes: many(count - 1).map((name) => `/${name}`), configs: ["p0"] },
        },
        configs: { p0: { content: "" } },
      }),
    ],
    [
      "networks",
      { user: 32, root: 1_024 },
      (count) => ({ networks: { default: {}, ...each(count - 1, {}) } }),
    ],
    ["volumes", { user: 64, root: 1_024 }, (count) => ({ volumes: each(count, {}) })],
    ["configs", { user: 1_024, root: 1_024 }, (count) => ({ configs: each(count, { content: "" }) })],
    ["secrets", { user: 1_024, root: 1_024 }, (count) => ({ secrets: each(count, { content: "" }) })],
  ];

/** With a compose that always prints this project. */
async function resolving(
  place: PolicyDirectory,
  yaml: YamlThread,
  project: object,
): Promise<ComposeProjects> {
  await writeFile(join(place.dir, "repo/compose.yaml"), "services: { web: { image: a } }\n");
  const command = {
    run: () => Promise.resolve({ exitCode: 0, stdout: JSON.stringify(project), stderr: "" }),
    isClassic: () => Promise.resolve(false),
    fingerprint: () => Promise.resolve(randomUUID()),
  };
  return new ComposeProjects(projectOptions(place, yaml, command));
}

function projectOptions(place: PolicyDirectory, yaml: YamlThread, command: object): ComposeProjectsOptions {
  return {
    userHelpers: {
      as: () => place.userHelper(),
      isolate: (_uid: number, copied: CopiedFiles) => place.userHelpers.isolate(nobody, copied),
    },
    ...{ command, events: { verify: () => Promise.resolve() } },
    ...{ yaml, images: { builtTag: () => "" }, engine: { socket: "/srv/docker.sock" } },
    networks: { pool: parseSubnet("10.201.0.0/16") },
    ownership: { projectOf: (id: string) => `svc-${id}` },
    ...{
      portRules: { unprivilegedPortStart: 1024, daemonPort: 0 },
      publishAddress: "127.0.0.1",
      usersPidsLimit: 100,
      maxUserProcesses: 1_000,
    },
    composeDir: join(place.dir, "../compose"),
  } as unknown as ComposeProjectsOptions;
}

test("a start of a project has no time limit, as a service may run a migration before the others start", async (t) => {
  await using place = await policyDirectory();
  const limits: unknown[] = [];
  const options = projectOptions(place, undefined as unknown as YamlThread, {
    run: (_runner: unknown, _args: unknown, { timeoutMs = 0 }: RunCommandOptions) => {
      limits.push(timeoutMs > 24 * 3_600_000);
      return Promise.resolve({ exitCode: 0, stdout: "", stderr: "" });
    },
  });
  const engine = {
    socket: "/srv/docker.sock",
    operate: (_what: string, work: (docker: unknown) => Promise<unknown>, limit: OperationOptions) => {
      limits.push(limit.timeoutMs);
      return work(undefined);
    },
  };
  const projects = new ComposeProjects({ ...options, engine } as unknown as ComposeProjectsOptions);
  await projects.recreate(projectIn(place), "web");
  t.deepEqual(limits, [undefined, true]);
});

for (const [what, max, of] of tooMany) {
  for (const owner of ["user", "root"] as const) {
    rootTest(`a project of ${owner} has at most ${max[owner]} ${what}${needsRoot}`, async (t) => {
      await using place = await policyDirectory();
      using yaml = new YamlThread({ threadUrl: programs.settingsThread });
      const app = { ...projectIn(place), ownerUid: owner === "root" ? 0 : nobody };
      const messageOf = async (count: number): Promise<string> => {
        const document = { services: { web: { image: "a" } }, ...of(count) };
        const projects = await resolving(place, yaml, document);
        return projects.resolve(app).then(
          () => "",
          (error: unknown) => (error as Error).message,
        );
      };
      t.notRegex(await messageOf(max[owner]), /more than/);
      t.regex(await messageOf(max[owner] + 1), new RegExp(`${what}, more than ${max[owner]}\\b`));
    });
  }
}

const placeOf = (path: string): string => `/srv/apps/web/data/${path}`;
const ofUser = { id: "web", directory: "/srv/apps/web", ownerUid: 1_000, uid: 1_000 };
const heldTrees = {
  tree: () =>
    Promise.resolve({ hold: () => Promise.resolve(), heldType: () => Promise.resolve("directory") }),
  ...{ as: () => Promise.resolve({}), selfUid: 0 },
} as unknown as UserHelpers;
const servicesOf = (count: number, service: object): Record<string, object> =>
  Object.fromEntries(many(count).map((name) => [name, service]));

/** Projects of the largest accepted size, and larger ones. Quadratic work on any of them takes more than 250 ms. */
const large: readonly [what: string, work: () => unknown][] = [
  [
    "8,192 references to configs",
    () =>
      withInlineFiles(
        {
          services: servicesOf(128, { configs: many(64).map((source) => ({ source, mode: 0o444 })) }),
          configs: servicesOf(1_024, { content: "" }),
        } as unknown as JsonObject,
        { directory: ofUser.directory, isRoots: false },
      ),
  ],
  [
    "secrets and mounts with long targets",
    () =>
      projectClaims(
        {
          services: servicesOf(128, {
            secrets: many(32),
            volumes: many(32).map((name) => ({
              ...{ type: "volume", source: name },
              target: `${"/x".repeat(120)}${name}`,
            })),
          }),
        } as unknown as JsonObject,
        "web",
      ),
  ],
  [
    "2 MiB of dollar signs",
    () => {
      const value = { services: { web: { command: "$".repeat(2 ** 21) } } };
      return readResolved("", "compose.yaml", () => Promise.resolve({ value }));
    },
  ],
  [
    "127 services that have the mounts of another one",
    () => {
      const document = {
        services: {
          ...servicesOf(127, { image: "a", volumes_from: ["db"], configs: ["a"] }),
          db: { image: "a", volumes: many(62).map((name) => `${name}:/${name}`) },
        },
      } as unknown as JsonObject;
      requireFewParts(document, "compose.yaml", false);
      projectClaims(document, "web");
    },
  ],
  ...[true, false].flatMap((isRoots): [what: string, work: () => unknown][] => [
    [
      `128 services of ${isRoots ? "root" : "a user"} that each have the mounts of all`,
      () => {
        const services = many(128).map((name, at) => [
          name,
          { volumes_from: [`p${(at + 1) % 128}`], volumes: many(60).map((path) => `/${name}/${path}`) },
        ]);
        const document = { services: Object.fromEntries(services) as JsonObject };
        throws(() => requireFewParts(document, "compose.yaml", isRoots), / mounts, more than /);
      },
    ],
    [
      `1,000 services of ${isRoots ? "root" : "a user"} that each have 500 mounts of another one`,
      () => {
        const volumes = many(500).map((name) => `/${name}`);
        const services = { ...servicesOf(1_000, { volumes_from: ["db"] }), db: { volumes } };
        const document = { services } as unknown as JsonObject;
        throws(() => requireFewParts(document, "compose.yaml", isRoots), /more than /);
      },
    ],
    [
      `1,000 services of ${isRoots ? "root" : "a user"} that each name 1,000 in volumes_from`,
      () => {
        const document = { services: servicesOf(1_000, { volumes_from: many(1_000) }) };
        throws(
          () => requireFewParts(document as unknown as JsonObject, "compose.yaml", isRoots),
          /more than /,
        );
      },
    ],
  ]),
  ["a long duration", () => durationSecs("1h".repeat(900_000))],
  [
    "4,000 mounts",
    () =>
      holdMounts(
        heldTrees,
        ofUser,
        many(4_000).map((name) => ({ source: placeOf(name), readOnly: false })),
      ),
  ],
  [
    "128 mount targets of each of 128 containers",
    () =>
      makeMountTargets(
        heldTrees,
        ofUser,
        Array.from({ length: 128 }, () => ({
          workingDir: "/",
          mounts: many(128).map((name) => ({
            ...{ type: "tmpfs", source: "", target: `/${name}`, readOnly: false },
          })),
        })),
      ),
  ],
];
for (const [what, work] of large) {
  test(`a project with ${what} does not block the daemon`, async (t) => {
    const before = process.threadCpuUsage();
    await work();
    const { user, system } = process.threadCpuUsage(before);
    t.true((user + system) / 1_000 < 250, `${(user + system) / 1_000} ms`);
  });
}

for (const [what, path, message] of [
  ["deeper than 64 directories", "a/".repeat(100), /is more than 64 directories deep; use a shorter path$/],
  ["longer than a path can be", "a".repeat(5_000), /characters long, more than 4095; use a shorter path$/],
] as const) {
  test(`a mount source ${what} is rejected before its parents are listed`, async (t) => {
    await t.throwsAsync(holdMounts(heldTrees, ofUser, [{ source: placeOf(path), readOnly: true }]), {
      message,
    });
  });
}

test("a mount inside a writable one is rejected, also behind names that sort between them", async (t) => {
  const bind = (path: string, readOnly: boolean): Bind => ({ source: placeOf(path), readOnly });
  const others = [bind("a-b", true), bind("a!", true), bind("a0", false)];
  await t.throwsAsync(holdMounts(heldTrees, ofUser, [...others, bind("a/b/c", true), bind("a", false)]), {
    message: /^data\/a\/b\/c is a mount inside data\/a, which is mounted writable;/,
  });
  await t.notThrowsAsync(holdMounts(heldTrees, ofUser, [...others, bind("a/b/c", false), bind("a", true)]));
});

rootTest(
  `a user's project that is too long is rejected before its mounts are held${needsRoot}`,
  async (t) => {
    await using place = await policyDirectory();
    using yaml = new YamlThread({ threadUrl: programs.settingsThread });
    const document = { services: { web: { image: "a", command: ["x".repeat(200_000)] } } };
    // The fake user helpers hold no directories.
    const projects = await resolving(place, yaml, document);
    await t.throwsAsync(projects.prepareFiles({ ...projectIn(place), ownerUid: nobody }), {
      message: /^the compose file is \d+ bytes long, more than 131072,/,
    });
  },
);

for (const [name, max] of [
  ["COMPOSE_FILE", 32],
  ["COMPOSE_PROFILES", 256],
] as const) {
  rootTest(`${name} in .env lists at most ${max} names${needsRoot}`, async (t) => {
    await using place = await policyDirectory();
    using yaml = new YamlThread({ threadUrl: programs.settingsThread });
    const text = many(max + 1).join(name === "COMPOSE_FILE" ? ":" : ",");
    const values = { services: { values: { image: "none", environment: { [name]: text } } } };
    const projects = await resolving(place, yaml, values);
    await writeFile(join(place.dir, "repo/.env"), `${name}=${text}\n`);
    await t.throwsAsync(projects.resolve(projectIn(place)), {
      message: `.env: ${name} lists ${max + 1} names, more than ${max}; list fewer`,
    });
  });
}

test("large values of .env are not cached", async (t) => {
  await using place = await policyDirectory();
  const cache = new ConfigCache(join(place.dir, "../compose"));
  await cache.store("web", { key: "k", text: "", copies: "/tmp/a", values: { A: "a".repeat(60_000) } });
  t.not(await cache.find("web", "k"), undefined);
  await cache.store("web", { key: "l", text: "", copies: "/tmp/a", values: { A: "a".repeat(70_000) } });
  t.is(await cache.find("web", "l"), undefined);
});

rootTest(`compose runs again if and only if its output may change${needsRoot}`, async (t) => {
  await using place = await policyDirectory();
  using yaml = new YamlThread({ threadUrl: programs.settingsThread });
  let asked = 0;
  let version = "2.0.0";
  const composeDir = join(place.dir, "../compose");
  const options = projectOptions(place, yaml, {
    run: () => {
      const stdout = `services: { web: { image: "svc/web:${++asked}", network_mode: none } }`;
      return Promise.resolve({ exitCode: 0, stdout, stderr: "" });
    },
    isClassic: () => Promise.resolve(false),
    fingerprint: () => Promise.resolve(version),
  });
  let projects = new ComposeProjects(options);
  const app = projectIn(place);
  const properties = { word: { type: "string", default: "old", env: "WORD" } };
  let running = { ...app, manifest: { ...app.manifest, settings: { properties, required: [] } } };
  const imageNow = async (): Promise<unknown> => {
    const { document } = await projects.resolve(running as typeof app);
    return (document["services"] as Record<string, { image: string }>)["web"]?.image;
  };
  const write = (name: string, text: string): Promise<void> => writeFile(join(place.dir, "repo", name), text);
  const file = (more: string): string => `services: { web: { image: a, env_file: [own.env]${more} } }\n`;
  await mkdir(join(place.dir, "repo/part"));
  await write("part/more.yaml", "services: {}\n");
  await write("compose.yaml", file(""));

  let last = await imageNow();
  const changes: readonly (readonly [what: string, change: () => unknown])[] = [
    ["the compose file", () => write("compose.yaml", `include: [part/more.yaml]\n${file("")}`)],
    ["what it includes", () => write("part/more.yaml", "services: { b: { image: b } }\n")],
    ["an environment that comes", () => write("own.env", "A=1\n")],
    ["an environment that changes", () => write("own.env", "A=2\n")],
    ["the project's environment", () => write(".env", "TAG=1\n")],
    ["that of what is included", () => write("part/.env", "TAG=1\n")],
    ["one that goes", () => rm(join(place.dir, "repo/.env"))],
    ["a setting", () => (running = { ...running, settings: { word: "new" } })],
  ];
  for (const [what, change] of changes) {
    t.is(await imageNow(), last, `before ${what}`);
    await change();
    const image = await imageNow();
    t.not(image, last, what);
    last = image;
  }
  t.is(await imageNow(), last);
  await write("app.conf", "nothing of compose's");
  t.is(await imageNow(), last);

  projects = new ComposeProjects(options);
  t.is(await imageNow(), last, "by the next daemon");
  for (const [what, change] of [
    ["another compose", () => (version = "2.0.1")],
    ["a daemon that ended while it wrote", () => truncate(join(composeDir, app.id, "config.json"), 100)],
  ] as const) {
    projects = new ComposeProjects(options);
    await change();
    const image = await imageNow();
    t.not(image, last, what);
    last = image;
  }
  t.is((await stat(join(composeDir, app.id, "config.json"))).mode & 0o777, 0o600);
  await projects.forget(app.id);
  projects = new ComposeProjects(options);
  t.not(await imageNow(), last, "nothing of a removed app is stored");
});

test("a volume is needed under its engine name, however the file spells it", async (t) => {
  const kept: JsonObject = {
    volumes: {
      own: null,
      named: { name: "svc-shop_other" },
      shared: { external: true },
      "shared-named": { external: true, name: "nas" },
      // The format of files before 3.4 and of compose v1's output.
      "shared-old": { external: { name: "archive" } },
    },
  };
  const options = {
    ownership: ownershipIn("test", ["shop"]),
    projects: { lastDocument: () => Promise.resolve(kept) },
  };
  const images = new ComposeImages(options as unknown as ComposeImagesOptions);
  const { volumes } = await images.needs({ id: "shop" } as RunnableApp);
  t.deepEqual(volumes, ["svc-shop_own", "svc-shop_other", "shared", "nas", "archive"]);
});

// The choice of the compose program and of its environment.

type Program = (program: string, env: Readonly<Record<string, string>>) => string | undefined;

/**
 * A host with the given result of `version`: a version, or a program that fails. Records the run programs as `program
 * [distutils]`.
 */
function hostWith(versionOf: Program): { command: ComposeCommand; userHelper: UserHelper; ran: string[] } {
  const ran: string[] = [];
  const runCommand = (
    [program = ""]: readonly string[],
    options: RunCommandOptions,
  ): Promise<CommandResult> => {
    const { env = {} } = options;
    ran.push([program, env["SETUPTOOLS_USE_DISTUTILS"]].filter((part) => part !== undefined).join(" "));
    const version = versionOf(program, env);
    const result = { exitCode: version === undefined ? 1 : 0, stdout: version ?? "", stderr: "" };
    return Promise.resolve(result as CommandResult);
  };
  const userHelper = { runCommand } as unknown as UserHelper;
  const userHelpers = { selfUid: 0, as: () => Promise.resolve(userHelper) } as unknown as UserHelpers;
  return { command: new ComposeCommand(userHelpers), userHelper, ran };
}

for (const [name, versionOf, expected, isClassic] of [
  ["the second", (program) => (program === "docker" ? "v2.40.3" : "1.29.2"), "docker", false],
  ["the first", (program) => (program === "docker" ? undefined : "1.29.2"), "docker-compose stdlib", true],
  [
    // From Python 3.12 on.
    "the first, whose Python lacks these modules",
    (program, env) =>
      program === "docker" || env["SETUPTOOLS_USE_DISTUTILS"] !== undefined ? undefined : "1.29.2",
    "docker-compose",
    true,
  ],
] satisfies [string, Program, string, boolean][]) {
  test(`the program on a host with ${name}`, async (t) => {
    const { command, userHelper, ran } = hostWith(versionOf);
    t.is(await command.isClassic(), isClassic);
    const [found] = JSON.parse(await command.fingerprint()) as [{ version: string }];
    t.is(found.version, isClassic ? "1.29.2" : "v2.40.3");
    ran.length = 0;
    t.is((await command.run(userHelper, ["config"], { timeoutMs: 1_000 })).exitCode, 0);
    t.deepEqual(ran, [expected]);
  });
}
