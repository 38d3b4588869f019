/**
 * Builds with the engine's classic builder. It runs each step as a container with limits and its own network, which the
 * steps of BuildKit do not have. The engine gets the text that svc checked, with the IDs of the checked images.
 */
import type Dockerode from "dockerode";
import type { DockerEngine } from "../../engine/engine.ts";
import { SvcError } from "../../errors.ts";
import { openBuildContext } from "./build-context.ts";
import {
  cacheLabel,
  cacheName,
  contextNames,
  platformArguments,
  type BuildSettings,
} from "./build-settings.ts";
import { buildFailed } from "./build-output.ts";
import { buildTimeoutMs, type BuildBase, type PreparedBuild } from "./build-request.ts";
import { requireNamedByTriggers, requireNamedImages, upToTarget, withImageIds } from "./dockerfile-images.ts";
import { requireBoundedMetadata } from "./dockerfile-metadata.ts";
import { readMessages } from "./engine-messages.ts";
import { requireClassicSyntax, withoutNewerFlags } from "./newer-syntax.ts";
import { requireNoTriggers, restrictDockerfile, withStageLabels } from "./user-dockerfile.ts";

/** @throws SvcError `build_failed`, `denied` */
export async function buildClassic(engine: DockerEngine, build: PreparedBuild): Promise<void> {
  const { userHelper, chooseEntries, root, context, target, tag, labels, bounds } = build;
  const { lines, signal, settings = {} } = build;
  requireClassicSettings(build, settings);
  requireClassicSyntax(
    build.text,
    bounds === undefined
      ? "this engine does not have it; use Docker 20.10 or newer"
      : "builds of regular users have no BuildKit, because its steps have no limits; write the line without it, or install as root",
  );
  const args = withPlatform(build);
  const dockerfileText = await withCheckedBases({ ...build, args });
  // Before the build takes a slot, because pulling a base image takes one, too.
  const { archive, dockerfile } = await openBuildContext({
    ...{ userHelper, chooseEntries, root, path: context, dockerfileText, timeoutMs: buildTimeoutMs, signal },
  });
  let archiveError: Error | undefined;
  archive.once("error", (error) => (archiveError = error));
  const run = async (docker: Dockerode): Promise<void> => {
    try {
      const answer = await docker.buildImage(archive, {
        ...{ t: tag, dockerfile, buildargs: args, labels: { ...labels }, rm: true, forcerm: true },
        ...(settings.noCache === true && { nocache: true }),
        ...(settings.extraHosts && {
          extrahosts: JSON.stringify(settings.extraHosts.map((host) => host.replace("=", ":"))),
        }),
        ...(target !== undefined && { target }),
        ...bounds?.options,
      });
      for await (const { stream = "", error, errorDetail } of readMessages(answer)) {
        lines.add(stream);
        if (error !== undefined) throw buildFailed(tag, error, errorDetail?.code, lines.end());
      }
    } catch (error) {
      // An error of the owner's side caused the engine's.
      if (archiveError !== undefined) throw archiveError;
      if (error instanceof SvcError || !isRejection(error)) throw error;
      throw buildFailed(tag, error.message, undefined, lines.end());
    }
  };
  try {
    await engine.operate(`build ${tag}`, run, { timeoutMs: buildTimeoutMs, signal, waitsFor: "build" });
  } finally {
    archive.destroy();
  }
}

/** The predefined arguments that the Dockerfile uses; the classic builder does not set them. */
function withPlatform({ text, args, platform }: PreparedBuild): Record<string, string> {
  const used = Object.entries(platformArguments(platform)).filter(([name]) => text.includes(name));
  return { ...Object.fromEntries(used), ...args };
}

/** The Dockerfile with IDs of exactly the checked images. */
async function withCheckedBases(build: PreparedBuild): Promise<string> {
  const { args, target, base, bounds, platform } = build;
  const original = withoutNewerFlags(build.text, platform);
  const text = bounds === undefined ? original : restrictDockerfile(original);
  const images = upToTarget(requireNamedImages(text, args), target);
  const found = new Map<string, BuildBase>();
  const labels = new Map<number, readonly string[]>();
  for (const { reference, isBase, stage } of images) {
    const image = found.get(reference) ?? (await base(reference));
    found.set(reference, image);
    if (!isBase) continue;
    if (bounds !== undefined) requireNoTriggers(reference, image.triggers);
    requireNamedByTriggers(reference, image.triggers);
    labels.set(stage, image.labels);
  }
  if (bounds !== undefined) requireBoundedMetadata(text, args, [...found.values()]);
  const ids = new Map([...found].map(([reference, { id }]) => [reference, id]));
  const pinned = withImageIds(text, images, ids);
  const mark = bounds?.label ?? { name: cacheLabel, value: cacheName(build.labels) };
  return withStageLabels(pinned, labels, mark);
}

/** @throws SvcError `denied` for a setting that the classic builder does not have, or that a user may not choose */
function requireClassicSettings({ bounds, platform }: PreparedBuild, settings: BuildSettings): void {
  const { secrets, network, shmBytes, ulimits = [] } = settings;
  const unsupported = [
    ...(contextNames(settings).length > 0 ? ["additional_contexts"] : []),
    ...(secrets !== undefined && secrets.size > 0 ? ["secrets"] : []),
    ...(network === undefined ? [] : ["network"]),
    ...(shmBytes === undefined ? [] : ["shm_size"]),
    ...(ulimits.length > 0 ? ["ulimits"] : []),
    ...((settings.platform ?? platform) === platform ? [] : ["platforms"]),
  ];
  if (unsupported[0] === undefined) return;
  const why =
    bounds === undefined
      ? "this engine has no BuildKit; use Docker 20.10 or newer"
      : "regular users may not set it; leave it out, or install as root";
  throw new SvcError("denied", `the build sets ${unsupported[0]}: ${why}`);
}

function isRejection(error: unknown): error is Error {
  return error instanceof Error && "statusCode" in error;
}
