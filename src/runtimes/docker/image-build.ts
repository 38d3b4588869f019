import type Dockerode from "dockerode";
import type { DockerEngine } from "../../docker/engine.ts";
import { SvcError } from "../../errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { RuntimeWork } from "../runtime.ts";
import { openBuildContext } from "./build-context.ts";
import { requireNamedByTriggers, requireNamedImages, withBases } from "./dockerfile-images.ts";
import { readMessages } from "./engine-messages.ts";

export interface BuildOptions extends RuntimeWork {
  /** Reads the context. */
  identity: Identity;
  /** The app's directory, absolute. */
  root: string;
  /** The context, relative to `root`. */
  context: string;
  /** Relative to the context. */
  dockerfile: string;
  target?: string | undefined;
  args: Readonly<Record<string, string>>;
  /** What the image is called, with a tag. */
  tag: string;
  labels: Readonly<Record<string, string>>;
  /** The image of a name, which is pulled where it is not there. */
  base: (reference: string) => Promise<{ id: string; triggers: readonly string[] }>;
}

const buildTimeoutMs = 60 * 60_000;
/** Lines of a failed build that its error carries. */
const keptLines = 20;

/**
 * Builds an image; what it prints is progress.
 * @throws SvcError `build_failed` with its last lines; what {@link openBuildContext} and {@link requireNamedImages} throw
 */
export async function buildImage(engine: DockerEngine, options: BuildOptions): Promise<void> {
  const { identity, root, context, dockerfile, target, args, tag, labels, signal } = options;
  const lines = new BuildLines((message) => options.onProgress?.({ step: "build", message }));
  // Before its turn, since to pull a base takes one, too.
  const { archive, dockerfile: checkedName } = await openBuildContext({
    ...{ identity, root, path: context, dockerfile, timeoutMs: buildTimeoutMs, signal },
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
      });
      for await (const { stream = "", error, errorDetail } of readMessages(answer)) {
        lines.add(stream);
        if (error !== undefined) throw buildFailed(tag, error, errorDetail?.code, lines.end());
      }
    } catch (error) {
      // The owner's side broke first: that is what to tell.
      if (archiveError !== undefined) throw archiveError;
      if (error instanceof SvcError || !isRefusal(error)) throw error;
      throw buildFailed(tag, error.message, undefined, lines.end());
    }
  };
  try {
    await engine.operate(`build ${tag}`, build, { timeoutMs: buildTimeoutMs, signal });
  } finally {
    archive.destroy();
  }
}

/** The Dockerfile with the very images that were looked at. Of those behind the target nothing is built. */
async function withCheckedBases(text: string, { args, target, base }: BuildOptions): Promise<string> {
  const all = requireNamedImages(text, args);
  const last = all.findLast(({ name, stage }) => [name, String(stage)].includes(target?.toLowerCase() ?? ""));
  const bases = last === undefined || target === undefined ? all : all.slice(0, all.indexOf(last) + 1);
  const ids = new Map<string, string>();
  for (const { reference } of bases) {
    if (ids.has(reference)) continue;
    const { id, triggers } = await base(reference);
    requireNamedByTriggers(reference, triggers);
    ids.set(reference, id);
  }
  return withBases(text, bases, ids);
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

/** Puts what a build prints together to lines, and keeps the last ones. */
class BuildLines {
  readonly #onLine: (line: string) => void;
  readonly #last: string[] = [];
  #rest = "";

  constructor(onLine: (line: string) => void) {
    this.#onLine = onLine;
  }

  add(text: string): void {
    const lines = (this.#rest + text).split(/\r?\n|\r/);
    this.#rest = (lines.pop() ?? "").slice(-16_384);
    for (const line of lines) this.#keep(line);
  }

  end(): readonly string[] {
    if (this.#rest !== "") this.#keep(this.#rest);
    this.#rest = "";
    return this.#last;
  }

  #keep(line: string): void {
    if (line.trim() === "") return;
    this.#last.push(line);
    if (this.#last.length > keptLines) this.#last.shift();
    this.#onLine(line);
  }
}
