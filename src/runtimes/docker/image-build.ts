/** Builds the images of apps: root's with BuildKit, a regular user's with the classic builder, which can limit its steps. */
import { proofLabel } from "../../engine/attribution.ts";
import { isOlder } from "../../engine/api-version.ts";
import { platformOf } from "../../engine/engine-platform.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { BuildLines, failedWithoutOutput } from "./build-output.ts";
import { buildTimeoutMs, type BuildOptions, type PreparedBuild } from "./build-request.ts";
import { contextNames, platformArguments, type BuildSettings } from "./build-settings.ts";
import { buildWithBuildKit } from "./buildkit/build.ts";
import { attributesOf, entitlementsOf } from "./buildkit/attributes.ts";
import { secretMethods } from "./buildkit/secrets.ts";
import { buildClassic } from "./classic-build.ts";
import { findImages, upToTarget, withImageNames } from "./dockerfile-images.ts";
import { readDockerfile, readOwnIgnore } from "./dockerfile-source.ts";
import { requireOlderSyntax, withoutNewerFlags } from "./newer-syntax.ts";

/** API version of Docker 23.0, the first whose BuildKit reads here-documents, additional contexts and limits. */
const newerVersion = "1.42";

/**
 * Builds an image; its output is reported as progress.
 * @throws SvcError `build_failed` with its last lines; `denied` for what the builds of regular users may not do
 */
export async function buildImage(engine: DockerEngine, options: BuildOptions): Promise<void> {
  const { userHelper, root, labels, bounds } = options;
  const signal = AbortSignal.any([options.signal, bounds?.signal].filter((each) => each !== undefined));
  const lines = new BuildLines(
    (message) => options.onProgress?.({ step: "build", message }),
    labels[proofLabel],
  );
  const text = await readDockerfile(userHelper, root, options, { timeoutMs: buildTimeoutMs, signal });
  const { os, architecture } = await platformOf(engine, signal);
  const platform = `${os}/${architecture}`;
  const build = { ...options, text, lines, signal, platform };
  if (bounds === undefined && (await buildUnlimited(engine, build))) return;
  await buildClassic(engine, build);
}

/** @returns false if the engine has no BuildKit */
async function buildUnlimited(engine: DockerEngine, build: PreparedBuild): Promise<boolean> {
  const { userHelper, root, context, settings = {}, signal } = build;
  const isOld = isOlder(await engine.apiVersion(signal), newerVersion);
  if (isOld) {
    requireOlderSyntax(build.text);
    requireNoAdditionalContexts(settings);
    const ignored = [settings.shmBytes && "shm_size", settings.ulimits?.length && "ulimits"].filter(Boolean);
    const message = `this engine ignores ${ignored.join(" and ")} in build; upgrade to Docker 23.0 or newer`;
    if (ignored.length > 0) build.onProgress?.({ step: "build", message });
  }
  const text = isOld ? withoutNewerFlags(build.text, build.platform) : build.text;
  return buildWithBuildKit(engine, {
    ...build,
    contexts: { ...settings.contexts, context },
    dockerfileText: await withPresentBases(text, build),
    ignoreText: await readOwnIgnore(userHelper, root, build, { timeoutMs: buildTimeoutMs, signal }),
    attributes: attributesOf(build),
    entitlements: entitlementsOf(settings),
    methods: secretMethods(build),
    timeoutMs: buildTimeoutMs,
  });
}

/**
 * Pulls base images with the owner's credentials, which BuildKit does not have. It then prefers the local images.
 * @returns the Dockerfile with the engine's names of images that the app builds
 */
async function withPresentBases(text: string, build: PreparedBuild): Promise<string> {
  const { args, platform, settings = {}, base } = build;
  const named = new Set(contextNames(settings).map((name) => name.toLowerCase()));
  const images = findImages(text, { ...platformArguments(platform), ...args }).filter(
    ({ reference }) => !named.has(reference.toLowerCase()),
  );
  const names = new Map<string, string>();
  for (const { reference, isBase } of upToTarget(images, build.target)) {
    if (names.has(reference)) continue;
    try {
      names.set(reference, (await base(reference)).name);
    } catch (error) {
      // The name may refer to something other than an image, which BuildKit decides.
      if (isBase) throw error;
    }
  }
  return withImageNames(text, images, names);
}

function requireNoAdditionalContexts(settings: BuildSettings): void {
  const [name] = contextNames(settings);
  if (name === undefined) return;
  const message = `the additional context "${name}" needs the engine 23.0 or newer; upgrade the engine, or copy the files into the build context`;
  throw failedWithoutOutput(message);
}
