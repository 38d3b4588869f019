import type Dockerode from "dockerode";
import { proofLabel } from "../../engine/attribution.ts";
import type { DockerEngine } from "../../engine/engine.ts";
import { SvcError } from "../../errors.ts";
import type { UserHelper } from "../../run-as/user-helper.ts";
import { secretMask } from "../../lib/secret-mask.ts";
import type { RuntimeWork } from "../capabilities.ts";
import { openBuildContext } from "./build-context.ts";
import { requireNamedByTriggers, requireNamedImages, withImageIds } from "./dockerfile-images.ts";
import { requireBoundedMetadata, type RepeatedBase } from "./dockerfile-metadata.ts";
import { readMessages } from "./engine-messages.ts";
import type { BuildBounds } from "./user-builds.ts";
import { requireNoTriggers, restrictDockerfile, withStageLabels } from "./user-dockerfile.ts";

export interface BuildOptions extends RuntimeWork {
  /** Reads the context. */
  userHelper: UserHelper;
  /** The app's directory, absolute. */
  root: string;
  /** The context, relative to `root`. */
  context: string;
  /** Path relative to the context. */
  dockerfile: string;
  target?: string | undefined;
  args: Readonly<Record<string, string>>;
  /** Name of the image, with a tag. */
  tag: string;
  labels: Readonly<Record<string, string>>;
  /** Finds the image of a name; pulls it if it is missing. */
  base: (reference: string) => Promise<BuildBase>;
  /** Limits of a regular user's build; absent for root's. */
  bounds?: BuildBounds | undefined;
}

export interface BuildBase extends RepeatedBase {
  readonly id: string;
  readonly triggers: readonly string[];
  /** Names of the image's labels. */
  readonly labels: readonly string[];
}

const buildTimeoutMs = 60 * 60_000;
/** Number of last lines in the error of a failed build. */
const maxErrorLines = 20;

/**
 * Builds an image; its output is reported as progress.
 * @throws SvcError `build_failed` with its last lines; what {@link openBuildContext} and {@link requireNamedImages}
 *   throw
 */
export async function buildImage(engine: DockerEngine, options: BuildOptions): Promise<void> {
  const { userHelper, root, context, dockerfile, target, args, tag, labels, bounds } = options;
  const signal = AbortSignal.any([options.signal, bounds?.signal].filter((each) => each !== undefined));
  const lines = new BuildLines(
    (message) => options.onProgress?.({ step: "build", message }),
    labels[proofLabel],
  );
  // Before the build takes a slot, because pulling a base image takes one, too.
  const { archive, dockerfile: checkedName } = await openBuildContext({
    ...{ userHelper, root, path: context, dockerfile, timeoutMs: buildTimeoutMs, signal },
    check: (text) => withCheckedBases(text, options),
  });
  let archiveError: Error | undefined;
  archive.once("error", (error) => (archiveError = error));
  const build = async (docker: Dockerode): Promise<void> => {
    try {
      const answer = await docker.buildImage(archive, {
        t: tag,
        dockerfile: checkedName,
        buildargs: { ...args },
        labels: { ...labels },
        rm: true,
        forcerm: true,
        ...(target !== undefined && { target }),
        ...bounds?.options,
      });
      for await (const { stream = "", error, errorDetail } of readMessages(answer)) {
        lines.add(stream);
        if (error !== undefined) throw buildFailed(tag, error, errorDetail?.code, lines.end());
      }
    } catch (error) {
      // An error of the owner's side comes first, because it caused the other.
      if (archiveError !== undefined) throw archiveError;
      if (error instanceof SvcError || !isRefusal(error)) throw error;
      throw buildFailed(tag, error.message, undefined, lines.end());
    }
  };
  try {
    await engine.operate(`build ${tag}`, build, { timeoutMs: buildTimeoutMs, signal, waitsFor: "build" });
  } finally {
    archive.destroy();
  }
}

/** The Dockerfile with IDs of exactly the checked images. Stages after the target are not built. */
async function withCheckedBases(
  original: string,
  { args, target, base, bounds }: BuildOptions,
): Promise<string> {
  const text = bounds === undefined ? original : restrictDockerfile(original);
  const all = requireNamedImages(text, args);
  const wanted = target?.toLowerCase() ?? "";
  const last = all.findLast(({ isBase, name, stage }) => isBase && [name, String(stage)].includes(wanted));
  const images =
    last === undefined || target === undefined ? all : all.filter(({ stage }) => stage <= last.stage);
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
  return bounds === undefined ? pinned : withStageLabels(pinned, labels, bounds.label);
}

function isRefusal(error: unknown): error is Error {
  return error instanceof Error && "statusCode" in error;
}

function buildFailed(
  tag: string,
  words: string,
  exitCode: number | undefined,
  lastLines: readonly string[],
): SvcError {
  const isCode = exitCode !== undefined && exitCode > 0;
  return new SvcError("build_failed", `the image ${tag} cannot be built: ${words.slice(0, 1_000)}`, {
    payload: { ...(isCode && { exitCode }), signal: "", lastLines: [...lastLines] },
  });
}

/** Assembles the build's output into lines, and keeps the last ones. */
class BuildLines {
  readonly #onLine: (line: string) => void;
  readonly #last: string[] = [];
  readonly #secret: string | undefined;
  #rest = "";

  /** @param secret is masked: the engine prints the labels that it sets on the image */
  constructor(onLine: (line: string) => void, secret?: string) {
    this.#onLine = onLine;
    this.#secret = secret;
  }

  add(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n|\r/);
    this.#rest = (lines.pop() ?? "").slice(-16_384);
    for (const line of lines) this.#append(line);
  }

  end(): readonly string[] {
    if (this.#rest !== "") this.#append(this.#rest);
    this.#rest = "";
    return this.#last;
  }

  #append(line: string): void {
    if (line.trim() === "") return;
    const shown = this.#secret === undefined ? line : line.replaceAll(this.#secret, secretMask);
    this.#last.push(shown);
    if (this.#last.length > maxErrorLines) this.#last.shift();
    this.#onLine(shown);
  }
}
